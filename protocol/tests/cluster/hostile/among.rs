//! One or two workers that lie, among honest ones. What they compute, hold and hand over is right; what they say of it is not.

use std::collections::BTreeSet;

use sardana_protocol::messages::{Introduction, WorkerMessage};
use sardana_protocol::words::WorkerId;

use super::changing::Ear;
use super::corpus;
use crate::world::Dice;

/// Who lies, and what.
#[derive(Debug)]
pub(crate) struct Liars {
    who: BTreeSet<WorkerId>,
    ear: Ear,
    corpus: Vec<WorkerMessage>,
    /// One in so many of their words is a lie.
    rarity: u64,
    /// How many lies were told.
    pub(crate) told: u32,
    /// Why the job failed, if that is by their word.
    pub(crate) failed: Option<String>,
}

impl Liars {
    pub(crate) fn new(who: impl IntoIterator<Item = WorkerId>, rarity: u64) -> Self {
        Self {
            who: who.into_iter().collect(),
            ear: Ear::default(),
            corpus: corpus::of_worker(),
            rarity,
            told: 0,
            failed: None,
        }
    }

    pub(crate) fn is_one(&self, worker: WorkerId) -> bool {
        self.who.contains(&worker)
    }

    /// Whether this names one of them.
    pub(crate) fn named_in(&self, reason: &str) -> bool {
        self.who.iter().any(|worker| reason.contains(&worker.to_string()))
    }

    pub(crate) fn hear(&mut self, message: &impl serde::Serialize) {
        self.ear.hear(message);
    }

    /// What a worker says in place of `message`.
    pub(crate) fn says(&mut self, worker: WorkerId, message: WorkerMessage, dice: &mut Dice) -> WorkerMessage {
        if !self.is_one(worker) || !dice.once_in(self.rarity) {
            return message;
        }
        self.told += 1;
        self.ear.changed(&message, dice)
    }

    /// What a worker's hello says in place of this.
    pub(crate) fn introduces(&mut self, worker: WorkerId, introduction: Introduction, dice: &mut Dice) -> Introduction {
        if !self.is_one(worker) || !dice.once_in(self.rarity) {
            return introduction;
        }
        self.told += 1;
        self.ear.changed(&introduction, dice)
    }

    /// What one of them says unasked, now and then.
    pub(crate) fn invents(&mut self, dice: &mut Dice) -> Option<(WorkerId, WorkerMessage)> {
        if !dice.once_in(self.rarity * 40) {
            return None;
        }
        let worker = *self.who.iter().nth(dice.index(self.who.len()))?;
        self.told += 1;
        let message = &self.corpus[dice.index(self.corpus.len())];
        Some((worker, self.ear.changed(message, dice)))
    }
}
