//! What a member keeps for joiners: its shares of a snapshot, and the sums of later steps whose turn is its own.

use std::collections::BTreeSet;

use super::Member;
use super::command::{Command, NetworkCommand};
use crate::messages::{Joiners, Serve, Shares, WorkerMessage};
use crate::planted::{Bug, bites};
use crate::snapshot::{SnapshotId, keepers_of, shares_of};
use crate::state::StateHash;
use crate::words::{Step, WorkerId};

/// What a member keeps for others.
#[derive(Debug, Clone, Default)]
pub(super) struct Keeping {
    /// How many sums it may keep for joiners that follow.
    most_sums: u32,
    pub(super) held: Option<Held>,
    /// Joiners that it serves.
    admitted: BTreeSet<WorkerId>,
    /// The snapshot whose shares it writes to depots.
    pub(super) saving: Option<SnapshotId>,
}

impl Keeping {
    /// Nothing yet, and never more sums than these.
    pub(super) fn of(most_sums: u32) -> Self {
        Self {
            most_sums,
            ..Self::default()
        }
    }
}

/// A snapshot of which this member holds shares.
#[derive(Debug, Clone)]
pub(super) struct Held {
    snapshot: SnapshotId,
    /// This member's place among the members that took it.
    place: u32,
    of: u32,
    sums: BTreeSet<Step>,
    /// Some sums that it should keep were too many: a joiner that copies the snapshot could not follow.
    lacks_sums: bool,
    /// Joiners may copy it by now. Until then it is being hashed, and may as well become a checkpoint and nothing else.
    offered: bool,
}

impl Member {
    /// A snapshot is to come, or will not. New memory costs more time than the copy, and all wait for the copy only.
    fn make_room(&self, needed: Shares, out: &mut Vec<Command>) {
        let Some(seat) = &self.seat else { return };
        let shares = match needed {
            Shares::Keep => seat.place().map_or(Vec::new(), |(place, of)| shares_of(place, of)),
            Shares::Drop => Vec::new(),
        };
        out.push(Command::Network(NetworkCommand::MakeRoom { shares }));
    }

    pub(super) fn room_made(&self, out: &mut Vec<Command>) {
        if let Some(seat) = &self.seat {
            let generation = seat.form.generation;
            out.push(Command::Send(WorkerMessage::RoomMade { generation }));
        }
    }

    /// At a boundary, by trailer: copies this member's shares, if it is a holder. What it has of an earlier snapshot is not needed any
    /// more.
    pub(super) fn take_snapshot(&mut self, out: &mut Vec<Command>) {
        let Some(seat) = &self.seat else { return };
        let Some((place, of)) = seat.place() else {
            self.let_go(out);
            return;
        };
        let snapshot = SnapshotId {
            generation: seat.form.generation,
            step: if bites(Bug::SnapshotOfAnotherStep) {
                self.step.previous().unwrap_or_default()
            } else {
                self.step
            },
        };
        out.push(Command::Snapshot {
            snapshot,
            shares: shares_of(place, of),
        });
        self.keeping.held = Some(Held {
            snapshot,
            place,
            of,
            sums: BTreeSet::new(),
            lacks_sums: false,
            offered: false,
        });
    }

    /// The sum of `step` is applied: keeps it if it is this member's turn, as far as memory goes.
    pub(super) fn keep_sum(&mut self, step: Step, out: &mut Vec<Command>) {
        let most = self.keeping.most_sums as usize;
        let Some(held) = &mut self.keeping.held else { return };
        if step < held.snapshot.step || !keepers_of(step, held.of).contains(&held.place) {
            return;
        }
        let room = held.sums.len() < most || bites(Bug::KeptWithoutBound);
        if room && !held.lacks_sums {
            held.sums.insert(step);
            out.push(Command::KeepSum { step });
        } else if held.offered {
            self.drop_snapshot(out);
        } else if !std::mem::replace(&mut held.lacks_sums, true) {
            // A checkpoint needs no sums: it is not given up because steps are short and hashing is long.
            held.sums.clear();
            out.push(Command::LetGo {
                shares: false,
                sums_before: Some(step.next()),
            });
        }
    }

    /// Gives up a snapshot that a joiner or a checkpoint may still need.
    pub(super) fn drop_snapshot(&mut self, out: &mut Vec<Command>) {
        if let Some(snapshot) = self.let_go(out) {
            out.push(Command::Send(WorkerMessage::Dropped { snapshot }));
        }
    }

    pub(super) fn snapshot_held(&self) -> Option<SnapshotId> {
        self.keeping.held.as_ref().map(|held| held.snapshot)
    }

    fn let_go(&mut self, out: &mut Vec<Command>) -> Option<SnapshotId> {
        let held = self.keeping.held.take()?;
        out.push(Command::LetGo {
            shares: true,
            sums_before: None,
        });
        Some(held.snapshot)
    }

    /// The coordinator, which waits for the snapshot, may wait on.
    pub(super) fn hashing(&self, snapshot: SnapshotId, out: &mut Vec<Command>) {
        if self.snapshot_held() == Some(snapshot) {
            out.push(Command::Send(WorkerMessage::Hashing { snapshot }));
        }
    }

    pub(super) fn snapshotted(&mut self, snapshot: SnapshotId, shares: Vec<(u32, StateHash)>, out: &mut Vec<Command>) {
        if self.keeping.held.as_ref().is_some_and(|held| held.snapshot == snapshot) {
            out.push(Command::Send(WorkerMessage::Snapshotted { snapshot, shares }));
        }
    }

    fn admit(&mut self, joiners: Joiners, out: &mut Vec<Command>) {
        match joiners {
            Joiners::Only(joiners) => self.keeping.admitted = joiners.into_iter().collect(),
            Joiners::Changed { came, gone } if came.is_empty() && gone.is_empty() => return,
            Joiners::Changed { came, gone } => {
                self.keeping.admitted.retain(|joiner| !gone.contains(joiner));
                self.keeping.admitted.extend(came);
            }
        }
        let joiners = self.keeping.admitted.iter().copied().collect();
        out.push(Command::Network(NetworkCommand::Admit { joiners }));
    }

    pub(super) fn serve(&mut self, serve: Serve, out: &mut Vec<Command>) {
        let none_join = serve.joiners.are_none();
        self.admit(serve.joiners, out);
        let Some(needed) = serve.snapshot else {
            return self.make_room(serve.shares, out);
        };
        let Some(held) = &mut self.keeping.held else { return };
        // Where no worker joins it may still become a checkpoint, until it is said that it is over.
        let over = none_join && serve.shares == Shares::Drop;
        if held.snapshot < needed || (held.snapshot == needed && over) {
            self.let_go(out);
        } else if held.snapshot == needed {
            held.offered = true;
            held.sums.retain(|&step| step >= serve.sums_from);
            out.push(Command::LetGo {
                shares: serve.shares == Shares::Drop,
                sums_before: Some(serve.sums_from),
            });
        }
    }
}
