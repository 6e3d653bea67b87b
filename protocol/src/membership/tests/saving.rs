//! Checkpoints under way: who writes what, when a manifest is made, and what happens when somebody is lost meanwhile.

use std::num::{NonZeroU32, NonZeroU64};

use super::*;
use crate::checkpoint::{Condition, DepotId, Every, Head, Keep, ManifestId, ManifestKey, PieceHash};
use crate::limits::{LAST_SAVE_PATIENCE, SAVE_ATTEMPTS, SAVE_PATIENCE};
use crate::membership::{DepotEvent, Saves};
use crate::messages::{DepotMessage, Told};
use crate::state::share_hash;
use crate::words::JobId;

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
fn piece(step: u64, share: u32) -> PieceHash {
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
        condition: Condition::Whole,
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

    /// A depot comes, and tells what it keeps.
    pub(super) fn depot_comes(&mut self, depot: u64, host: &str, heads: Vec<Head>) -> Vec<String> {
        let (host, address) = (host.to_owned(), SocketAddr::from((Ipv4Addr::LOCALHOST, 2)));
        let mut words = self.depot(depot, DepotEvent::Arrived { host, address });
        let told = Told::All;
        words.extend(self.depot_says(depot, DepotMessage::Holds { heads, told }));
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
    fn copied(&mut self, step: u64) -> Vec<String> {
        let of = |share: u32| (share, share_hash(8, &[piece(step, share)]));
        let message = |_| WorkerMessage::Snapshotted {
            snapshot: snapshot(1, step),
            shares: vec![of(0), of(1)],
        };
        self.says(1, message(0));
        self.says(2, message(1))
    }

    /// A checkpoint is due at s2, and its snapshot is taken at `step`.
    fn saving(step: u64, config: Config) -> Self {
        let mut job = Self::saved(config);
        job.progress(1, 1, 2, &[]);
        for worker in [1, 2] {
            job.room_made(worker, 1);
        }
        job.copied(step);
        job
    }

    fn says_saved(&mut self, worker: u64, attempt: u32, share: u32, step: u64) -> Vec<String> {
        self.says_saved_with(worker, attempt, share, step, piece(step, share))
    }

    fn says_saved_with(&mut self, worker: u64, attempt: u32, share: u32, step: u64, piece: PieceHash) -> Vec<String> {
        let message = WorkerMessage::Saved {
            snapshot: snapshot(1, step),
            attempt,
            share,
            bytes: 8,
            description: vec![PieceHash::of(b"names")],
            start: 0,
            pieces: vec![piece],
            told: Told::All,
        };
        self.says(worker, message)
    }

    fn committed(&mut self, depot: u64, step: u64, depots: &[u64]) -> Vec<String> {
        let (snapshot, head) = (snapshot(1, step), head(step, depots));
        self.depot_says(depot, DepotMessage::Committed { snapshot, head })
    }

    fn not_saved(&mut self, worker: u64, attempt: u32, step: u64, depot: Option<u64>) -> Vec<String> {
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
fn about_saves(found: &[String]) -> Vec<String> {
    let about = |text: &&String| text.contains("save") || text.contains("commit") || text.contains("refused");
    found.iter().filter(about).cloned().collect()
}

#[test]
fn one_is_due_by_steps_and_commits_once_all_shares_and_then_all_manifests_are_durable() {
    let mut job = Job::saved(saved_config());
    assert_eq!(job.progress(1, 1, 1, &[]).iter().filter(|text| text.contains("serve")).count(), 0);
    let due = job.progress(1, 1, 2, &[]);
    assert_eq!(due, ["to w1: serve []", "to w2: serve []"], "members find room for a snapshot");
    job.room_made(1, 1);
    assert_eq!(job.room_made(2, 1), ["to w2: close g1.1 with snapshot"]);
    let orders = about_saves(&job.copied(3));
    assert_eq!(orders, ["to w1: save [0] of g1.1@s3 to [7, 8]", "to w2: save [1] of g1.1@s3 to [7, 8]"]);
    assert_eq!(job.says_saved(1, 1, 0, 3), Vec::<String>::new());
    assert_eq!(job.says_saved(2, 1, 1, 3), ["commit g1.1@s3 to [7, 8]"]);
    assert_eq!(job.committed(7, 3, &[7, 8]), Vec::<String>::new());
    let done = about_saves(&job.committed(8, 3, &[7, 8]));
    assert_eq!(done, ["to w1: save of g1.1@s3 over", "to w2: save of g1.1@s3 over", "saved s3 on 2 of 2"]);
    assert_eq!(job.membership.save_counts().committed, 1);
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
    assert_eq!(job.says_saved(1, 1, 1, 3), ["commit g1.1@s3 to [7, 8]"], "in whatever phase the ring is");
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
    assert!(found.contains(&"not saved s3: both holders of a share are gone".to_owned()), "{found:?}");
    assert!(found.contains(&"to w1: serve []".to_owned()), "the next snapshot is on its way: {found:?}");
}

#[test]
fn a_depot_that_dies_while_shares_are_written_is_done_without() {
    let mut job = Job::saving(3, saved_config());
    job.says_saved(1, 1, 0, 3);
    job.now += Duration::from_millis(1);
    let found = about_saves(&job.depot_goes(8));
    assert_eq!(found, ["to w1: save [0] of g1.1@s3 to [7]", "to w2: save [1] of g1.1@s3 to [7]"]);
    assert_eq!(job.says_saved(2, 1, 1, 3), Vec::<String>::new(), "of the first attempt");
    job.says_saved(2, 2, 1, 3);
    assert_eq!(job.says_saved(1, 2, 0, 3), ["commit g1.1@s3 to [7]"]);
    let found = about_saves(&job.committed(7, 3, &[7]));
    assert!(found.contains(&"saved s3 on 1 of 2".to_owned()), "people are told that it is on too few: {found:?}");
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
fn a_depot_that_comes_back_is_written_to_anew() {
    let mut job = Job::saving(3, saved_config());
    job.says_saved(1, 1, 0, 3);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 2));
    let host = "b".to_owned();
    job.now += Duration::from_millis(1);
    let found = about_saves(&job.depot(8, DepotEvent::Arrived { host, address }));
    assert_eq!(found[0], "to w1: save [0] of g1.1@s3 to [7]", "until it has told what it keeps");
}

#[test]
fn a_depot_that_refuses_is_done_without_until_the_next_checkpoint() {
    let mut job = Job::saving(3, saved_config());
    let found = about_saves(&job.not_saved(1, 1, 3, Some(8)));
    assert_eq!(found[0], "depot 8 refused: test");
    assert_eq!(found[1..].len(), 2);
    assert!(found[1..].iter().all(|text| text.ends_with("to [7]")), "{found:?}");
    job.says_saved(1, 2, 0, 3);
    job.says_saved(2, 2, 1, 3);
    let (snapshot, reason) = (snapshot(1, 3), "full".to_owned());
    let found = about_saves(&job.depot_says(7, DepotMessage::Refused { snapshot, reason }));
    let last = "not saved s3: no depot is there that could keep it".to_owned();
    assert!(found.contains(&"depot 7 refused: full".to_owned()) && found.contains(&last), "{found:?}");
    for worker in [1, 2] {
        job.room_made(worker, 1);
    }
    let orders = about_saves(&job.copied(4));
    assert_eq!(orders[0], "to w1: save [0] of g1.1@s4 to [7, 8]");
}

#[test]
fn pieces_that_are_not_those_that_were_copied_commit_nothing() {
    let mut job = Job::saving(3, saved_config());
    let found = job.says_saved_with(1, 1, 0, 3, piece(3, 9));
    let told = found.iter().find(|text| text.starts_with("not saved")).expect("it is given up");
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
        let shares = vec![(0, hash), (1, share_hash(0, &[]))];
        let snapshot = snapshot(1, 3);
        job.says(worker, WorkerMessage::Snapshotted { snapshot, shares });
    }
    let part = |share, start: u64, pieces: &[PieceHash], told| WorkerMessage::Saved {
        snapshot: snapshot(1, 3),
        attempt: 1,
        share,
        bytes: if share == 0 { 24 } else { 0 },
        description: vec![],
        start,
        pieces: pieces.to_vec(),
        told,
    };
    job.says(2, part(1, 0, &[], Told::All));
    job.says(1, part(0, 0, &pieces[..2], Told::More));
    // Said twice, as after a connection that broke.
    job.says(1, part(0, 0, &pieces[..2], Told::More));
    assert_eq!(job.says(1, part(0, 2, &pieces[2..], Told::All)), ["commit g1.1@s3 to [7, 8]"]);
}

#[test]
fn silence_of_all_begins_it_anew_and_it_is_given_up_in_the_end() {
    let mut job = Job::saving(3, saved_config());
    job.says(1, WorkerMessage::Saving {
        snapshot: snapshot(1, 3),
        attempt: 1,
    });
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

#[test]
fn two_depots_on_one_host_count_as_one() {
    let mut job = Job::saved(saved_config());
    job.depot_comes(9, "b", vec![]);
    job.progress(1, 1, 2, &[]);
    for worker in [1, 2] {
        job.room_made(worker, 1);
    }
    let orders = about_saves(&job.copied(3));
    assert_eq!(orders[0], "to w1: save [0] of g1.1@s3 to [7, 8]");
}

#[test]
fn what_has_expired_is_deleted_wherever_it_is_and_what_is_not_complete_does_not_count() {
    let mut job = Job::saved(saved_config());
    let both = |step| head(step, &[7, 8]);
    let damaged = Head {
        condition: Condition::Lacking,
        replicas: 1,
        ..both(9)
    };
    let told = Told::All;
    let heads = vec![both(2), both(4), both(6), damaged];
    let found = job.depot_says(7, DepotMessage::Holds { heads, told });
    assert_eq!(found, ["to 7: delete s2"], "one of two depots is enough of each");
    let heads = vec![both(2), both(4), both(6)];
    let found = job.depot_says(8, DepotMessage::Holds { heads, told });
    assert_eq!(found, ["to 7: delete s2", "to 8: delete s2"]);
    let key = both(2).key;
    job.depot_says(7, DepotMessage::Deleted { key });
    let found = job.depot_says(8, DepotMessage::Deleted { key });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn the_job_ends_only_once_its_last_state_is_saved() {
    let mut config = saved_config();
    config.steps = s(5);
    let mut job = Job::saved(config);
    job.progress(1, 1, 5, &[]);
    job.says(1, finished(1, 5, hash(5)));
    assert_eq!(about_saves(&job.says(2, finished(1, 5, hash(5)))), Vec::<String>::new());
    let orders = about_saves(&job.copied(5));
    assert_eq!(orders.len(), 2, "{orders:?}");
    job.passes(LAST_SAVE_PATIENCE + Duration::from_millis(1));
    job.says_saved(1, 1, 0, 5);
    job.says_saved(2, 1, 1, 5);
    job.committed(7, 5, &[7, 8]);
    let found = job.committed(8, 5, &[7, 8]);
    assert!(found.contains(&"saved s5 on 2 of 2".to_owned()), "{found:?}");
    assert!(found.iter().any(|text| text.starts_with("done at s5")), "{found:?}");
}

#[test]
fn the_last_state_is_saved_after_the_one_that_is_under_way() {
    let mut config = saved_config();
    config.steps = s(5);
    let mut job = Job::saving(3, config);
    job.progress(1, 1, 5, &[]);
    job.says(1, finished(1, 5, hash(5)));
    job.says(2, finished(1, 5, hash(5)));
    assert_eq!(about_saves(&job.copied(5)), Vec::<String>::new(), "one at a time");
    job.says_saved(1, 1, 0, 3);
    job.says_saved(2, 1, 1, 3);
    job.committed(7, 3, &[7, 8]);
    let found = job.committed(8, 3, &[7, 8]);
    assert!(!found.iter().any(|text| text.starts_with("done")), "{found:?}");
    let orders = about_saves(&job.passes(Duration::from_millis(100)));
    assert_eq!(orders, ["to w1: save [0] of g1.1@s5 to [7, 8]", "to w2: save [1] of g1.1@s5 to [7, 8]"]);
}

#[test]
fn a_job_that_is_stopped_saves_its_last_state_and_waits_no_longer_than_it_may() {
    let mut job = Job::saved(saved_config());
    job.progress(1, 1, 1, &[]);
    assert_eq!(words(&job.event(Event::StopRequested)), ["to w2: close g1.1 with stop"]);
    job.progress(1, 1, 2, &[]);
    job.says(1, finished(1, 2, hash(2)));
    let found = job.says(2, finished(1, 2, hash(2)));
    assert!(!found.iter().any(|text| text.starts_with("done")), "{found:?}");
    // No snapshot of it comes.
    job.now += LAST_SAVE_PATIENCE;
    let found = job.says(1, finished(1, 2, hash(2)));
    let told = |what: &str| found.iter().any(|text| text.starts_with(what));
    assert!(told("not saved s2") && told("done at s2"), "{found:?}");
    assert_eq!(job.membership.stage(), super::super::Stage::Done);
}
