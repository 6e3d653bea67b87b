//! Which transitions of the machines, and which messages, commands and events, a run has seen: what is never reached is never tried.

use std::collections::BTreeMap;

use sardana_protocol::member::{self, Command};
use sardana_protocol::membership::{self, JobEvent};
use sardana_protocol::messages::{CoordinatorMessage, DepotMessage, DepotOrder, WorkerMessage};

pub use super::expected::{COVERED_WITHIN, EXPECTED};
use super::marks::Marks;

/// One thing that was reached: of which machine or list, and what.
pub type Reached = (&'static str, &'static str, &'static str);

/// How often each was reached.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    transitions: Marks,
    named: Marks,
}

impl Coverage {
    pub(crate) fn moved(&mut self, from: membership::Phases, to: membership::Phases) {
        self.transition("membership", from.membership, to.membership);
        self.transition("past", from.past, to.past);
        self.transition("intake", from.intake, to.intake);
        self.transition("plan", from.plan, to.plan);
        self.transition("saving", from.saving, to.saving);
    }

    pub(crate) fn member_moved(&mut self, from: member::Phases, to: member::Phases) {
        self.transition("seat", from.seat, to.seat);
        self.transition("next seat", from.next, to.next);
        self.transition("update", from.update, to.update);
        self.transition("joining", from.joining, to.joining);
    }

    fn transition(&mut self, machine: &'static str, from: &'static str, to: &'static str) {
        // Nearly always the same literal.
        if !std::ptr::eq(from, to) && from != to {
            self.transitions.mark((machine, from, to));
        }
    }

    fn name(&mut self, list: &'static str, name: &'static str) {
        self.named.mark((list, name, ""));
    }

    pub(crate) fn ordered(&mut self, message: &CoordinatorMessage) {
        self.name(
            "coordinator says",
            match message {
                CoordinatorMessage::Halt { .. } => "Halt",
                CoordinatorMessage::Form(_) => "Form",
                CoordinatorMessage::Prepare(_) => "Prepare",
                CoordinatorMessage::CloseWith { .. } => "CloseWith",
                CoordinatorMessage::Serve(_) => "Serve",
                CoordinatorMessage::Copy(_) => "Copy",
                CoordinatorMessage::Save(_) => "Save",
                CoordinatorMessage::SaveOver { .. } => "SaveOver",
                CoordinatorMessage::Released { .. } => "Released",
                CoordinatorMessage::Renewed { .. } => "Renewed",
                CoordinatorMessage::Complete { .. } => "Complete",
                CoordinatorMessage::Dismiss { .. } => "Dismiss",
            },
        );
    }

    pub(crate) fn said(&mut self, message: &WorkerMessage) {
        self.name(
            "worker says",
            match message {
                WorkerMessage::Halted { .. } => "Halted",
                WorkerMessage::Ready { .. } => "Ready",
                WorkerMessage::Progress { .. } => "Progress",
                WorkerMessage::Finished { .. } => "Finished",
                WorkerMessage::LinkBroken { .. } => "LinkBroken",
                WorkerMessage::Switched { .. } => "Switched",
                WorkerMessage::RoomMade { .. } => "RoomMade",
                WorkerMessage::Hashing { .. } => "Hashing",
                WorkerMessage::Snapshotted { .. } => "Snapshotted",
                WorkerMessage::Saved { .. } => "Saved",
                WorkerMessage::Saving { .. } => "Saving",
                WorkerMessage::NotSaved { .. } => "NotSaved",
                WorkerMessage::NotRestored { .. } => "NotRestored",
                WorkerMessage::Dropped { .. } => "Dropped",
                WorkerMessage::CaughtUp { .. } => "CaughtUp",
                WorkerMessage::Copying { .. } => "Copying",
                WorkerMessage::CopyFailed { .. } => "CopyFailed",
                WorkerMessage::Leave { .. } => "Leave",
                WorkerMessage::Renew { .. } => "Renew",
                WorkerMessage::Failed { .. } => "Failed",
            },
        );
    }

    pub(crate) fn commanded(&mut self, command: &Command) {
        self.name(
            "worker does",
            match command {
                Command::Send(_) => "Send",
                Command::Connect(_) => "Connect",
                Command::Abort { .. } => "Abort",
                Command::Begin { .. } => "Begin",
                Command::Offer { .. } => "Offer",
                Command::Retain { .. } => "Retain",
                Command::SumAlone { .. } => "SumAlone",
                Command::Accept { .. } => "Accept",
                Command::LayAside => "LayAside",
                Command::AcceptAside { .. } => "AcceptAside",
                Command::CloseWith { .. } => "CloseWith",
                Command::Prepare(_) => "Prepare",
                Command::Switch { .. } => "Switch",
                Command::Unprepare => "Unprepare",
                Command::MakeRoom { .. } => "MakeRoom",
                Command::Snapshot { .. } => "Snapshot",
                Command::KeepSum { .. } => "KeepSum",
                Command::LetGo { .. } => "LetGo",
                Command::Admit { .. } => "Admit",
                Command::Copy(_) => "Copy",
                Command::Follow { .. } => "Follow",
                Command::EndCopy => "EndCopy",
                Command::Fetch { .. } => "Fetch",
                Command::Save(_) => "Save",
                Command::EndSave => "EndSave",
                Command::Restore { .. } => "Restore",
                Command::EndRestore => "EndRestore",
            },
        );
    }

    pub(crate) fn depot_ordered(&mut self, order: &DepotOrder) {
        self.name(
            "depots are told",
            match order {
                DepotOrder::Serve { .. } => "Serve",
                DepotOrder::Commit { .. } => "Commit",
                DepotOrder::Release { .. } => "Release",
                DepotOrder::Delete { .. } => "Delete",
                DepotOrder::Fetch { .. } => "Fetch",
                DepotOrder::Renewed { .. } => "Renewed",
                DepotOrder::JobOver => "JobOver",
            },
        );
    }

    pub(crate) fn depot_said(&mut self, message: &DepotMessage) {
        self.name(
            "depot says",
            match message {
                DepotMessage::Holds { .. } => "Holds",
                DepotMessage::Deleted { .. } => "Deleted",
                DepotMessage::Committed { .. } => "Committed",
                DepotMessage::Refused { .. } => "Refused",
                DepotMessage::Renew { .. } => "Renew",
            },
        );
    }

    pub(crate) fn told(&mut self, event: &JobEvent) {
        self.name(
            "people are told",
            match event {
                JobEvent::Joined { .. } => "Joined",
                JobEvent::Adopted { .. } => "Adopted",
                JobEvent::Fenced { .. } => "Fenced",
                JobEvent::Lost { .. } => "Lost",
                JobEvent::Leaving { .. } => "Leaving",
                JobEvent::Left { .. } => "Left",
                JobEvent::Snapshot { .. } => "Snapshot",
                JobEvent::CaughtUp { .. } => "CaughtUp",
                JobEvent::CoolsDown { .. } => "CoolsDown",
                JobEvent::JoinsAnew { .. } => "JoinsAnew",
                JobEvent::Held { .. } => "Held",
                JobEvent::Switched { .. } => "Switched",
                JobEvent::Halting { .. } => "Halting",
                JobEvent::Forming { .. } => "Forming",
                JobEvent::Formed { .. } => "Formed",
                JobEvent::Resumed { .. } => "Resumed",
                JobEvent::Steps(_) => "Steps",
                JobEvent::Waiting { .. } => "Waiting",
                JobEvent::StateLost { .. } => "StateLost",
                JobEvent::DepotCame { .. } => "DepotCame",
                JobEvent::DepotLost { .. } => "DepotLost",
                JobEvent::DepotRefused { .. } => "DepotRefused",
                JobEvent::Saved { .. } => "Saved",
                JobEvent::NotSaved { .. } => "NotSaved",
                JobEvent::Resumes { .. } => "Resumes",
                JobEvent::NotRestored { .. } => "NotRestored",
                JobEvent::NotRecorded { .. } => "NotRecorded",
                JobEvent::RecordedAgain { .. } => "RecordedAgain",
                JobEvent::Done(_) => "Done",
                JobEvent::Failed { .. } => "Failed",
            },
        );
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.transitions.add(&other.transitions);
        self.named.add(&other.named);
    }

    /// All that was reached, and how often.
    #[must_use]
    pub fn reached(&self) -> BTreeMap<Reached, u64> {
        let mut all = BTreeMap::new();
        for (reached, times) in self.transitions.counts().chain(self.named.counts()) {
            *all.entry(reached).or_default() += times;
        }
        all
    }
}

impl Coverage {
    /// What was expected and never reached.
    #[must_use]
    pub fn missing(&self) -> Vec<Reached> {
        let reached = self.reached();
        EXPECTED.iter().filter(|one| !reached.contains_key(*one)).copied().collect()
    }
}
