//! GEN-2: ranks are dense and unique; shard segments are contiguous, disjoint, and cover 0..K; one per worker, except in a retry.
//!
//! No order tells of all: they are laid side by side as they go out.

use std::collections::{BTreeMap, BTreeSet};

use sardana_protocol::messages::{Form, MembersDigest};
use sardana_protocol::plan::{HopEnd, HopId, Part};
use sardana_protocol::words::{Generation, Rank, WorkerId};

use super::{Held, Law};

/// The orders of the generation that was told of last.
#[derive(Debug, Default)]
pub(super) struct Orders {
    generation: Generation,
    /// By rank, until all are there and were looked at.
    told: BTreeMap<Rank, (WorkerId, Form)>,
    whole: bool,
    /// The members of the generation before.
    before: BTreeSet<WorkerId>,
}

impl Law {
    /// An order for a generation goes out to a worker.
    pub(super) fn well_formed(&mut self, worker: WorkerId, form: &Form) -> Held {
        if self.orders.generation != form.generation {
            let Orders {
                generation, told, whole, ..
            } = &self.orders;
            let (before, complete) = (*generation, *whole || told.is_empty());
            self.check("GEN-2, all orders", complete, || {
                format!("not all members of {before} were told their places")
            })?;
            let before = self.orders.told.values().map(|(worker, _)| *worker).collect();
            self.orders = Orders {
                generation: form.generation,
                before,
                ..Orders::default()
            };
        }
        let before = self.orders.told.insert(form.rank, (worker, form.clone()));
        // A generation that is prepared begins at whatever step the trailer comes at.
        let prepared = self.planned.0 == form.generation;
        let same = before.is_none_or(|(other, mut before)| {
            before.step = if prepared { form.step } else { before.step };
            other == worker && says_the_same(before, form)
        });
        let holds = same && self.can_be_executed(form);
        self.check("GEN-2, one order", holds, || format!("{worker} is told {form:?}"))?;
        self.lay_side_by_side(form.world_size)
    }

    fn can_be_executed(&self, form: &Form) -> bool {
        let executable = |part: &Part| {
            let checked = part.check(self.order, form.rank, form.world_size, self.shards);
            checked.is_ok() && part.peers().into_iter().all(|rank| form.peer(rank).is_some())
        };
        executable(&form.first) && executable(&form.steady) && form.steady.shards().len() <= 1
    }

    /// Once the orders for all ranks are there, they fit each other.
    fn lay_side_by_side(&mut self, world_size: u32) -> Held {
        let Orders { told, whole, before, .. } = &mut self.orders;
        if *whole || told.len() < world_size as usize {
            return Ok(());
        }
        *whole = make_one_generation(told, world_size, self.shards);
        let heirs = !before.is_empty() && told.values().all(|(worker, _)| !before.contains(worker));
        self.doubts.inherited += u64::from(heirs);
        let (holds, told) = (*whole, told.clone());
        self.check("GEN-2, all orders", holds, || {
            format!("these orders do not fit each other: {told:?}")
        })
    }
}

/// Whether an order that is said again says the same. How much was reported, and whether the job is to end, may be news.
fn says_the_same(before: Form, form: &Form) -> bool {
    let news = Form {
        report_from: form.report_from,
        stop_at: form.stop_at,
        ..before
    };
    news == *form
}

fn make_one_generation(told: &BTreeMap<Rank, (WorkerId, Form)>, world_size: u32, shards: u32) -> bool {
    let forms = || told.values().map(|(_, form)| form);
    let ranks = told.keys().copied().eq((0..world_size).map(Rank::new));
    let workers: BTreeSet<WorkerId> = told.values().map(|(worker, _)| *worker).collect();
    let digest = MembersDigest::of(told.values().map(|(worker, _)| *worker));
    let named = |form: &Form| {
        let mut peers = form.peers.iter();
        let right = peers.all(|peer| told.get(&peer.rank).is_some_and(|(worker, _)| *worker == peer.member.worker));
        right && form.digest == digest && form.world_size == world_size
    };
    ranks
        && workers.len() == world_size as usize
        && forms().all(named)
        && covers(shards, forms().map(|form| &form.first))
        && covers(shards, forms().map(|form| &form.steady))
        && meet(forms().map(|form| (form.rank, &form.first)))
        && meet(forms().map(|form| (form.rank, &form.steady)))
}

/// Whether each shard is in exactly one part.
fn covers<'a>(shards: u32, parts: impl Iterator<Item = &'a Part>) -> bool {
    let mut runs: Vec<_> = parts.flat_map(Part::shards).collect();
    runs.sort_unstable();
    let end = runs
        .into_iter()
        .try_fold(0, |next, run| (run.start() == next).then_some(run.end()));
    end == Some(shards)
}

/// Whether each hop has two ends that name each other.
fn meet<'a>(parts: impl Iterator<Item = (Rank, &'a Part)>) -> bool {
    let mut senders: BTreeMap<HopId, (Rank, Rank)> = BTreeMap::new();
    let mut receivers = BTreeMap::new();
    let mut once = true;
    for (rank, part) in parts {
        let (onwards, backwards) = part.ends();
        for HopEnd { hop, peer } in onwards {
            once &= senders.insert(hop, (rank, peer)).is_none();
        }
        for HopEnd { hop, peer } in backwards {
            once &= receivers.insert(hop, (peer, rank)).is_none();
        }
    }
    once && senders == receivers
}
