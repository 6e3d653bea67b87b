//! A checkpoint is recounted before its manifest is made: what its writers say of it must be one state, of which each share has as many
//! pieces and bytes as it should. Of one writer against many the many are believed, and another holder writes in its place.
//!
//! A manifest that names other pieces can be loaded by no worker, and older ones would be deleted behind it.

use std::collections::BTreeMap;

use super::saves::{Described, Saving, Written, WrittenPart};
use super::{CheckpointManager, Facts};
use crate::limits::PIECE_BYTES;
use crate::messages::Senseless;
use crate::planted::{Bug, bites};
use crate::snapshot::Share;
use crate::state::StateSize;
use crate::words::WorkerId;

/// Why what was written is no checkpoint.
enum Flaw {
    /// These workers have written something else than the state's shares.
    Writers(Vec<WorkerId>, String),
    /// It is not clear which workers have.
    Unclear(String),
}

/// How many pieces a share of a state has.
fn pieces_of(share: Share, state: StateSize) -> u64 {
    let (start, end) = share.pieces(state.pieces);
    end - start
}

impl Saving {
    /// What a worker tells of a share that this snapshot does not have, or of more pieces than the share has by its own word.
    pub(super) fn flaw_of(&self, part: &WrittenPart) -> Option<Senseless> {
        let (index, of) = (part.share, self.taken.holders());
        if index >= of {
            let (expected, found) = (format!("one of {of} shares"), format!("share {index}"));
            return Some(Senseless { expected, found });
        }
        let most = pieces_of(Share { index, of }, part.described.state);
        let told = part.start.saturating_add(part.pieces.len() as u64);
        (told > most).then(|| Senseless {
            expected: format!("{most} pieces in share {index} of {of}"),
            found: format!("{told} pieces"),
        })
    }

    /// Whether all that is written is one state, whole and without surplus.
    fn recount(&self) -> Result<(), Flaw> {
        let mut said: BTreeMap<&Described, u32> = BTreeMap::new();
        for written in self.shares.values() {
            *said.entry(&written.described).or_default() += 1;
        }
        let most = said.values().max().copied().unwrap_or(0);
        let mut first = said.iter().filter(|(_, times)| **times == most);
        let (Some((&agreed, _)), None) = (first.next(), first.next()) else {
            let reason = "its writers describe the tensors of the state differently, and as many say the one as the other";
            return Err(Flaw::Unclear(reason.to_owned()));
        };
        let of = self.taken.holders();
        let fits = |index: u32, written: &Written| {
            let pieces = written.pieces.len() as u64;
            let wanted = pieces_of(Share { index, of }, agreed.state);
            let bytes = pieces <= written.bytes && written.bytes <= pieces.saturating_mul(PIECE_BYTES as u64);
            written.described == *agreed && pieces == wanted && bytes
        };
        let wrong: Vec<WorkerId> = self
            .shares
            .iter()
            .filter(|(index, written)| !fits(**index, written))
            .map(|(_, written)| written.by)
            .collect();
        if !wrong.is_empty() {
            let StateSize { pieces, bytes } = agreed.state;
            let reason = format!("{wrong:?} wrote other shares than a state of {pieces} pieces and {bytes} bytes has");
            return Err(Flaw::Writers(wrong, reason));
        }
        let bytes = self
            .shares
            .values()
            .fold(0, |sum: u64, written| sum.saturating_add(written.bytes));
        let expected = agreed.state.bytes;
        if bytes != expected {
            let reason = format!("its shares have {bytes} bytes, and the state {expected}");
            return Err(Flaw::Unclear(reason));
        }
        Ok(())
    }
}

impl CheckpointManager {
    /// All shares are written: makes the manifest, unless they are not those of the state.
    pub(crate) fn commit_if_sound(&mut self, facts: &Facts) {
        let Some(saving) = &mut self.saving else { return };
        match saving.recount() {
            _ if bites(Bug::CommittedTooEarly) => self.commit(facts),
            Ok(()) => self.commit(facts),
            Err(Flaw::Unclear(reason)) => self.give_up_saving(&reason, facts),
            Err(Flaw::Writers(workers, reason)) => {
                saving.shares.retain(|_, written| !workers.contains(&written.by));
                self.without_writers(&workers, &reason, facts);
            }
        }
    }

    /// These workers have written something else than what they hold: others write what they were to write, if there are any.
    pub(super) fn without_writers(&mut self, workers: &[WorkerId], reason: &str, facts: &Facts) {
        let Some(saving) = &mut self.saving else { return };
        for &worker in workers {
            saving.taken.gone(worker);
        }
        if !saving.has_writers() {
            return self.give_up_saving(reason, facts);
        }
        saving.drop_halves(facts.now);
        self.send_saves(facts);
    }
}
