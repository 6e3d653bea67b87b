//! A job that keeps checkpoints: what the tests of them have in common.

use std::num::{NonZeroU32, NonZeroU64};

use super::*;
use crate::checkpoint::{Condition, DepotId, Every, Head, Keep, ManifestId, ManifestKey, PieceHash, Placing};
use crate::membership::{DepotEvent, Saves};
use crate::messages::DepotMessage;
use crate::state::{StateSize, share_hash};
use crate::words::{Incarnation, JobId};

/// Every two steps, on two hosts, and the last two are kept.
pub(super) fn saved_config() -> Config {
    Config {
        steps: Step::new(100),
        saves: Some(Saves {
            every: Every::Steps(NonZeroU64::new(2).expect("not 0")),
            replicas: 2,
            keep: Keep {
                last: NonZeroU32::new(2).expect("not 0"),
                every: None,
            },
        }),
        ..config()
    }
}

pub(super) fn d(depot: u64) -> DepotId {
    DepotId::new(depot)
}

/// The only piece of share `share` of the state at `step`.
pub(super) fn piece(step: u64, share: u32) -> PieceHash {
    PieceHash::of(format!("{step} {share}").as_bytes())
}

/// A checkpoint of the state at `step` on these depots.
pub(super) fn head(step: u64, depots: &[u64]) -> Head {
    let snapshot = snapshot(1, step);
    let config = saved_config();
    Head {
        key: ManifestKey {
            step: s(step),
            id: ManifestId::of(format!("{step} {depots:?}").as_bytes()),
        },
        run: JobId::new([0; 16]),
        snapshot,
        task: config.task,
        build: config.build,
        replicas: 2,
        depots: depots.iter().copied().map(d).collect(),
        placing: placed(1),
        condition: Condition::Whole,
    }
}

/// The placing of this number in the first life of the coordinator.
pub(super) fn placed(number: u32) -> Placing {
    Placing {
        incarnation: Incarnation::new(1),
        number,
    }
}

/// The same, for a job whose last step is this one.
pub(super) fn saved_until(step: u64) -> Config {
    Config {
        steps: s(step),
        ..saved_config()
    }
}

impl Job {
    pub(super) fn depot(&mut self, depot: u64, event: DepotEvent) -> Vec<String> {
        let depot = d(depot);
        words(&self.event(Event::Depot { depot, event }))
    }

    pub(super) fn depot_says(&mut self, depot: u64, message: DepotMessage) -> Vec<String> {
        self.depot(depot, DepotEvent::Said(Box::new(message)))
    }

    /// A depot comes, and has yet to tell what it keeps.
    pub(super) fn arriving(&mut self, depot: u64, host: &str) -> Vec<String> {
        let (host, address) = (host.to_owned(), SocketAddr::from((Ipv4Addr::LOCALHOST, 2)));
        let arrived = DepotEvent::Arrived {
            host,
            certified: 1,
            address,
        };
        self.depot(depot, arrived)
    }

    /// A depot comes, and tells what it keeps.
    pub(super) fn depot_comes(&mut self, depot: u64, host: &str, heads: Vec<Head>) -> Vec<String> {
        let mut words = self.arriving(depot, host);
        words.extend(self.holds(depot, heads));
        words
    }

    /// A depot tells all that it keeps.
    pub(super) fn holds(&mut self, depot: u64, heads: Vec<Head>) -> Vec<String> {
        self.holds_unreadable(depot, heads, vec![])
    }

    /// A depot tells all that it keeps, and of these only the names.
    pub(super) fn holds_unreadable(&mut self, depot: u64, heads: Vec<Head>, unreadable: Vec<ManifestKey>) -> Vec<String> {
        let all = DepotMessage::Holds {
            heads,
            is_last: true,
            unreadable,
        };
        self.depot_says(depot, all)
    }

    /// A depot has deleted this.
    pub(super) fn deleted(&mut self, depot: u64, key: ManifestKey) -> Vec<String> {
        self.depot_says(depot, DepotMessage::Deleted { key })
    }

    /// A depot cannot make the checkpoint of `step` durable in this placing.
    pub(super) fn is_full(&mut self, depot: u64, step: u64, placing: Placing) -> Vec<String> {
        let (snapshot, reason) = (snapshot(1, step), "full".to_owned());
        self.depot_says(
            depot,
            DepotMessage::Refused {
                snapshot,
                placing,
                reason,
            },
        )
    }

    pub(super) fn depot_goes(&mut self, depot: u64) -> Vec<String> {
        let why = "reset".to_owned();
        self.depot(depot, DepotEvent::Lost { why })
    }

    /// Two workers train in g1, and the depots 7 and 8 are there, each on its own host.
    pub(super) fn saved(config: Config) -> Self {
        let mut job = Self::new(config);
        job.depot_comes(7, "a", vec![]);
        job.depot_comes(8, "b", vec![]);
        job.arrives(1, 0);
        job.arrives(2, 0);
        job.all_ready([1, 2], 1);
        job
    }

    /// Both have copied their shares of the state at `step`.
    pub(super) fn copied(&mut self, step: u64) -> Vec<String> {
        let copied = WorkerMessage::Snapshotted {
            snapshot: snapshot(1, step),
            shares: [0, 1].map(|share| (share, share_hash(8, &[piece(step, share)]))).to_vec(),
        };
        self.says(1, copied.clone());
        self.says(2, copied)
    }

    /// A checkpoint is due at s2, and its snapshot is taken at `step`.
    pub(super) fn saving(step: u64, config: Config) -> Self {
        let mut job = Self::saved(config);
        job.progress(1, 1, 2, &[]);
        job.both_make_room();
        job.copied(step);
        job
    }

    pub(super) fn says_saved(&mut self, worker: u64, attempt: u32, share: u32, step: u64) -> Vec<String> {
        self.says_saved_with(worker, attempt, share, step, piece(step, share))
    }

    pub(super) fn says_saved_with(
        &mut self,
        worker: u64,
        attempt: u32,
        share: u32,
        step: u64,
        piece: PieceHash,
    ) -> Vec<String> {
        let message = WorkerMessage::Saved {
            snapshot: snapshot(1, step),
            attempt,
            share,
            bytes: 8,
            description: vec![PieceHash::of(b"names")],
            state: StateSize { pieces: 2, bytes: 16 },
            start: 0,
            pieces: vec![piece],
            is_last: true,
        };
        self.says(worker, message)
    }

    /// Each of both workers has written its share. What is said to the second.
    pub(super) fn both_saved(&mut self, attempt: u32, step: u64) -> Vec<String> {
        self.says_saved(1, attempt, 0, step);
        self.says_saved(2, attempt, 1, step)
    }

    /// The manifest is durable on both depots. What is said to the second.
    pub(super) fn both_committed(&mut self, step: u64) -> Vec<String> {
        self.committed(7, step, &[7, 8]);
        self.committed(8, step, &[7, 8])
    }

    /// The job has come to its last step, and both workers say so. What is said to the second.
    pub(super) fn both_finish(&mut self, step: u64) -> Vec<String> {
        self.progress(1, 1, step, &[]);
        self.finishes(1, 1, step);
        self.finishes(2, 1, step)
    }

    pub(super) fn committed(&mut self, depot: u64, step: u64, depots: &[u64]) -> Vec<String> {
        // Of the placing that is under way, or of the first.
        let attempt = self.membership.checkpoints.attempt_on(depots);
        let head = Head {
            placing: placed(attempt.unwrap_or(1)),
            ..head(step, depots)
        };
        let snapshot = snapshot(1, step);
        self.depot_says(depot, DepotMessage::Committed { snapshot, head })
    }

    /// Both workers find that a depot cannot keep what it should.
    pub(super) fn refuses(&mut self, depot: u64, attempt: u32, step: u64) -> Vec<String> {
        self.not_saved(1, attempt, step, Some(depot));
        self.not_saved(2, attempt, step, Some(depot))
    }

    pub(super) fn not_saved(&mut self, worker: u64, attempt: u32, step: u64, depot: Option<u64>) -> Vec<String> {
        let message = WorkerMessage::NotSaved {
            snapshot: snapshot(1, step),
            attempt,
            depot: depot.map(d),
            reason: "test".to_owned(),
        };
        self.says(worker, message)
    }
}

/// What of `found` has to do with checkpoints.
pub(super) fn about_saves(found: &[String]) -> Vec<String> {
    let about = |text: &&String| text.contains("save") || text.contains("commit") || text.contains("refused");
    found.iter().filter(about).cloned().collect()
}
