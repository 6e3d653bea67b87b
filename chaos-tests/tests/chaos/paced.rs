//! A job that goes on, more and more slowly, until what a test waits for has happened: no worker needs to stand still for a joiner.

use anyhow::Result;
use sardana::launch::Event;
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Ended, Hands, Trial, reported};
use sardana_chaos_tests::verdict::Verdict;

use crate::trial;

/// A job on `workers` workers that takes up to half a minute, if it must: longer than the product waits for anything.
pub(crate) fn slow(workers: u32) -> Setup {
    Setup {
        steps: 240,
        gate_step: 4,
        ..Setup::new(workers)
    }
}

/// How a paced trial went.
pub(crate) struct Paced {
    pub(crate) trial: Trial,
    pub(crate) ended: Ended,
    pub(crate) verdict: Verdict,
}

impl Paced {
    /// Demands what a trial is about.
    pub(crate) fn demand(&self, holds: bool, what: &str) -> Result<()> {
        self.trial.demand(&self.ended, holds, what)
    }

    pub(crate) fn nobody_halts(&self) -> Result<()> {
        self.demand(self.ended.halts() == 0, "nobody halts")
    }
}

/// Runs `setup`: `strike` is called once, when step 3 was told, and `watch` at each event after it, until it says that enough has
/// happened, all faults among it; then the rest is trained at full speed.
pub(crate) async fn paced<S>(
    setup: Setup,
    faults: &str,
    strike: impl FnOnce(&mut Hands<'_>) -> S,
    mut watch: impl FnMut(&mut S, &mut Hands<'_>, &Event) -> bool,
) -> Result<Paced> {
    let trial = trial(setup)?.faults(faults.split_whitespace());
    let (mut strike, mut struck, mut enough) = (Some(strike), None, false);
    let ended = trial
        .run(&[Place::Pace], |hands, event| {
            if let Some(struck) = &mut struck {
                enough |= watch(struck, hands, event);
            } else if reported(event).is_some_and(|step| step >= 3)
                && let Some(strike) = strike.take()
            {
                struck = Some(strike(hands));
            }
            if enough && trial.fired() == trial.armed().len() {
                hands.open(Place::Pace);
            }
        })
        .await?;
    let verdict = trial.judge(&ended)?;
    Ok(Paced { trial, ended, verdict })
}
