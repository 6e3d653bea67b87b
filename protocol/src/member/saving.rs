//! What a member does for checkpoints: it writes shares of a snapshot to depots, and reads its part of a checkpoint that a generation
//! starts from.

use super::Member;
use super::command::{Command, NetworkCommand};
use crate::checkpoint::PieceHash;
use crate::limits::SAVED_PIECES;
use crate::messages::{Form, Last, Restore, Save, WorkerMessage};
use crate::snapshot::SnapshotId;
use crate::state::StateSize;
use crate::words::Generation;

/// A share that is durable where it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedShare {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// The order's.
    pub attempt: u32,
    /// Its index.
    pub share: u32,
    /// Its bytes.
    pub bytes: u64,
    /// The pieces that describe the state's tensors.
    pub description: Vec<PieceHash>,
    /// How much the whole state is.
    pub state: StateSize,
    /// Its pieces, in order.
    pub pieces: Vec<PieceHash>,
}

impl Member {
    /// The state at the end of the job, and the state that members leave behind when all halt at a boundary, is a snapshot like any other,
    /// which the coordinator need not ask for.
    pub(super) fn take_last_snapshot(&mut self, out: &mut Vec<Command>) {
        let wanted = |form: &Form| SnapshotId {
            generation: form.generation,
            step: self.step,
        };
        let seat = self.seat.as_ref().filter(|seat| seat.form.last == Last::Snapshot);
        let Some(snapshot) = seat.map(|seat| wanted(&seat.form)) else {
            return;
        };
        if self.snapshot_held() != Some(snapshot) {
            self.take_snapshot(out);
        }
    }

    /// Writes shares of the snapshot that is held, or goes on with one that is being written.
    pub(super) fn save(&mut self, save: Save, out: &mut Vec<Command>) {
        let (snapshot, attempt) = (save.snapshot, save.attempt);
        if self.keeping.saving != Some(snapshot) && self.snapshot_held() != Some(snapshot) {
            let reason = "this worker does not hold the snapshot any more".to_owned();
            return out.push(Command::Send(WorkerMessage::NotSaved {
                snapshot,
                attempt,
                depot: None,
                reason,
            }));
        }
        self.keeping.saving = Some(snapshot);
        out.push(Command::Save(Box::new(save)));
    }

    pub(super) fn save_over(&mut self, snapshot: SnapshotId, out: &mut Vec<Command>) {
        if self.keeping.saving == Some(snapshot) {
            self.end_saving(out);
        }
    }

    pub(super) fn end_saving(&mut self, out: &mut Vec<Command>) {
        if self.keeping.saving.take().is_some() {
            out.push(Command::Network(NetworkCommand::EndSave));
        }
    }

    /// A message has its bounds; a share may have any number of pieces.
    pub(super) fn saved(&self, saved: SavedShare, out: &mut Vec<Command>) {
        if self.keeping.saving != Some(saved.snapshot) {
            return;
        }
        let mut start = 0;
        loop {
            let end = saved.pieces.len().min(start + SAVED_PIECES);
            let is_last = end == saved.pieces.len();
            out.push(Command::Send(WorkerMessage::Saved {
                snapshot: saved.snapshot,
                attempt: saved.attempt,
                share: saved.share,
                bytes: saved.bytes,
                description: saved.description.clone(),
                state: saved.state,
                start: start as u64,
                pieces: saved.pieces[start..end].to_vec(),
                is_last,
            }));
            start = end;
            if is_last {
                return;
            }
        }
    }

    /// Loads the checkpoint that a generation starts from.
    pub(super) fn restore(&self, form: &Form, out: &mut Vec<Command>) {
        if let Some(restore) = &form.restore {
            out.push(Command::Network(NetworkCommand::Restore {
                generation: form.generation,
                rank: form.rank,
                restore: restore.clone(),
            }));
        }
    }

    pub(super) fn not_restored(&mut self, generation: Generation, reason: String, out: &mut Vec<Command>) {
        if self.seated(generation).is_some() {
            self.unrestored = Some((generation, reason));
            self.say_unrestored(out);
        }
    }

    /// Says that the checkpoint could not be loaded. Said again with each heartbeat: the coordinator does not ask for it.
    pub(super) fn say_unrestored(&self, out: &mut Vec<Command>) {
        let seated = self.seat.as_ref().map(|seat| seat.form.generation);
        if let Some((generation, reason)) = &self.unrestored
            && seated == Some(*generation)
        {
            let (generation, reason) = (*generation, reason.clone());
            out.push(Command::Send(WorkerMessage::NotRestored { generation, reason }));
        }
    }
}

impl Restore {
    /// Whether it can be what `form` starts from.
    pub(super) fn is_sound(&self, form: &Form) -> bool {
        self.key.step == form.step
            && self.members.len() <= form.world_size as usize
            && self.members.is_sorted_by(|one, next| one.rank < next.rank)
            && self.member(form.rank).is_some()
            && !self.readers.is_empty()
            && self.readers.is_sorted_by(|one, next| one < next)
            && self.readers.iter().all(|reader| self.member(*reader).is_some())
            && !self.depots.is_empty()
    }
}
