//! One run with peers that lie, as the one number that replays it.
//!
//! ```text
//! SARDANA_SIEGE_REPLAY=… cargo test -p sardana-protocol --test cluster replay -- --nocapture
//! ```

use crate::world::{Story, World};

/// The variable that holds the seed of the run to replay.
pub(crate) const REPLAY: &str = "SARDANA_SIEGE_REPLAY";

/// As text the coordinator's machine is never longer than this, with as many workers as there are.
const COORDINATOR_BYTES: usize = 1 << 20;

/// A cluster, and who lies in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Siege {
    seed: u64,
    workers: u32,
    liars: u64,
    rarity: u64,
    steps: u64,
    others: Others,
}

/// Whether a depot lies, and an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    Honest,
    Lie,
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// With the right state.
    Well,
    /// The job failed, by the word of one that lies.
    Failed(String),
}

impl End {
    pub(crate) fn failure(&self) -> Option<&str> {
        match self {
            Self::Well => None,
            Self::Failed(reason) => Some(reason),
        }
    }
}

impl Siege {
    pub(crate) fn drawn(seed: u64) -> Self {
        let workers = 3 + u32::try_from(seed % 4).unwrap_or(0);
        Self {
            seed,
            workers,
            // The honest are always more.
            liars: 1 + (seed >> 8) % 2 * u64::from(workers > 4),
            rarity: [2, 5, 20, 80][usize::try_from((seed >> 16) % 4).unwrap_or(0)],
            steps: 10 + (seed >> 24) % 30,
            others: Others::Honest,
        }
    }

    /// With no worker that lies, but with a depot that does, and the agent of one worker.
    pub(crate) fn of_others(seed: u64) -> Self {
        Self {
            liars: 0,
            others: Others::Lie,
            ..Self::drawn(seed)
        }
    }

    pub(crate) fn play(self, story: Story) -> End {
        let _on_failure = OnFailure(self.seed);
        let Self {
            seed,
            workers,
            liars,
            rarity,
            steps,
            others,
        } = self;
        let mut world = World::besieged(seed, workers, liars, rarity, steps, story);
        if others == Others::Lie {
            world.others_lie();
        }
        let end = match world.outlive_the_liars() {
            Ok(_) => End::Well,
            Err(reason) => {
                let liars = world.liars.as_ref().expect("some lie");
                assert!(
                    liars.named_in(&reason),
                    "it failed by nobody's word who lies: {reason}, seed {seed}"
                );
                End::Failed(reason)
            }
        };
        assert!(
            world.largest > 0 && world.largest < COORDINATOR_BYTES,
            "{} bytes, seed {seed}",
            world.largest
        );
        end
    }
}

/// Says how to replay a run that fails.
struct OnFailure(u64);

impl Drop for OnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to replay: {REPLAY}={}", self.0);
        }
    }
}
