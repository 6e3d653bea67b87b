//! Depots that come, go, refuse, and keep more than they should.

use super::checkpointed::{about_saves, head, holds, placed, saved_config};
use super::*;
use crate::checkpoint::{Condition, Head, ManifestId, ManifestKey, Placing};
use crate::limits::{DEPOT_GONE, DEPOT_REST, DEPOTS_SETTLE};
use crate::membership::DepotEvent;
use crate::messages::{DepotMessage, Told};

#[test]
fn a_depot_that_comes_back_is_written_to_anew() {
    let mut job = Job::saving(3, saved_config());
    job.says_saved(1, 1, 0, 3);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 2));
    let host = "b".to_owned();
    job.now += Duration::from_millis(1);
    let found = about_saves(&job.depot(
        8,
        DepotEvent::Arrived {
            host,
            certified: 1,
            address,
        },
    ));
    assert_eq!(
        found[0], "to w1: save [0] of g1.1@s3 to [7]",
        "until it has told what it keeps"
    );
}

#[test]
fn a_depot_that_refuses_is_done_without_until_a_later_checkpoint() {
    let mut job = Job::saving(3, saved_config());
    job.not_saved(1, 1, 3, Some(8));
    let found = about_saves(&job.not_saved(2, 1, 3, Some(8)));
    assert_eq!(found[0], "depot 8 refused: test");
    assert_eq!(found[1..].len(), 2);
    assert!(found[1..].iter().all(|text| text.ends_with("to [7]")), "{found:?}");
    job.says_saved(1, 2, 0, 3);
    job.says_saved(2, 2, 1, 3);
    let (snapshot, reason) = (snapshot(1, 3), "full".to_owned());
    let found = about_saves(&job.depot_says(
        7,
        DepotMessage::Refused {
            snapshot,
            placing: placed(2),
            reason,
        },
    ));
    let last = "not saved s3: no checkpoint actor is there that could keep it".to_owned();
    assert!(
        found.contains(&"depot 7 refused: full".to_owned()) && found.contains(&last),
        "{found:?}"
    );
    job.now += DEPOT_REST;
    job.event(Event::Tick);
    for worker in [1, 2] {
        job.room_made(worker, 1);
    }
    let orders = about_saves(&job.copied(4));
    assert_eq!(orders[0], "to w1: save [0] of g1.1@s4 to [7, 8]");
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
    let found = job.depot_says(7, holds(heads, told));
    assert_eq!(found, ["to 7: delete s2"], "one of two depots is enough of each");
    let heads = vec![both(2), both(4), both(6)];
    let found = job.depot_says(8, holds(heads, told));
    assert_eq!(found, ["to 7: delete s2", "to 8: delete s2"]);
    let key = both(2).key;
    job.depot_says(7, DepotMessage::Deleted { key });
    let found = job.depot_says(8, DepotMessage::Deleted { key });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_checkpoint_on_too_few_hosts_is_placed_on_those_that_come() {
    let mut job = Job::new(saved_config());
    job.depot_comes(7, "a", vec![]);
    job.arrives(1, 0);
    job.arrives(2, 0);
    let (heads, told) = (vec![head(2, &[7])], Told::All);
    job.depot_says(7, holds(heads, told));
    job.passes(DEPOTS_SETTLE);
    let fetches = |found: &[String]| {
        found
            .iter()
            .filter(|text| text.contains("fetch"))
            .cloned()
            .collect::<Vec<_>>()
    };
    job.depot_comes(8, "b", vec![]);
    assert_eq!(
        fetches(&job.passes(Duration::from_secs(1))),
        Vec::<String>::new(),
        "others may be about to come"
    );
    let found = job.passes(DEPOTS_SETTLE);
    assert_eq!(fetches(&found), ["to 7: fetch s2", "to 8: fetch s2"]);
    assert!(!found.iter().any(|text| text.contains("delete")), "{found:?}");
    job.committed(7, 2, &[7, 8]);
    let found = job.committed(8, 2, &[7, 8]);
    assert_eq!(found, ["saved s2 on 2 of 2", "to 7: delete s2"]);
    let key = head(2, &[7]).key;
    job.depot_says(7, DepotMessage::Deleted { key });
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)), Vec::<String>::new());
}

#[test]
fn what_a_depot_that_is_gone_for_long_had_is_placed_on_others() {
    let mut job = Job::saved(saved_config());
    let (heads, told) = (vec![head(2, &[7, 9])], Told::All);
    job.depot_says(7, holds(heads, told));
    let fetches = |found: &[String]| found.iter().filter(|text| text.contains("fetch")).count();
    job.passes(DEPOTS_SETTLE);
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)), 0, "it may only start again");
    assert_eq!(fetches(&job.passes(DEPOT_GONE)), 2);
    let (snapshot, reason) = (snapshot(1, 2), "full".to_owned());
    job.depot_says(
        8,
        DepotMessage::Refused {
            snapshot,
            placing: placed(2),
            reason,
        },
    );
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)), 0, "it is tried again, but not at once");
    assert_eq!(fetches(&job.passes(DEPOT_GONE)), 2);
}

/// There may be thousands, and ten ticks a second.
#[test]
fn checkpoints_of_which_nothing_was_told_are_not_looked_at_again_with_each_tick() {
    const KEPT: u64 = 2;
    let mut job = Job::saved(saved_config());
    let looked_at = |job: &mut Job, ticks: u32| {
        for _ in 0..ticks {
            job.passes(Duration::from_millis(100));
        }
        job.membership.checkpoints.take_looked_at()
    };
    let heads = || (1..=KEPT).map(|step| head(step, &[7, 8])).collect();
    for depot in [7, 8] {
        job.depot_says(depot, holds(heads(), Told::All));
    }
    job.passes(DEPOTS_SETTLE);
    let both = usize::try_from(KEPT).unwrap();
    assert_eq!(job.membership.checkpoints.take_looked_at(), both, "once they have settled");
    assert_eq!(looked_at(&mut job, 100), 0, "nothing was told since");
    job.depot_says(8, holds(heads(), Told::All));
    assert_eq!(looked_at(&mut job, 100), both, "once more: a depot has told something");
    job.passes(DEPOT_GONE);
    assert_eq!(
        looked_at(&mut job, 100),
        both,
        "once more: one that is gone is waited for no longer"
    );
}

#[test]
fn of_two_manifests_of_one_snapshot_the_one_on_more_depots_is_kept() {
    let mut job = Job::saved(saved_config());
    let told = Told::All;
    let heads = vec![head(2, &[7]), head(2, &[7, 8])];
    assert_eq!(
        job.depot_says(7, holds(heads, told)).len(),
        1,
        "one of them, while both are on one"
    );
    let mut job = Job::saved(saved_config());
    let heads = vec![head(2, &[7, 8])];
    job.depot_says(8, holds(heads, told));
    let heads = vec![head(2, &[7]), head(2, &[7, 8])];
    let found = job.depot_says(7, holds(heads, told));
    assert_eq!(found, ["to 7: delete s2"]);
}

#[test]
fn of_two_manifests_of_one_snapshot_the_one_that_survives_more_is_kept() {
    // Committed on two hosts, after the third was lost that it was to be on: whatever the two are called.
    for name in 0..8 {
        let mut job = Job::saved(saved_config());
        let first = Head {
            key: ManifestKey {
                id: ManifestId::of(&[name]),
                ..head(2, &[]).key
            },
            ..head(2, &[7, 8, 9])
        };
        let told = Told::All;
        job.depot_says(7, holds(vec![first.clone(), head(2, &[7, 8])], told));
        job.depot_says(8, holds(vec![first.clone(), head(2, &[7, 8])], told));
        assert_eq!(job.membership.checkpoints.replaced_checkpoints(), [first.key]);
        assert_eq!(job.membership.checkpoints.kept_checkpoints(), [&head(2, &[7, 8])]);
    }
}

#[test]
fn what_is_placed_anew_is_something_new_each_time_also_on_the_same_hosts() {
    fn placings(orders: &[Command]) -> Vec<Placing> {
        let placing = |command: &Command| {
            if let Command::Order { order, .. } = command
                && let DepotOrder::Fetch { placing, .. } = order.as_ref()
            {
                return Some(*placing);
            }
            None
        };
        orders.iter().filter_map(placing).collect()
    }
    let mut job = Job::saved(saved_config());
    let by_hand = Head {
        placing: Placing::BY_HAND,
        ..head(2, &[7])
    };
    job.depot_says(7, holds(vec![by_hand], Told::All));
    let mut last = Placing::BY_HAND;
    for _ in 0..3 {
        job.now += DEPOTS_SETTLE;
        let found = placings(&job.event(Event::Tick));
        assert_eq!(found.len(), 2, "both are to have it");
        assert!(found[0] > last && found[0] == found[1], "{found:?} after {last:?}");
        last = found[0];
        let (snapshot, placing, reason) = (snapshot(1, 2), last, "full".to_owned());
        job.depot_says(
            8,
            DepotMessage::Refused {
                snapshot,
                placing,
                reason,
            },
        );
    }
}

#[test]
fn what_cannot_be_read_is_deleted_once_it_would_have_expired() {
    let mut job = Job::saved(saved_config());
    let both = |step| head(step, &[7, 8]);
    job.depot_says(7, holds(vec![both(4), both(6)], Told::All));
    let (heads, told) = (vec![both(6)], Told::All);
    let unreadable = vec![both(2).key, both(4).key, both(8).key];
    let found = job.depot_says(8, DepotMessage::Holds { heads, told, unreadable });
    assert_eq!(
        found,
        ["to 8: delete s2"],
        "what is newer stays where people find it, and what others have is kept"
    );
    let key = both(2).key;
    assert_eq!(job.depot_says(8, DepotMessage::Deleted { key }), Vec::<String>::new());
    assert_eq!(
        job.depot_says(7, holds(vec![both(4), both(6)], Told::All)),
        Vec::<String>::new()
    );
}

#[test]
fn what_is_being_deleted_is_not_placed_anew() {
    let mut job = Job::saved(saved_config());
    job.passes(DEPOT_GONE);
    let told = Told::All;
    for depot in [7, 8] {
        let heads = [2, 4, 6].map(|step| head(step, &[7, 8])).to_vec();
        job.depot_says(depot, holds(heads, told));
    }
    let key = head(2, &[7, 8]).key;
    job.depot_says(7, DepotMessage::Deleted { key });
    let found = job.passes(Duration::from_millis(100));
    assert!(!found.iter().any(|text| text.contains("fetch")), "{found:?}");
}

#[test]
fn what_a_depot_does_not_tell_again_it_has_lost() {
    let mut job = Job::saved(saved_config());
    let told = Told::All;
    for heads in [vec![head(2, &[7, 8]), head(4, &[7, 8])], vec![head(4, &[7, 8])]] {
        job.depot_says(7, holds(heads, told));
    }
    let found = job.passes(DEPOTS_SETTLE);
    let fetches: Vec<&String> = found.iter().filter(|text| text.contains("fetch")).collect();
    assert_eq!(
        fetches,
        ["to 7: fetch s4", "to 8: fetch s4"],
        "the other host has it not, though it is there; nobody has s2 any more"
    );
}

#[test]
fn what_a_depot_that_is_there_has_lost_is_fetched_again_soon() {
    let mut job = Job::saved(saved_config());
    let told = Told::All;
    let whole = head(2, &[7, 8]);
    let lacking = Head {
        condition: Condition::Lacking,
        ..whole.clone()
    };
    let fetches = |found: &[String]| found.iter().filter(|text| text.contains("fetch")).count();
    let heads = vec![whole.clone()];
    job.depot_says(7, holds(heads, told));
    let heads = vec![whole.clone()];
    job.depot_says(8, holds(heads, told));
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)), 0, "all is well");
    let heads = vec![lacking];
    job.depot_says(8, holds(heads, told));
    assert_eq!(fetches(&job.passes(Duration::from_secs(1))), 2);
    job.committed(7, 2, &[7, 8]);
    let found = job.committed(8, 2, &[7, 8]);
    assert_eq!(found, ["saved s2 on 2 of 2"], "it is the same one: nothing is deleted");
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)), 0);
}

#[test]
fn a_deletion_that_failed_is_ordered_again_also_where_nothing_else_is_left() {
    let mut job = Job::saved(saved_config());
    job.depot_comes(9, "c", vec![]);
    let told = Told::All;
    let on_all = |step| head(step, &[7, 8, 9]);
    for depot in [7, 8, 9] {
        let heads = [4, 6].map(on_all).to_vec();
        job.depot_says(depot, holds(heads, told));
    }
    // The other two have deleted s2, and this one could not, or was not there.
    let heads = [2, 4, 6].map(on_all).to_vec();
    let found = job.depot_says(9, holds(heads.clone(), told));
    assert_eq!(found, ["to 9: delete s2"]);
    // It says nothing, and later all that it has.
    let found = job.depot_says(9, holds(heads, told));
    assert_eq!(found, ["to 9: delete s2"]);
    // What is newer than what is kept stays, though it is not complete.
    let heads = [4, 6, 8].map(on_all).to_vec();
    assert_eq!(job.depot_says(9, holds(heads, told)), Vec::<String>::new());
    // And so does what is only as old as that which is kept.
    let heads = [5, 6].map(on_all).to_vec();
    assert_eq!(job.depot_says(9, holds(heads, told)), Vec::<String>::new());
}

#[test]
fn of_two_manifests_of_one_snapshot_on_different_hosts_none_is_deleted_before_one_is_on_both() {
    let mut job = Job::saved(saved_config());
    let told = Told::All;
    // The first one was durable on 7 when it died, and was made again on 8 alone.
    let heads = vec![head(2, &[7, 8])];
    assert_eq!(job.depot_says(7, holds(heads, told)), Vec::<String>::new());
    let heads = vec![head(2, &[8])];
    assert_eq!(job.depot_says(8, holds(heads, told)), Vec::<String>::new());
    let found = job.passes(DEPOTS_SETTLE);
    assert_eq!(found.iter().filter(|text| text.contains("fetch")).count(), 2, "{found:?}");
    job.committed(7, 2, &[7, 8]);
    let found = job.committed(8, 2, &[7, 8]);
    assert!(found.contains(&"to 8: delete s2".to_owned()), "{found:?}");
    assert!(!found.contains(&"to 7: delete s2".to_owned()), "{found:?}");
}
