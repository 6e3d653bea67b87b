//! Depots that do not tell what they keep.

use super::checkpointed::{head, saved_config};
use super::depots::fetches;
use super::*;
use crate::checkpoint::Head;
use crate::limits::{DEPOT_GONE, DEPOTS_PATIENCE, DEPOTS_SETTLE};
use crate::messages::DepotMessage;

/// Its disk hangs, or it is hostile.
#[test]
fn a_depot_that_never_tells_what_it_keeps_holds_up_nothing_for_long() {
    let mut job = Job::saved(saved_config());
    let one = |step| head(step, &[7]);
    job.holds(7, [2, 4, 6].map(one).to_vec());
    job.depot_goes(8);
    job.arriving(8, "b");
    none_contains(&job.holds(7, [2, 4, 6].map(one).to_vec()), "delete");
    let found = job.passes(DEPOTS_PATIENCE);
    has(&found, "depot 8 lost");
    none_contains(&job.passes(DEPOTS_PATIENCE), "depot 8");
    assert_eq!(job.holds(7, [2, 4, 6].map(one).to_vec()), ["to 7: delete s2"]);
    job.depot_comes(9, "c", vec![]);
    assert_eq!(fetches(&job.passes(DEPOTS_SETTLE)), ["to 7: fetch s6", "to 9: fetch s6"]);
    has(&job.holds(8, vec![]), "depot 8 came");
}

/// It may say so in many words, or come again and again.
#[test]
fn a_depot_that_tells_for_ever_or_comes_anew_for_ever_holds_up_nothing_for_long() {
    type Way<'a> = &'a dyn Fn(&mut Job);
    let nothing = || DepotMessage::Holds {
        heads: vec![],
        is_last: false,
        unreadable: vec![],
    };
    let same = || DepotMessage::Holds {
        heads: vec![Head {
            task: crate::samples::task(9),
            ..head(9, &[8])
        }],
        is_last: false,
        unreadable: vec![],
    };
    // What it says first is news.
    let ways: [(u32, Way); 4] = [
        (2, &|job| drop(job.depot_says(8, nothing()))),
        (3, &|job| drop(job.depot_says(8, same()))),
        (2, &|job| drop(job.arriving(8, "b"))),
        (2, &|job| {
            job.depot_goes(8);
            job.arriving(8, "b");
        }),
    ];
    for (number, (times, way)) in ways.into_iter().enumerate() {
        let mut job = Job::saved(saved_config());
        job.depot_goes(8);
        job.arriving(8, "b");
        let all = || [2, 4, 6].map(|step| head(step, &[7])).to_vec();
        let rest = DEPOTS_PATIENCE * 2 / 3;
        for _ in 0..times {
            none_contains(&job.holds(7, all()), "delete");
            job.passes(rest);
            way(&mut job);
        }
        job.passes(Duration::from_millis(100));
        assert_eq!(job.holds(7, all()), ["to 7: delete s2"], "way {number}");
    }
}

/// What only it has is as good as gone, but it is not lost there.
#[test]
fn what_a_depot_has_that_does_not_tell_is_not_placed_anew_before_it_counts_as_gone() {
    let mut job = Job::saved(saved_config());
    let both = head(2, &[7, 8]);
    job.holds(7, vec![both.clone()]);
    job.depot_comes(9, "c", vec![]);
    job.depot_goes(8);
    job.arriving(8, "b");
    for _ in 0..4 {
        none_contains(&job.passes(DEPOTS_PATIENCE), "fetch");
    }
    assert_eq!(fetches(&job.passes(DEPOT_GONE)).len(), 2);
}
