//! A worker of a group: its machine, its links, and a program that calls one operation after the other.

use std::time::Duration;

use sardana_protocol::member::GroupMember;
use sardana_protocol::messages::Form;
use sardana_protocol::words::{Generation, WorkerId};

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) machine: GroupMember,
    /// The connection to the coordinator, once it is welcomed there.
    pub(super) session: Option<u64>,
    /// How often it has dialled.
    pub(super) dialled: u64,
    pub(super) seat: Option<Seat>,
    /// Until when it stands still.
    pub(super) frozen: Duration,
    /// Whether it has asked to leave.
    pub(super) leaves: bool,
}

/// What it has of a generation.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) form: Form,
    pub(super) group: Group,
    /// The operations that its program has had the results of.
    pub(super) ended: u64,
    /// Whether its program is in the next one.
    pub(super) calls: bool,
}

/// How its group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// Its links are being made.
    Linking,
    /// They are made.
    Works,
    /// An operation has failed, or its program wants the next one, or none.
    Over,
    /// Its program has finished in it.
    Done,
}

impl Process {
    pub(super) fn new() -> Self {
        Self {
            machine: GroupMember::default(),
            session: None,
            dialled: 0,
            seat: None,
            frozen: Duration::ZERO,
            leaves: false,
        }
    }

    /// Its seat in `generation`.
    pub(super) fn in_generation(&mut self, generation: Generation) -> Option<&mut Seat> {
        self.seat.as_mut().filter(|seat| seat.form.generation == generation)
    }

    /// Its seat in `generation`, to look at.
    pub(super) fn seat_of(&self, generation: Generation) -> Option<&Seat> {
        self.seat.as_ref().filter(|seat| seat.form.generation == generation)
    }
}

impl Seat {
    pub(super) fn new(form: Form) -> Self {
        Self {
            form,
            group: Group::Linking,
            ended: 0,
            calls: false,
        }
    }

    /// The workers that it has links with.
    pub(super) fn peers(&self) -> Vec<WorkerId> {
        self.form.peers.iter().map(|peer| peer.member.worker).collect()
    }
}
