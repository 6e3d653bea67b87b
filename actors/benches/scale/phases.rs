//! What is measured: a loss, a join of many, a restore by all, a checkpoint, and all three in one go.

use std::num::NonZeroU32;

use sardana_protocol::checkpoint::{Every, Keep};
use sardana_protocol::limits::MAX_WORKERS;
use sardana_protocol::membership::Saves;

use super::crowd::{Cost, Crowd, Result};

/// Checkpoints that depots keep in the phases with some.
pub(crate) const KEPT: u32 = 500;

/// Rounds of heartbeats and ticks in which nothing else happens.
const IDLE: u32 = 50;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// All train; one of them ends, and the others form a generation.
    Lose,
    /// Half of the workers train; the other half come at once.
    Join,
    /// Half of the workers train; the others come one after the other, while the first of them still copy.
    Trickle,
    /// All come at once, and load a checkpoint.
    Restore,
    /// A checkpoint of all, on depots that keep many.
    Commit,
    /// Half load a checkpoint; while the other half join, the next checkpoint is due, and a tenth of the first half end.
    Storm,
    /// All train; nothing is said but heartbeats.
    Idle,
}

impl Phase {
    /// What it costs with so many workers.
    pub(crate) fn measure(self, workers: u32) -> Result<Cost> {
        match self {
            Self::Lose => lose(workers),
            Self::Join => join(workers),
            Self::Trickle => trickle(workers),
            Self::Restore => restore(workers),
            Self::Commit => commit(workers),
            Self::Storm => storm(workers),
            Self::Idle => idle(workers),
        }
    }
}

pub(crate) fn saves(every: u64) -> Result<Saves> {
    Ok(Saves {
        every: every.to_string().parse::<Every>()?,
        replicas: 2,
        keep: Keep {
            last: NonZeroU32::new(KEPT * 2).unwrap_or(NonZeroU32::MIN),
            every: None,
        },
    })
}

/// So many of them can be members.
fn members(workers: u32) -> usize {
    workers.min(MAX_WORKERS) as usize
}

/// `workers` train, and one update is applied.
fn trains(crowd: &mut Crowd, workers: u32) -> Result<()> {
    crowd.come(0..workers);
    crowd.until("the first generation", |heard| heard.members == members(workers))?;
    crowd.boundary()?;
    crowd.settle()?;
    crowd.cost = Cost::default();
    Ok(())
}

fn lose(workers: u32) -> Result<Cost> {
    let mut crowd = Crowd::new(workers, None);
    trains(&mut crowd, workers)?;
    crowd.end(0..1);
    crowd.until("a loss", |heard| heard.members == members(workers - 1))?;
    Ok(crowd.cost)
}

fn join(workers: u32) -> Result<Cost> {
    let half = workers / 2;
    let mut crowd = Crowd::new(half, None);
    trains(&mut crowd, half)?;
    crowd.come(half..workers);
    crowd.until("a join", |heard| heard.members == members(workers))?;
    Ok(crowd.cost)
}

fn trickle(workers: u32) -> Result<Cost> {
    let half = workers / 2;
    let mut crowd = Crowd::new(half, None);
    trains(&mut crowd, half)?;
    crowd.copies = false;
    for (round, worker) in (0..).zip(half..workers) {
        crowd.come(worker..worker + 1);
        crowd.settle()?;
        // So many come between two ticks.
        if round % (half / 20).max(1) == 0 {
            crowd.boundary()?;
            crowd.passes(round)?;
        }
    }
    crowd.copies = true;
    crowd.until("a join", |heard| heard.members == members(workers))?;
    Ok(crowd.cost)
}

fn restore(workers: u32) -> Result<Cost> {
    let mut crowd = Crowd::new(workers, Some(saves(1_000_000)?));
    crowd.depots_come(KEPT)?;
    crowd.cost = Cost::default();
    crowd.come(0..workers);
    crowd.until("a restore", |heard| heard.resumed > 0 && heard.members == members(workers))?;
    Ok(crowd.cost)
}

fn commit(workers: u32) -> Result<Cost> {
    // From the step of the newest checkpoint that is kept, it is due at the first boundary.
    let mut crowd = Crowd::new(workers, Some(saves(1)?));
    crowd.depots_come(KEPT)?;
    crowd.come(0..workers);
    crowd.until("a restore", |heard| heard.members == members(workers))?;
    crowd.cost = Cost::default();
    crowd.until("a checkpoint", |heard| heard.saved > 0)?;
    Ok(crowd.cost)
}

fn storm(workers: u32) -> Result<Cost> {
    let half = workers / 2;
    let mut crowd = Crowd::new(half, Some(saves(20)?));
    crowd.depots_come(KEPT)?;
    crowd.cost = Cost::default();
    crowd.come(0..half);
    crowd.until("a restore", |heard| heard.members == members(half))?;
    crowd.come(half..workers);
    crowd.settle()?;
    crowd.boundary()?;
    let gone = half / 10;
    crowd.end(0..gone);
    let left = members(workers - gone);
    crowd.until("a storm", |heard| heard.saved > 0 && heard.members == left)?;
    Ok(crowd.cost)
}

fn idle(workers: u32) -> Result<Cost> {
    let mut crowd = Crowd::new(workers, Some(saves(1_000_000)?));
    crowd.depots_come(KEPT)?;
    trains(&mut crowd, workers)?;
    (0..IDLE).try_for_each(|round| crowd.passes(round))?;
    Ok(crowd.cost)
}
