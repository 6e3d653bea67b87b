//! Checkpoints under way: who writes what, when a manifest is made, and what happens when somebody is lost meanwhile.

use std::num::{NonZeroU32, NonZeroU64};

use super::*;
use crate::checkpoint::{Condition, DepotId, Every, Head, Keep, ManifestId, ManifestKey, PieceHash, Placing};
use crate::limits::{DEPOT_REST, DEPOT_REST_MOST, SAVE_ATTEMPTS, SAVE_PATIENCE};
use crate::membership::{DepotEvent, Saves};
use crate::messages::{DepotMessage, Told};
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

pub(super) fn holds(heads: Vec<Head>, told: Told) -> DepotMessage {
    let unreadable = Vec::new();
    DepotMessage::Holds { heads, told, unreadable }
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
        words.extend(self.depot_says(depot, holds(heads, Told::All)));
        words
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
        for worker in [1, 2] {
            job.arrives(worker, 0);
        }
        for worker in [1, 2] {
            job.ready(worker, 1);
        }
        job
    }

    /// Both have copied their shares of the state at `step`.
    pub(super) fn copied(&mut self, step: u64) -> Vec<String> {
        let of = |share: u32| (share, share_hash(8, &[piece(step, share)]));
        let message = |_| WorkerMessage::Snapshotted {
            snapshot: snapshot(1, step),
            shares: vec![of(0), of(1)],
        };
        self.says(1, message(0));
        self.says(2, message(1))
    }

    /// A checkpoint is due at s2, and its snapshot is taken at `step`.
    pub(super) fn saving(step: u64, config: Config) -> Self {
        let mut job = Self::saved(config);
        job.progress(1, 1, 2, &[]);
        for worker in [1, 2] {
            job.room_made(worker, 1);
        }
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
            told: Told::All,
        };
        self.says(worker, message)
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

/// Those of `found` that have to do with checkpoints.
pub(super) fn about_saves(found: &[String]) -> Vec<String> {
    let about = |text: &&String| text.contains("save") || text.contains("commit") || text.contains("refused");
    found.iter().filter(about).cloned().collect()
}

#[test]
fn one_is_due_by_steps_and_commits_once_all_shares_and_then_all_manifests_are_durable() {
    let mut job = Job::saved(saved_config());
    assert_eq!(
        job.progress(1, 1, 1, &[])
            .iter()
            .filter(|text| text.contains("serve"))
            .count(),
        0
    );
    let due = job.progress(1, 1, 2, &[]);
    assert_eq!(
        due,
        ["to w1: serve []", "to w2: serve []"],
        "members find room for a snapshot"
    );
    job.room_made(1, 1);
    assert_eq!(job.room_made(2, 1), ["to w2: close g1.1 with snapshot"]);
    let orders = about_saves(&job.copied(3));
    assert_eq!(
        orders,
        ["to w1: save [0] of g1.1@s3 to [7, 8]", "to w2: save [1] of g1.1@s3 to [7, 8]"]
    );
    assert_eq!(job.says_saved(1, 1, 0, 3), Vec::<String>::new());
    assert_eq!(job.says_saved(2, 1, 1, 3), ["commit g1.1@s3 to [7, 8]"]);
    assert_eq!(job.committed(7, 3, &[7, 8]), Vec::<String>::new());
    let done = about_saves(&job.committed(8, 3, &[7, 8]));
    assert_eq!(
        done,
        [
            "to w1: save of g1.1@s3 over",
            "to w2: save of g1.1@s3 over",
            "saved s3 on 2 of 2"
        ]
    );
    let counts = job.membership.save_counts();
    assert_eq!((counts.committed, counts.merged, counts.given_up), (1, 0, 0));
}

#[test]
fn what_becomes_due_while_one_is_written_is_one_with_the_next_and_counted() {
    let mut job = Job::saving(3, saved_config());
    // Four more become due, and none of them is begun.
    for step in 4..=11 {
        assert_eq!(
            about_saves(&job.progress(1, 1, step, &[])),
            Vec::<String>::new(),
            "one is under way"
        );
    }
    let write = |job: &mut Job, step, attempt| {
        job.says_saved(1, attempt, 0, step);
        job.says_saved(2, attempt, 1, step);
        job.committed(7, step, &[7, 8]);
        job.committed(8, step, &[7, 8]);
        let counts = job.membership.save_counts();
        (counts.committed, counts.merged, counts.largest_lag)
    };
    assert_eq!(write(&mut job, 3, 1), (1, 0, 8), "training was eight steps further");
    job.progress(1, 1, 12, &[]);
    job.room_made(1, 1);
    job.room_made(2, 1);
    assert_eq!(about_saves(&job.copied(12)).len(), 2);
    assert_eq!(write(&mut job, 12, 2), (2, 4, 8), "s4, s6, s8 and s10 are one with s12");
}

#[test]
fn one_is_due_by_time() {
    let mut config = saved_config();
    let saves = config.saves.as_mut().expect("it is saved");
    saves.every = Every::Time(Duration::from_secs(60));
    let mut job = Job::saved(config);
    let asks = |found: Vec<String>| found.iter().any(|text| text == "to w1: serve []");
    job.now += Duration::from_secs(59);
    assert!(!asks(job.progress(1, 1, 5, &[])));
    job.now += Duration::from_secs(1);
    assert!(asks(job.progress(1, 1, 6, &[])));
}

#[test]
fn the_other_holder_writes_what_a_dead_one_has_not() {
    let mut job = Job::saving(3, saved_config());
    let found = about_saves(&job.dies(2, 3));
    assert_eq!(found, ["to w1: save [0, 1] of g1.1@s3 to [7, 8]"]);
    job.says_saved(1, 1, 0, 3);
    assert_eq!(
        job.says_saved(1, 1, 1, 3),
        ["commit g1.1@s3 to [7, 8]"],
        "in whatever phase the ring is"
    );
}

#[test]
fn who_is_cut_off_from_a_depot_lets_another_write_to_it() {
    let mut job = Job::saving(3, saved_config());
    let found = about_saves(&job.not_saved(1, 1, 3, Some(8)));
    assert_eq!(
        found,
        [
            "to w1: save [] of g1.1@s3 to [7, 8]",
            "to w2: save [0, 1] of g1.1@s3 to [7, 8]"
        ]
    );
    assert_eq!(job.says_saved(1, 1, 0, 3), Vec::<String>::new(), "it was not asked any more");
    job.says_saved(2, 1, 0, 3);
    assert_eq!(job.says_saved(2, 1, 1, 3), ["commit g1.1@s3 to [7, 8]"]);
    job.committed(7, 3, &[7, 8]);
    assert!(job.committed(8, 3, &[7, 8]).contains(&"saved s3 on 2 of 2".to_owned()));
    assert_eq!(targets(&job), [7, 8], "the depot is not to blame");
    // The other has nothing of it any more: it is done without that depot.
    let mut job = Job::saving(3, saved_config());
    job.not_saved(1, 1, 3, Some(8));
    let found = about_saves(&job.not_saved(2, 1, 3, None));
    assert_eq!(
        found[0],
        "depot 8 refused: the only workers that have a share cannot reach it"
    );
    assert_eq!(found[1], "to w1: save [0, 1] of g1.1@s3 to [7]");
}

#[test]
fn a_depot_that_does_not_say_whether_a_manifest_is_durable_is_done_without() {
    let mut job = Job::saving(3, saved_config());
    job.says_saved(1, 1, 0, 3);
    job.says_saved(2, 1, 1, 3);
    job.committed(7, 3, &[7, 8]);
    job.now += SAVE_PATIENCE;
    job.progress(1, 1, 2, &[]);
    job.progress(2, 1, 2, &[]);
    let found = about_saves(&words(&job.event(Event::Tick)));
    assert!(found[0].starts_with("depot 8 refused: it has not said for 30 s"), "{found:?}");
    assert!(found[1..].iter().all(|text| text.ends_with("to [7]")), "{found:?}");
    job.says_saved(1, 2, 0, 3);
    job.says_saved(2, 2, 1, 3);
    assert!(job.committed(7, 3, &[7]).contains(&"saved s3 on 1 of 2".to_owned()));
}

fn targets(job: &Job) -> Vec<u64> {
    let targets = job.membership.checkpoints.targets(&job.membership.facts());
    targets.iter().map(|one| one.depot.get()).collect()
}

#[test]
fn a_depot_that_refused_is_done_without_for_a_while_but_not_for_the_last_checkpoint() {
    let mut job = Job::saving(3, saved_config());
    job.refuses(8, 1, 3);
    job.says_saved(1, 2, 0, 3);
    job.says_saved(2, 2, 1, 3);
    assert!(job.committed(7, 3, &[7]).contains(&"saved s3 on 1 of 2".to_owned()));
    assert_eq!(targets(&job), [7]);
    job.progress(1, 1, 4, &[]);
    assert_eq!(targets(&job), [7]);
    let stops = job.event(Event::StopRequested);
    assert_eq!(targets(&job), [7, 8], "it is tried once more: {:?}", words(&stops));

    let mut job = Job::saving(3, saved_config());
    job.refuses(8, 1, 3);
    job.now += DEPOT_REST;
    job.event(Event::Tick);
    assert_eq!(targets(&job), [7], "it is not asked twice for one checkpoint");
    job.says_saved(1, 2, 0, 3);
    job.says_saved(2, 2, 1, 3);
    job.committed(7, 3, &[7]);
    assert_eq!(targets(&job), [7, 8]);
}

#[test]
fn where_all_depots_refuse_nobody_copies_anything_until_they_have_rested() {
    let mut job = Job::saving(3, saved_config());
    job.refuses(8, 1, 3);
    let found = job.refuses(7, 2, 3);
    assert!(
        found.contains(&"not saved s3: no checkpoint actor is there that could keep it".to_owned()),
        "{found:?}"
    );
    assert!(!found.iter().any(|text| text.contains("serve")), "{found:?}");
    job.now += DEPOT_REST;
    let found = words(&job.event(Event::Tick));
    assert!(found.contains(&"to w1: serve []".to_owned()), "{found:?}");
}

#[test]
fn a_depot_rests_longer_each_time_up_to_a_limit_and_is_as_new_once_it_has_committed() {
    let mut job = Job::saved(saved_config());
    let mut rest = DEPOT_REST;
    for _ in 0..40 {
        let now = job.now;
        assert_eq!(job.membership.checkpoints.fails(d(8), now), now + rest);
        rest = (rest * 2).min(DEPOT_REST_MOST);
    }
    job.committed(8, 3, &[8]);
    assert_eq!(job.membership.checkpoints.failures_of(d(8)), 0);
}

#[test]
fn what_a_dead_one_has_written_counts() {
    let mut job = Job::saving(3, saved_config());
    job.says_saved(2, 1, 1, 3);
    job.dies(2, 3);
    assert_eq!(job.says_saved(1, 1, 0, 3), ["commit g1.1@s3 to [7, 8]"]);
}

#[test]
fn without_both_holders_of_a_share_it_is_given_up_and_due_again() {
    let mut job = Job::saving(3, saved_config());
    job.not_saved(1, 1, 3, None);
    let found = job.not_saved(2, 1, 3, None);
    assert!(
        found.contains(&"not saved s3: both holders of a share are gone".to_owned()),
        "{found:?}"
    );
    assert!(
        found.contains(&"to w1: serve []".to_owned()),
        "the next snapshot is on its way: {found:?}"
    );
}

#[test]
fn a_depot_that_dies_while_shares_are_written_is_done_without() {
    let mut job = Job::saving(3, saved_config());
    job.says_saved(1, 1, 0, 3);
    job.now += Duration::from_millis(1);
    let found = about_saves(&job.depot_goes(8));
    assert_eq!(
        found,
        ["to w1: save [0] of g1.1@s3 to [7]", "to w2: save [1] of g1.1@s3 to [7]"]
    );
    assert_eq!(job.says_saved(2, 1, 1, 3), Vec::<String>::new(), "of the first attempt");
    job.says_saved(2, 2, 1, 3);
    assert_eq!(job.says_saved(1, 2, 0, 3), ["commit g1.1@s3 to [7]"]);
    let found = about_saves(&job.committed(7, 3, &[7]));
    assert!(
        found.contains(&"saved s3 on 1 of 2".to_owned()),
        "people are told that it is on too few: {found:?}"
    );
}

#[test]
fn a_depot_that_dies_while_the_manifest_is_written_is_done_without() {
    let mut job = Job::saving(3, saved_config());
    job.says_saved(1, 1, 0, 3);
    job.says_saved(2, 1, 1, 3);
    job.committed(8, 3, &[7, 8]);
    job.now += Duration::from_millis(1);
    let found = about_saves(&job.depot_goes(8));
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(job.committed(7, 3, &[7, 8]), Vec::<String>::new(), "of the first attempt");
    job.says_saved(1, 2, 0, 3);
    job.says_saved(2, 2, 1, 3);
    let found = about_saves(&job.committed(7, 3, &[7]));
    assert!(found.contains(&"saved s3 on 1 of 2".to_owned()), "{found:?}");
}

#[test]
fn pieces_that_are_not_those_that_were_copied_are_written_by_another_holder_and_commit_nothing() {
    let mut job = Job::saving(3, saved_config());
    let found = about_saves(&job.says_saved_with(1, 1, 0, 3, piece(3, 9)));
    assert_eq!(found, ["to w2: save [0, 1] of g1.1@s3 to [7, 8]"]);
    let found = job.says_saved_with(2, 1, 0, 3, piece(3, 9));
    let told = found
        .iter()
        .find(|text| text.starts_with("not saved"))
        .expect("it is given up");
    assert!(told.contains("with other bytes than it had copied"), "{told}");
    assert!(!found.iter().any(|text| text.starts_with("commit")));
}

#[test]
fn a_share_in_parts_is_put_together() {
    let mut job = Job::saved(saved_config());
    job.progress(1, 1, 2, &[]);
    for worker in [1, 2] {
        job.room_made(worker, 1);
    }
    let pieces = [piece(3, 0), piece(3, 1), piece(3, 2)];
    let hash = share_hash(24, &pieces);
    for worker in [1, 2] {
        let shares = vec![(0, hash), (1, hash)];
        let snapshot = snapshot(1, 3);
        job.says(worker, WorkerMessage::Snapshotted { snapshot, shares });
    }
    let part = |share, start: u64, pieces: &[PieceHash], told| WorkerMessage::Saved {
        snapshot: snapshot(1, 3),
        attempt: 1,
        share,
        bytes: 24,
        description: vec![],
        state: StateSize { pieces: 6, bytes: 48 },
        start,
        pieces: pieces.to_vec(),
        told,
    };
    job.says(2, part(1, 0, &pieces, Told::All));
    job.says(1, part(0, 0, &pieces[..2], Told::More));
    // Said twice, as after a connection that broke.
    job.says(1, part(0, 0, &pieces[..2], Told::More));
    assert_eq!(job.says(1, part(0, 2, &pieces[2..], Told::All)), ["commit g1.1@s3 to [7, 8]"]);
}

#[test]
fn silence_of_all_begins_it_anew_and_it_is_given_up_in_the_end() {
    let mut job = Job::saving(3, saved_config());
    job.says(
        1,
        WorkerMessage::Saving {
            snapshot: snapshot(1, 3),
            attempt: 1,
        },
    );
    let mut orders = 0;
    for _ in 0..SAVE_ATTEMPTS {
        job.now += SAVE_PATIENCE;
        // They live, and train.
        job.progress(1, 1, 2, &[]);
        job.progress(2, 1, 2, &[]);
        let found = words(&job.event(Event::Tick));
        orders += found.iter().filter(|text| text.starts_with("to w1: save [0]")).count();
        if found.iter().any(|text| text == "not saved s3: it failed time and again") {
            assert!(orders > 1);
            return;
        }
    }
    panic!("it was never given up, after {orders} orders");
}
