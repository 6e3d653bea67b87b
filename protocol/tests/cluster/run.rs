//! One whole run, as numbers: what a property draws, and what replays it.
//!
//! A run that fails prints a line that replays it and tells its story, event by event:
//! ```text
//! SARDANA_CLUSTER_REPLAY="…" cargo test -p sardana-protocol --test cluster replay -- --nocapture
//! ```

use std::fmt;
use std::str::FromStr;

use sardana_protocol::membership::Summary;

use crate::world::{Chaos, Story, World};

/// The variable that holds the numbers of the run to replay.
pub(crate) const REPLAY: &str = "SARDANA_CLUSTER_REPLAY";

/// A cluster, and what it suffers before it heals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) workers: u32,
    pub(crate) shards: u32,
    pub(crate) steps: u64,
    pub(crate) chaos: Chaos,
    /// What it suffers after an operator has asked it to stop, if one does.
    pub(crate) stop: Option<Chaos>,
}

impl Run {
    /// Chaos, then healing; checks the law all the way.
    /// None if it was stopped where there was nothing to keep.
    pub(crate) fn play(self) -> Option<Summary> {
        self.play_with(Story::Untold)
    }

    /// The same, telling what happens.
    pub(crate) fn replay(self) -> Option<Summary> {
        self.play_with(Story::Told)
    }

    fn play_with(self, story: Story) -> Option<Summary> {
        let _on_failure = OnFailure(self);
        let mut world = World::new(self.seed, self.workers, self.shards, self.steps, story);
        world.suffer(self.chaos);
        if let Some(chaos) = self.stop {
            world.stop();
            world.suffer(chaos);
        }
        world.heal()
    }
}

/// Says how to replay a run that fails.
struct OnFailure(Run);

impl Drop for OnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to replay: {REPLAY}=\"{}\"", self.0);
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.seed, self.workers, self.shards, self.steps)?;
        [Some(self.chaos), self.stop].into_iter().flatten().try_for_each(|chaos| {
            let Chaos {
                events,
                kills,
                losses,
                cuts,
                drains,
                crashes,
            } = chaos;
            write!(f, " {events} {kills} {losses} {cuts} {drains} {crashes}")
        })
    }
}

impl FromStr for Run {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let numbers = words
            .split_whitespace()
            .map(|word| word.parse().map_err(|error| format!("{word:?} is no number: {error}")))
            .collect::<Result<Vec<u64>, String>>()?;
        let small = |number: u64| u32::try_from(number).map_err(|error| format!("{number} is too large: {error}"));
        let chaos = |numbers: &[u64]| match *numbers {
            [events, kills, losses, cuts, drains, crashes] => Ok(Chaos {
                events: small(events)?,
                kills: small(kills)?,
                losses: small(losses)?,
                cuts: small(cuts)?,
                drains: small(drains)?,
                crashes: small(crashes)?,
            }),
            _ => Err(format!(
                "expected seed, workers, shards, steps, then events, kills, losses, cuts, drains and crashes once or, with a stop \
                 between, twice; found {words:?}"
            )),
        };
        let (cluster, chaoses) = numbers.split_at_checked(4).unwrap_or((&[0; 4], &[]));
        let (first, second) = chaoses.split_at_checked(6).unwrap_or((chaoses, &[]));
        Ok(Self {
            seed: cluster[0],
            workers: small(cluster[1])?,
            shards: small(cluster[2])?,
            steps: cluster[3],
            chaos: chaos(first)?,
            stop: if second.is_empty() { None } else { Some(chaos(second)?) },
        })
    }
}
