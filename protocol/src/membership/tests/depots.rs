//! Depots that come, go, refuse, and keep more than they should.

use super::checkpointed::{about_saves, head, placed, saved_config};
use super::*;
use crate::checkpoint::{Condition, Head, ManifestId, ManifestKey, Placing};
use crate::limits::{DEPOT_GONE, DEPOT_REST, DEPOTS_SETTLE, FETCH_MOST, FETCH_PATIENCE};
use crate::messages::DepotMessage;

/// The orders to fetch a checkpoint.
pub(super) fn fetches(found: &[String]) -> Vec<&String> {
    found.iter().filter(|text| text.contains("fetch")).collect()
}

#[test]
fn a_depot_that_comes_back_is_written_to_anew() {
    let mut job = Job::saving(3, saved_config());
    job.says_saved(1, 1, 0, 3);
    job.now += Duration::from_millis(1);
    let found = about_saves(&job.arriving(8, "b"));
    // Until it has told what it keeps.
    assert_eq!(found[0], "to w1: save [0] of g1.1@s3 to [7]");
}

#[test]
fn a_depot_that_refuses_is_done_without_until_a_later_checkpoint() {
    let mut job = Job::saving(3, saved_config());
    job.not_saved(1, 1, 3, Some(8));
    let found = about_saves(&job.not_saved(2, 1, 3, Some(8)));
    assert_eq!(found[0], "depot 8 refused: test");
    assert_eq!(found[1..].len(), 2);
    assert!(found[1..].iter().all(|text| text.ends_with("to [7]")), "{found:?}");
    job.both_saved(2, 3);
    let found = job.is_full(7, 3, placed(2));
    has(&found, "depot 7 refused: full");
    has(&found, "not saved s3: no checkpoint actor is there that could keep it");
    job.now += DEPOT_REST;
    job.event(Event::Tick);
    job.both_make_room();
    let orders = about_saves(&job.copied(4));
    assert_eq!(orders[0], "to w1: save [0] of g1.1@s4 to [7, 8]");
}

#[test]
fn two_depots_on_one_host_count_as_one() {
    let mut job = Job::saved(saved_config());
    job.depot_comes(9, "b", vec![]);
    job.progress(1, 1, 2, &[]);
    job.both_make_room();
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
    let found = job.holds(7, vec![both(2), both(4), both(6), damaged]);
    assert_eq!(found, ["to 7: delete s2"], "one of two depots is enough of each");
    let found = job.holds(8, vec![both(2), both(4), both(6)]);
    assert_eq!(found, ["to 7: delete s2", "to 8: delete s2"]);
    job.deleted(7, both(2).key);
    assert_eq!(job.deleted(8, both(2).key), [""; 0]);
}

#[test]
fn a_checkpoint_on_too_few_hosts_is_placed_on_those_that_come() {
    let mut job = Job::new(saved_config());
    job.depot_comes(7, "a", vec![]);
    job.arrives(1, 0);
    job.arrives(2, 0);
    job.holds(7, vec![head(2, &[7])]);
    job.passes(DEPOTS_SETTLE);
    job.depot_comes(8, "b", vec![]);
    // Others may be about to come.
    none_contains(&job.passes(Duration::from_secs(1)), "fetch");
    let found = job.passes(DEPOTS_SETTLE);
    assert_eq!(fetches(&found), ["to 7: fetch s2", "to 8: fetch s2"]);
    none_contains(&found, "delete");
    let found = job.both_committed(2);
    assert_eq!(found, ["saved s2 on 2 of 2", "to 7: delete s2"]);
    job.deleted(7, head(2, &[7]).key);
    none_contains(&job.passes(DEPOTS_SETTLE), "fetch");
}

#[test]
fn what_a_depot_that_is_gone_for_long_had_is_placed_on_others() {
    let mut job = Job::saved(saved_config());
    job.holds(7, vec![head(2, &[7, 9])]);
    job.passes(DEPOTS_SETTLE);
    // It may only start again.
    none_contains(&job.passes(DEPOTS_SETTLE), "fetch");
    assert_eq!(fetches(&job.passes(DEPOT_GONE)).len(), 2);
    job.is_full(8, 2, placed(1));
    // It is tried again, but not at once.
    none_contains(&job.passes(DEPOT_GONE - Duration::from_millis(1)), "fetch");
    assert_eq!(fetches(&job.passes(Duration::from_millis(1))).len(), 2);
}

#[test]
fn a_depot_that_does_not_keep_what_is_placed_anew_does_not_keep_it_from_others() {
    let mut job = Job::new(saved_config());
    let old = |step| head(step, &[7]);
    job.depot_comes(7, "a", [4, 6].map(old).to_vec());
    job.depot_comes(8, "b", vec![]);
    job.depot_comes(9, "c", vec![]);
    job.arrives(1, 0);
    job.arrives(2, 0);
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)).len(), 3);
    job.is_full(8, 6, placed(1));
    let without = ["to 7: fetch s6", "to 9: fetch s6"];
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)), without);
    let commits = |job: &mut Job, depot: u64| {
        let head = Head {
            placing: placed(2),
            ..head(6, &[7, 9])
        };
        let snapshot = snapshot(1, 6);
        job.depot_says(depot, DepotMessage::Committed { snapshot, head })
    };
    commits(&mut job, 7);
    has(&commits(&mut job, 9), "saved s6 on 2 of 2");
    assert_eq!(
        fetches(&job.passes(Duration::from_secs(1))),
        ["to 7: fetch s4", "to 9: fetch s4"]
    );
}

#[test]
fn depots_that_say_for_ever_that_they_fetch_are_given_up() {
    let mut job = Job::saved(saved_config());
    job.holds(7, vec![head(6, &[7])]);
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)).len(), 2);
    let says = |job: &mut Job| {
        let (snapshot, placing) = (snapshot(1, 6), placed(1));
        job.depot_says(8, DepotMessage::Fetching { snapshot, placing });
    };
    let mut waited = Duration::ZERO;
    while waited < FETCH_MOST {
        says(&mut job);
        waited += FETCH_PATIENCE / 2;
        none_contains(&job.passes(FETCH_PATIENCE / 2), "fetch");
    }
    says(&mut job);
    assert_eq!(fetches(&job.passes(DEPOT_GONE)).len(), 2, "it is placed anew");
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
        job.holds(depot, heads());
    }
    job.passes(DEPOTS_SETTLE);
    let both = usize::try_from(KEPT).unwrap();
    assert_eq!(job.membership.checkpoints.take_looked_at(), both, "once they have settled");
    assert_eq!(looked_at(&mut job, 100), 0, "nothing was told since");
    job.holds(8, heads());
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
    let found = job.holds(7, vec![head(2, &[7]), head(2, &[7, 8])]);
    assert_eq!(found.len(), 1, "one of them, while both are on one");
    let mut job = Job::saved(saved_config());
    job.holds(8, vec![head(2, &[7, 8])]);
    let found = job.holds(7, vec![head(2, &[7]), head(2, &[7, 8])]);
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
        for depot in [7, 8] {
            job.holds(depot, vec![first.clone(), head(2, &[7, 8])]);
        }
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
    job.holds(7, vec![by_hand]);
    let mut last = Placing::BY_HAND;
    for _ in 0..3 {
        job.now += DEPOT_GONE;
        let found = placings(&job.event(Event::Tick));
        assert_eq!(found.len(), 2, "both are to have it");
        assert!(found[0] > last && found[0] == found[1], "{found:?} after {last:?}");
        last = found[0];
        job.is_full(8, 2, last);
    }
}

#[test]
fn what_cannot_be_read_is_deleted_once_it_would_have_expired() {
    let mut job = Job::saved(saved_config());
    let both = |step| head(step, &[7, 8]);
    job.holds(7, vec![both(4), both(6)]);
    let found = job.holds_unreadable(8, vec![both(6)], [2, 4, 8].map(|step| both(step).key).to_vec());
    // What is newer stays where people find it, and what others have is kept.
    assert_eq!(found, ["to 8: delete s2"]);
    assert_eq!(job.deleted(8, both(2).key), [""; 0]);
    assert_eq!(job.holds(7, vec![both(4), both(6)]), [""; 0]);
}

#[test]
fn what_is_being_deleted_is_not_placed_anew() {
    let mut job = Job::saved(saved_config());
    job.passes(DEPOT_GONE);
    for depot in [7, 8] {
        job.holds(depot, [2, 4, 6].map(|step| head(step, &[7, 8])).to_vec());
    }
    job.deleted(7, head(2, &[7, 8]).key);
    let found = job.passes(Duration::from_millis(100));
    none_contains(&found, "fetch");
}

#[test]
fn what_a_depot_does_not_tell_again_it_has_lost() {
    let mut job = Job::saved(saved_config());
    job.holds(7, vec![head(2, &[7, 8]), head(4, &[7, 8])]);
    job.holds(7, vec![head(4, &[7, 8])]);
    // The other host has it not, though it is there; no depot has s2 any more.
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)), ["to 7: fetch s4", "to 8: fetch s4"]);
}

#[test]
fn what_a_depot_that_is_there_has_lost_is_fetched_again_soon() {
    let mut job = Job::saved(saved_config());
    let whole = head(2, &[7, 8]);
    let lacking = Head {
        condition: Condition::Lacking,
        ..whole.clone()
    };
    job.holds(7, vec![whole.clone()]);
    job.holds(8, vec![whole]);
    // All is well.
    none_contains(&job.passes(DEPOTS_SETTLE), "fetch");
    job.holds(8, vec![lacking]);
    assert_eq!(fetches(&job.passes(Duration::from_secs(1))).len(), 2);
    let found = job.both_committed(2);
    assert_eq!(found, ["saved s2 on 2 of 2"], "it is the same one: nothing is deleted");
    none_contains(&job.passes(DEPOTS_SETTLE), "fetch");
}

#[test]
fn what_is_being_placed_is_not_deleted_and_a_depot_that_loses_it_meanwhile_does_not_count() {
    let mut config = saved_config();
    let saves = config.saves.as_mut().expect("it saves");
    saves.keep = "last=1,every=4".parse().expect("a rule");
    let mut job = Job::saved(config);
    let (old, new, latest) = (head(2, &[7]), head(2, &[7, 8, 9]), head(6, &[7, 8, 9]));
    job.depot_comes(9, "c", vec![latest.clone()]);
    job.holds(8, vec![latest.clone()]);
    job.holds(7, vec![old.clone(), latest.clone()]);
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)).len(), 3);
    job.committed(8, 2, &[7, 8, 9]);
    // On one of three it is nothing beside the old one, but the others have yet to fetch it.
    assert_eq!(job.holds(9, vec![latest.clone()]), [""; 0]);
    job.committed(7, 2, &[7, 8, 9]);
    job.holds_unreadable(8, vec![latest.clone()], vec![new.key]);
    none_contains(&job.committed(9, 2, &[7, 8, 9]), "saved s2");
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)).len(), 3, "it is placed anew");
}

#[test]
fn depots_that_fetch_for_long_are_waited_for_while_they_say_so() {
    let mut job = Job::saved(saved_config());
    job.holds(7, vec![head(6, &[7])]);
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)).len(), 2);
    job.committed(7, 6, &[7, 8]);
    let says = |job: &mut Job, depot: u64, placing: Placing| {
        let snapshot = snapshot(1, 6);
        job.depot_says(depot, DepotMessage::Fetching { snapshot, placing });
    };
    for _ in 0..10 {
        none_contains(&job.passes(FETCH_PATIENCE / 2), "fetch");
        says(&mut job, 8, placed(1));
    }
    // What another depot says, and of another placing, is no word of it.
    none_contains(&job.passes(FETCH_PATIENCE / 2), "fetch");
    says(&mut job, 7, placed(1));
    says(&mut job, 8, placed(2));
    none_contains(&job.passes(FETCH_PATIENCE / 2), "fetch");
    assert_eq!(fetches(&job.passes(DEPOT_GONE)).len(), 2, "it is placed anew");
}

#[test]
fn what_has_expired_is_deleted_also_while_another_is_being_placed() {
    let mut job = Job::saved(saved_config());
    job.holds(7, vec![head(6, &[7])]);
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)).len(), 2);
    let all = [2, 4, 6].map(|step| head(step, &[7])).to_vec();
    assert_eq!(job.holds(7, all), ["to 7: delete s2"]);
    job.deleted(7, head(2, &[7]).key);
    assert_eq!(job.is_full(8, 6, placed(9)), [""; 0], "of another placing");
    none_contains(&job.passes(DEPOTS_SETTLE), "fetch");
    job.is_full(8, 6, placed(1));
    assert_eq!(fetches(&job.passes(DEPOT_GONE)).len(), 2, "it is placed anew");
}

#[test]
fn a_deletion_that_failed_is_ordered_again_also_where_nothing_else_is_left() {
    let mut job = Job::saved(saved_config());
    job.depot_comes(9, "c", vec![]);
    let on_all = |steps: &[u64]| steps.iter().map(|&step| head(step, &[7, 8, 9])).collect();
    for depot in [7, 8, 9] {
        job.holds(depot, on_all(&[4, 6]));
    }
    // The other two have deleted s2, and this one could not, or was not there. It says nothing, and later all that it has.
    for _ in 0..2 {
        assert_eq!(job.holds(9, on_all(&[2, 4, 6])), ["to 9: delete s2"]);
    }
    // What is newer than what is kept stays, though it is not complete.
    assert_eq!(job.holds(9, on_all(&[4, 6, 8])), [""; 0]);
    // And so does what is only as old as that which is kept.
    assert_eq!(job.holds(9, on_all(&[5, 6])), [""; 0]);
}

#[test]
fn of_two_manifests_of_one_snapshot_on_different_hosts_none_is_deleted_before_one_is_on_both() {
    let mut job = Job::saved(saved_config());
    // The first one was durable on 7 when it died, and was made again on 8 alone.
    assert_eq!(job.holds(7, vec![head(2, &[7, 8])]), [""; 0]);
    assert_eq!(job.holds(8, vec![head(2, &[8])]), [""; 0]);
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)).len(), 2);
    let found = job.both_committed(2);
    has(&found, "to 8: delete s2");
    none_contains(&found, "to 7: delete s2");
}
