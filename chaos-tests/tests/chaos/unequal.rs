//! One worker is slower than the others: shards move away from it while all train, and the state stays that of the plain loop.

use std::time::Duration;

use anyhow::Result;
use sardana::launch::Event;
use sardana::{Balance, Calm, GenerationEvent, JobEvent, Order, WorkerId};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Ended, Hands, Trial, members_of};

use crate::trial;

/// One worker takes four times as long. Shards can move after four heartbeats at the soonest, that is two seconds; with even ranges
/// these steps take several times as long.
fn unequal(workers: u32) -> Setup {
    Setup {
        shards: 24,
        batch: 48,
        samples: 96,
        steps: 120,
        // Longer than what a busy host adds to each.
        rest_us: 4_000,
        slower: 4,
        balance: Balance::After(Calm {
            time: Duration::from_millis(500),
            steps: 3,
        }),
        ..Setup::new(workers)
    }
}

/// How many shards each member computes since a boundary where no worker came or went, if there was one.
#[derive(Default)]
struct Ranges {
    members: Vec<WorkerId>,
    loads: Option<Vec<u32>>,
}

impl Ranges {
    fn see(&mut self, event: &Event) {
        let Event::Job(event) = event else { return };
        if let JobEvent::Generation(GenerationEvent::Switched { members, shards, .. }) = event
            && *members == self.members
        {
            self.loads = Some(shards.iter().map(|shards| shards.len()).collect());
        } else if let Some(members) = members_of(event) {
            (self.members, self.loads) = (members.to_vec(), None);
        }
    }

    /// Whether one member has at most half of what each other has.
    fn are_unequal(&self) -> bool {
        let mut loads = self.loads.clone().unwrap_or_default();
        loads.sort_unstable();
        matches!(loads.as_slice(), [least, next, ..] if *least >= 1 && 2 * least <= *next)
    }

    /// The member with most shards.
    fn fastest(&self) -> Option<WorkerId> {
        let loads = self.loads.as_ref()?;
        let most = loads.iter().zip(&self.members).max()?;
        Some(*most.1)
    }
}

async fn run(setup: Setup, mut strike: impl FnMut(&mut Hands<'_>, &Ranges)) -> Result<(Trial, Ended, bool)> {
    let trial = trial(setup)?;
    let (mut ranges, mut moved) = (Ranges::default(), false);
    let ended = trial
        .run(&[], |hands, event| {
            ranges.see(event);
            if ranges.are_unequal() {
                moved = true;
                strike(hands, &ranges);
            }
        })
        .await?;
    Ok((trial, ended, moved))
}

#[tokio::test]
async fn shards_move_and_each_gradient_is_computed_once() -> Result<()> {
    for workers in [2, 3] {
        let (trial, ended, moved) = run(unequal(workers), |_, _| {}).await?;
        let verdict = trial.judge(&ended)?;
        trial.demand(&ended, moved, "shards move away from the slow worker")?;
        let again = (verdict.summary.recomputed, verdict.summary.unknown);
        trial.demand(&ended, again == (0, 0), "nothing is computed again for it")?;
        trial.demand(&ended, ended.halts() == 0, "nobody is halted for it")?;
    }
    Ok(())
}

#[tokio::test]
async fn the_fast_worker_dies_once_it_has_most() -> Result<()> {
    let mut struck = false;
    let strike = |hands: &mut Hands<'_>, ranges: &Ranges| {
        if !struck && let Some(fastest) = ranges.fastest() {
            struck = true;
            hands.kill(fastest);
        }
    };
    let (trial, ended, moved) = run(unequal(3), strike).await?;
    let verdict = trial.judge(&ended)?;
    trial.demand(&ended, moved && ended.kills == 1, "it is killed after shards have moved")?;
    trial.demand(&ended, verdict.summary.unknown == 0, "its gradients are counted")
}

#[tokio::test]
async fn who_turns_it_off_keeps_even_ranges() -> Result<()> {
    let setup = Setup {
        balance: Balance::Off,
        steps: 40,
        ..unequal(2)
    };
    let (trial, ended, _) = run(setup, |_, _| {}).await?;
    trial.judge(&ended)?;
    let switched = |event: &JobEvent| matches!(event, JobEvent::Generation(GenerationEvent::Switched { .. }));
    trial.demand(&ended, ended.count(switched) == 0, "nothing moves")
}

#[tokio::test]
async fn in_fast_order_shards_move_as_well() -> Result<()> {
    let order = Order::Fast;
    let (trial, ended, moved) = run(Setup { order, ..unequal(2) }, |_, _| {}).await?;
    trial.judge(&ended)?;
    trial.demand(&ended, moved, "shards move away from the slow worker")
}
