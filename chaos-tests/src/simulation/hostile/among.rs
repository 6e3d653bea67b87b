//! One or two workers that lie, among honest ones; or a depot, and the agent of one worker. What they compute, hold and hand over is right;
//! what they say of it is not.

use std::collections::BTreeSet;

use sardana_protocol::checkpoint::DepotId;
use sardana_protocol::member::Followed;
use sardana_protocol::membership::{Event, Loss};
use sardana_protocol::messages::{DepotMessage, Introduction, Motion, Tally, Trailer, WorkerMessage};
use sardana_protocol::words::{Generation, WorkerId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::changing::Ear;
use super::corpus;
use crate::dice::Dice;
use crate::simulation::world::{BUILD, TASK};

/// So many workers lie in all: the honest may be too few for the job without those that come in place of others.
const EVER: usize = 12;

/// A depot that lies, and an agent.
#[derive(Debug)]
struct Others {
    depot: DepotId,
    corpus: Vec<DepotMessage>,
    /// The worker whose agent lies: the one that came first.
    child: Option<WorkerId>,
}

/// Which peers lie, and what they say.
#[derive(Debug)]
pub(crate) struct Liars {
    who: BTreeSet<WorkerId>,
    /// How many workers lie at once: those that come first, and others in place of those that are gone.
    workers: usize,
    ear: Ear,
    corpus: Vec<WorkerMessage>,
    others: Option<Others>,
    /// Whether the workers that lie do so only of the sums that they hand to joiners: what the coordinator is told is true.
    only_to_joiners: bool,
    /// One in so many of their words is a lie.
    rarity: u64,
    /// How often a keeper has lied to a joiner.
    pub(crate) misled: u64,
    /// Why the job failed, if it did.
    pub(crate) failed: Option<String>,
}

impl Liars {
    pub(crate) fn new(workers: usize, rarity: u64) -> Self {
        Self {
            who: BTreeSet::new(),
            workers,
            ear: Ear::default(),
            corpus: corpus::of_worker(),
            others: None,
            only_to_joiners: false,
            rarity,
            misled: 0,
            failed: None,
        }
    }

    /// The workers that lie do so only of the sums that they hand to joiners.
    pub(crate) fn only_to_joiners(self) -> Self {
        Self {
            only_to_joiners: true,
            ..self
        }
    }

    /// With a depot that lies, and the agent of the worker that comes first.
    pub(crate) fn and_others(self, depot: DepotId) -> Self {
        let corpus = corpus::of_depot(TASK, BUILD);
        let others = Others {
            depot,
            corpus,
            child: None,
        };
        Self {
            others: Some(others),
            ..self
        }
    }

    /// A worker comes. `here`: whether another one is.
    pub(crate) fn comes(&mut self, worker: WorkerId, here: impl Fn(&WorkerId) -> bool) {
        if self.who.len() < EVER && self.who.iter().filter(|one| here(one)).count() < self.workers {
            self.who.insert(worker);
        }
        if let Some(others) = &mut self.others {
            others.child.get_or_insert(worker);
        }
    }

    /// The depot that lies, if one does.
    pub(crate) fn depot(&self) -> Option<DepotId> {
        self.others.as_ref().map(|others| others.depot)
    }

    pub(crate) fn is_one(&self, worker: WorkerId) -> bool {
        self.who.contains(&worker)
    }

    /// Whether it says to the coordinator what is not true.
    pub(crate) fn lies_to_the_coordinator(&self, worker: WorkerId) -> bool {
        self.is_one(worker) && !self.only_to_joiners
    }

    /// Whether this names one of the liars.
    pub(crate) fn named_in(&self, reason: &str) -> bool {
        let other = self.depot().map(|depot| depot.to_string());
        let names = self.who.iter().map(ToString::to_string).chain(other);
        names.into_iter().any(|name| reason.contains(&name))
    }

    pub(crate) fn hear(&mut self, message: &impl Serialize) {
        self.ear.hear(message);
    }

    /// What a worker says in place of `message`.
    pub(crate) fn says(&mut self, worker: WorkerId, message: WorkerMessage, dice: &mut Dice) -> WorkerMessage {
        self.twisted(self.lies_to_the_coordinator(worker), message, dice)
    }

    /// What one that lies says in place of `message`.
    fn twisted<T: Serialize + DeserializeOwned + Clone>(&self, lies: bool, message: T, dice: &mut Dice) -> T {
        if lies && dice.once_in(self.rarity) {
            self.ear.changed(&message, dice)
        } else {
            message
        }
    }

    /// What a worker's hello says in place of this.
    pub(crate) fn introduces(&mut self, worker: WorkerId, introduction: Introduction, dice: &mut Dice) -> Introduction {
        self.twisted(self.lies_to_the_coordinator(worker), introduction, dice)
    }

    /// What a keeper says of a sum that it hands to a joiner in place of this. The sum's step is the joiner's own. `newest`: the number of the last generation
    /// that was planned or formed.
    pub(crate) fn hands_over(&mut self, keeper: WorkerId, told: Followed, newest: Generation, dice: &mut Dice) -> Followed {
        let Followed {
            step,
            generation,
            trailer,
            keeper_at,
        } = told;
        let lies = self.is_one(keeper);
        // Of changes to what is true none is another order.
        let orders = [Trailer::Switch(newest), Trailer::Continue, Trailer::Stop];
        let trailer = if lies && dice.once_in(self.rarity) {
            orders[dice.index(orders.len())]
        } else {
            trailer
        };
        let (generation, trailer, keeper_at) = self.twisted(lies, (generation, trailer, keeper_at), dice);
        let said = Followed {
            step,
            generation,
            trailer,
            keeper_at,
        };
        self.misled += u64::from(said != told);
        said
    }

    /// What a worker that lies says unasked, now and then.
    pub(crate) fn invents(
        &mut self,
        here: impl Fn(&WorkerId) -> bool,
        dice: &mut Dice,
    ) -> Option<(WorkerId, WorkerMessage)> {
        let present: Vec<WorkerId> = self.who.iter().copied().filter(here).collect();
        if present.is_empty() || self.only_to_joiners || !dice.once_in(self.rarity * 40) {
            return None;
        }
        let worker = present[dice.index(present.len())];
        let message = &self.corpus[dice.index(self.corpus.len())];
        Some((worker, self.ear.changed(message, dice)))
    }

    /// What a depot says in place of `message`.
    pub(crate) fn depot_says(&mut self, depot: DepotId, message: DepotMessage, dice: &mut Dice) -> DepotMessage {
        self.twisted(self.depot() == Some(depot), message, dice)
    }

    /// What the depot that lies says unasked, now and then.
    pub(crate) fn depot_invents(&mut self, dice: &mut Dice) -> Option<(DepotId, DepotMessage)> {
        let others = self.others.as_ref()?;
        if !dice.once_in(self.rarity * 40) {
            return None;
        }
        let message = &others.corpus[dice.index(others.corpus.len())];
        Some((others.depot, self.ear.changed(message, dice)))
    }

    /// Whether the depot that lies comes anew, as it may once what it has said could not be.
    pub(crate) fn depot_comes(&self, dice: &mut Dice) -> Option<DepotId> {
        let depot = self.others.as_ref()?.depot;
        dice.once_in(self.rarity * 80).then_some(depot)
    }

    /// What the agent that lies says, now and then: that its child stands still, or goes on; and that another worker has ended, which is
    /// believed of workers that are not there, as `absent` are.
    pub(crate) fn agent_invents(&mut self, absent: &[WorkerId], dice: &mut Dice) -> Option<Event> {
        let child = self.others.as_ref()?.child?;
        if !dice.once_in(self.rarity * 40) {
            return None;
        }
        if dice.once_in(2) && !absent.is_empty() {
            let tally = Some(Tally {
                total: 9,
                ..Tally::default()
            });
            let cause = Loss::Exited {
                how: "signal 9".to_owned(),
                tally: self.ear.changed(&tally, dice),
            };
            let worker = absent[dice.index(absent.len())];
            return Some(Event::Lost { worker, cause });
        }
        let motion = [Motion::Runs, Motion::Stopped][dice.index(2)];
        Some(Event::Motion { worker: child, motion })
    }
}
