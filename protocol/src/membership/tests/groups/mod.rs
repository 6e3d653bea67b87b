//! Groups: each change of membership is a generation of its own, in which all begin together; how long operations take is not judged.

mod later_lives;
mod many;

use super::*;
use crate::job::Order;
use crate::limits::{
    ADOPTION_PATIENCE, COOL, GATHER, GROUP_STANDS, HEARTBEAT, LINK_GRACE, RESEND, STALL_UNKNOWN, STOPPED_GRACE,
};
use crate::membership::JobRecord;
use crate::messages::{MembersDigest, Motion, Ring, Seated};
use crate::plan::Part;
use crate::status::{Doing, Stage};
use crate::words::{Rank, ShardRange};

fn group() -> Config {
    Config {
        shards: 0,
        steps: Step::ZERO,
        order: Order::Fast,
        ..config()
    }
}

impl Job {
    fn gives_up(&mut self, worker: u64, count: u64) -> Vec<String> {
        self.says(worker, WorkerMessage::GivenUp { generation: g(count) })
    }

    /// Time passes in which these workers are heard of.
    fn all_beat(&mut self, workers: &[u64], count: u64, time: Duration) -> Vec<String> {
        let end = self.now + time;
        let mut told = Vec::new();
        while self.now < end {
            self.now += HEARTBEAT;
            for &worker in workers {
                told.extend(self.progress(worker, count, 0, &[]));
            }
            told.extend(self.passes(Duration::ZERO));
        }
        told
    }
}

#[test]
fn a_group_forms_as_any_job_and_each_member_has_links_with_its_neighbours_alone() {
    let mut job = Job::new(Config { expected: 4, ..group() });
    (1..=3).for_each(|worker| assert_eq!(job.arrives(worker, 0), [format!("joined w{worker} at s0")]));
    let commands = job.comes(newcomer(4, standing(0)));
    let forms = forms(&commands);
    assert_eq!(forms.len(), 4);
    for (at, (_, form)) in forms.iter().enumerate() {
        let neighbours = [(at + 3) % 4, (at + 1) % 4].map(Rank::at);
        for part in [&form.first, &form.steady] {
            let Part::Ring(ring) = part else {
                panic!("expected links from each rank to the next, found {part:?}");
            };
            let (before, after) = ring.hops.expect("it is not alone");
            assert_eq!([before.peer, after.peer], neighbours);
            assert_eq!(ring.shards, []);
        }
        assert_eq!((form.world_size, form.catch_up), (4, CatchUp::None));
    }
    assert_eq!(job.all_ready(1..=4, 1), ["formed g1.1"]);
}

#[test]
fn the_first_generation_waits_for_the_least_and_a_while_for_the_expected() {
    let mut job = Job::new(Config {
        min: 2,
        expected: 3,
        ..group()
    });
    has(&job.arrives(1, 0), "waiting: 1 here, needs at least 2 workers");
    assert_eq!(job.arrives(2, 0), ["joined w2 at s0"]);
    has(&job.all_beat(&[1, 2], 0, GATHER), "forming g1.1 of [1, 2] at s0");
}

#[test]
fn a_newcomer_ends_the_generation_and_all_begin_the_next_one() {
    let mut job = Job::training(2, group());
    assert_eq!(
        job.arrives(3, 0),
        ["joined w3 at s0", "halting for g1.2", "to w1: halt g1.2", "to w2: halt g1.2"]
    );
    assert_eq!(job.halted(1, 2, 0), [""; 0]);
    assert_eq!(
        job.halted(2, 2, 0),
        [
            "forming g1.2 of [1, 2, 3] at s0",
            "to w1: form g1.2 r0 at s0",
            "to w2: form g1.2 r1 at s0",
            "to w3: form g1.2 r2 at s0",
        ]
    );
    // One that comes while the links are made waits until they are.
    assert_eq!(job.arrives(4, 0), ["joined w4 at s0"]);
    assert_eq!(
        job.all_ready(1..=3, 2),
        [
            "formed g1.2",
            "halting for g1.3",
            "to w1: halt g1.3",
            "to w2: halt g1.3",
            "to w3: halt g1.3"
        ]
    );
    has(&job.all_halted(1..=3, 3, 0), "forming g1.3 of [1, 2, 3, 4] at s0");
}

#[test]
fn a_death_ends_the_generation_at_once_and_the_others_keep_their_order() {
    let mut job = Job::training(3, group());
    let told = job.exits(1, None);
    has(&told, "to w2: halt g1.2");
    has(&told, "to w3: halt g1.2");
    assert_eq!(
        job.all_halted(2..=3, 2, 0),
        [
            "forming g1.2 of [2, 3] at s0",
            "to w2: form g1.2 r0 at s0",
            "to w3: form g1.2 r1 at s0"
        ]
    );
}

#[test]
fn an_operation_that_failed_ends_the_generation_and_is_held_against_no_one() {
    let mut job = Job::training(3, group());
    for count in 1..=6 {
        has(&job.gives_up(2, count), &format!("halting for g1.{}", count + 1));
        assert_eq!(job.gives_up(3, count), [""; 0], "it is over already");
        let told = job.all_halted(1..=3, count + 1, 0);
        has(&told, &format!("forming g1.{} of [1, 2, 3] at s0", count + 1));
        job.all_ready(1..=3, count + 1);
    }
    assert_eq!(job.gives_up(2, 3), [""; 0], "of a generation that is over");
}

#[test]
fn one_that_leaves_is_released_as_soon_as_it_has_halted() {
    let mut job = Job::training(3, group());
    let told = job.leaves(2);
    assert_eq!(told[..2], ["leaving w2", "halting for g1.2"]);
    assert_eq!(job.halted(1, 2, 0), [""; 0]);
    assert_eq!(job.halted(2, 2, 0), ["to w2: released at s0", "left w2 at s0"]);
    assert_eq!(
        job.halted(3, 2, 0),
        [
            "forming g1.2 of [1, 3] at s0",
            "to w1: form g1.2 r0 at s0",
            "to w3: form g1.2 r1 at s0",
        ]
    );
}

#[test]
fn those_beyond_the_most_wait_and_step_in_and_may_leave() {
    let mut job = Job::training(2, Config { max: 2, ..group() });
    assert_eq!(job.arrives(3, 0), ["joined w3 at s0"]);
    assert_eq!(job.arrives(4, 0), ["joined w4 at s0"]);
    assert_eq!(job.leaves(3), ["leaving w3", "to w3: released at s0", "left w3 at s0"]);
    job.exits(1, None);
    has(&job.halted(2, 2, 0), "forming g1.2 of [2, 4] at s0");
}

#[test]
fn the_job_is_done_when_all_have_finished_and_none_is_halted_for_a_newcomer_meanwhile() {
    let mut job = Job::training(2, group());
    let same = StateHash::new([0; 32]);
    assert_eq!(job.says(1, finished(1, 0, same)), [""; 0]);
    assert_eq!(job.arrives(3, 0), ["joined w3 at s0"]);
    assert_eq!(
        job.says(2, finished(1, 0, same)),
        [
            "to w1: complete s0".to_owned(),
            "to w2: complete s0".to_owned(),
            "to w3: complete s0".to_owned(),
            format!("done at s0 with {same:?}"),
        ]
    );
    assert_eq!(job.membership.stage(), Stage::Done);
}

#[test]
fn one_that_finished_goes_on_where_another_had_not_when_it_died() {
    let mut job = Job::training(3, group());
    let same = StateHash::new([0; 32]);
    job.says(1, finished(1, 0, same));
    has(&job.exits(3, None), "to w1: halt g1.2");
    has(&job.all_halted(1..=2, 2, 0), "forming g1.2 of [1, 2] at s0");
    job.all_ready(1..=2, 2);
    job.says(1, finished(2, 0, same));
    job.exits(2, None);
    assert_eq!(job.membership.stage(), Stage::Done, "all that are left have");
}

#[test]
fn a_stop_ends_it_at_once_also_while_it_waits() {
    let mut job = Job::training(2, group());
    let told = words(&job.event(Event::StopRequested));
    has(&told, "to w1: complete s0");
    has(&told, "to w2: complete s0");
    let mut job = Job::training(2, Config { min: 2, ..group() });
    job.exits(2, None);
    has(&job.halted(1, 2, 0), "waiting: 1 here, needs at least 2 workers");
    has(&words(&job.event(Event::StopRequested)), "to w1: complete s0");
    let mut job = Job::new(group());
    let told = words(&job.event(Event::StopRequested));
    any_begins(&told, "failed: stopped while the job waited for workers");
}

#[test]
fn one_that_leaves_while_the_others_have_finished_is_let_go_at_once_and_one_that_has_finished_as_well_is_not() {
    let same = StateHash::new([0; 32]);
    let mut job = Job::training(3, group());
    job.says(1, finished(1, 0, same));
    job.says(2, finished(1, 0, same));
    has(&job.leaves(3), "halting for g1.2");
    job.all_halted(1..=2, 2, 0);
    let told = job.halted(3, 2, 0);
    has(&told, "to w3: released at s0");
    has(&told, "forming g1.2 of [1, 2] at s0");
    let mut job = Job::training(2, group());
    job.says(1, finished(1, 0, same));
    assert_eq!(job.leaves(1), ["leaving w1"]);
    has(&job.says(2, finished(1, 0, same)), "to w1: complete s0");
}

#[test]
fn a_member_that_computes_for_hours_is_waited_for_and_one_that_is_silent_is_not() {
    let mut job = Job::training(2, group());
    let told = job.all_beat(&[1, 2], 1, 10 * STALL_UNKNOWN);
    assert_eq!(told, [""; 0]);
    let told = job.all_beat(&[1], 1, Duration::from_secs(30));
    any_begins(&told, "lost w2 while running: it was silent for");
    let mut job = Job::training(2, group());
    job.event(Event::Motion {
        worker: w(2),
        motion: Motion::Stopped,
    });
    any_begins(&job.all_beat(&[1], 1, 2 * STOPPED_GRACE), "kill w2");
}

#[test]
fn links_that_cannot_be_made_are_held_against_their_ends_until_a_generation_stands() {
    let breaks = |job: &mut Job, count: u64| {
        job.link_broken(1, count, 3);
        job.link_broken(3, count, 1);
        job.ready(2, count);
        let told = job.passes(LINK_GRACE);
        [told, job.all_halted(1..=3, count + 1, 0)].concat()
    };
    // Each of four is linked with two others, so that it shows who is at fault: here between two, the one that came last.
    let mut job = Job::training(3, group());
    job.gives_up(1, 1);
    job.all_halted(1..=3, 2, 0);
    none_contains(&breaks(&mut job, 2), "lost");
    none_contains(&breaks(&mut job, 3), "lost");
    any_begins(&breaks(&mut job, 4), "lost w3");
    // One that stood in between clears them.
    let mut job = Job::training(3, group());
    job.gives_up(1, 1);
    job.all_halted(1..=3, 2, 0);
    breaks(&mut job, 2);
    breaks(&mut job, 3);
    job.all_ready(1..=3, 4);
    job.all_beat(&[1, 2, 3], 4, GROUP_STANDS + HEARTBEAT);
    job.gives_up(1, 4);
    job.all_halted(1..=3, 5, 0);
    none_contains(&breaks(&mut job, 5), "lost");
}

#[test]
fn what_is_not_answered_is_said_again() {
    let mut job = Job::training(2, group());
    job.gives_up(1, 1);
    job.halted(1, 2, 0);
    has(&job.passes(RESEND), "to w2: halt g1.2");
    job.halted(2, 2, 0);
    has(&job.passes(RESEND), "to w2: form g1.2 r1 at s0");
}

#[test]
fn what_one_that_waits_for_a_place_says_of_the_generation_changes_nothing() {
    let mut job = Job::training(2, Config { max: 2, ..group() });
    job.arrives(3, 0);
    assert_eq!(job.says(3, finished(1, 0, hash(0))), [""; 0]);
    assert_eq!(job.gives_up(3, 1), [""; 0]);
    assert_eq!(job.link_broken(3, 1, 1), [""; 0]);
    assert_eq!(job.ready(3, 1), [""; 0]);
    // It neither keeps the place that it does not have, nor the others from finishing.
    job.says(1, finished(1, 0, hash(0)));
    any_begins(&job.says(2, finished(1, 0, hash(0))), "done at s0");
}

#[test]
fn a_status_says_who_is_in_the_group_and_who_waits_for_a_place() {
    let mut job = Job::training(2, Config { max: 2, ..group() });
    job.arrives(3, 0);
    let overview = job.membership.overview(job.now);
    let doing: Vec<(WorkerId, Doing)> = overview.workers.iter().map(|view| (view.worker, view.doing)).collect();
    assert_eq!(
        doing,
        [(w(1), Doing::Calling), (w(2), Doing::Calling), (w(3), Doing::Waiting)]
    );
}
