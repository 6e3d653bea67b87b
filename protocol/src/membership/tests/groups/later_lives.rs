//! A coordinator that was started again, and a group that has gone on meanwhile, or has not.

use super::*;

/// The next life of a coordinator, with what the last one has written down of a group of two in g1.1.
fn next_life() -> Job {
    let record: JobRecord = Job::training(2, group()).membership.record();
    let now = Duration::from_secs(100);
    Job {
        membership: Membership::resume(group(), Incarnation::new(2), now, Some(record)),
        now,
    }
}

fn seat(rank: u32, ring: Ring) -> Introduction {
    let seat = Seated {
        rank: Rank::new(rank),
        world_size: 2,
        digest: MembersDigest::of([w(1), w(2)]),
        peers: vec![(Rank::new(1 - rank), w(2 - u64::from(rank)))],
        shards: ShardRange::new(0, 0),
        ring,
    };
    Introduction {
        training: true,
        seat: Some(seat),
        ..introduction(g(1), standing(0))
    }
}

#[test]
fn the_coordinators_next_life_leaves_a_group_as_it_is() {
    let mut job = next_life();
    // A newcomer that is faster than the members waits for what becomes of them.
    assert_eq!(job.arrives(3, 0), ["joined w3 at s0"]);
    job.introduces(1, seat(0, Ring::Whole));
    let told = job.introduces(2, seat(1, Ring::Whole));
    has(&told, "adopted g1.1 of [1, 2] at s0");
    has(&told, "halting for g2.1");
    let g2 = Generation::new(Incarnation::new(2), 1);
    job.halts(1, g2, standing(0));
    has(&words(&job.halts(2, g2, standing(0))), "forming g2.1 of [1, 2, 3] at s0");
}

#[test]
fn an_adopted_group_is_left_alone_for_as_long_as_it_stands() {
    let mut job = next_life();
    job.introduces(1, seat(0, Ring::Whole));
    has(&job.introduces(2, seat(1, Ring::Whole)), "adopted g1.1 of [1, 2] at s0");
    assert_eq!(job.all_beat(&[1, 2], 1, 2 * STALL_UNKNOWN), [""; 0]);
}

#[test]
fn a_group_that_was_given_up_while_no_coordinator_was_there_is_halted() {
    let mut job = next_life();
    job.introduces(1, seat(0, Ring::Whole));
    has(&job.introduces(2, seat(1, Ring::Broken)), "halting for g2.1");
}

#[test]
fn a_stop_before_any_member_is_back_ends_the_group_once_all_are() {
    let mut job = next_life();
    assert_eq!(words(&job.event(Event::StopRequested)), [""; 0]);
    assert_eq!(job.introduces(1, seat(0, Ring::Whole)), ["joined w1 at s0"]);
    let told = job.introduces(2, seat(1, Ring::Whole));
    has(&told, "adopted g1.1 of [1, 2] at s0");
    has(&told, "to w1: complete s0");
    has(&told, "to w2: complete s0");
    assert_eq!(job.membership.stage(), Stage::Done);
}

#[test]
fn a_stop_while_some_members_are_back_waits_for_the_others() {
    let mut job = next_life();
    job.introduces(1, seat(0, Ring::Whole));
    assert_eq!(words(&job.event(Event::StopRequested)), [""; 0]);
    let told = job.introduces(2, seat(1, Ring::Whole));
    has(&told, "to w1: complete s0");
    has(&told, "to w2: complete s0");
}

#[test]
fn a_stop_reaches_a_group_that_is_not_as_it_was_and_one_whose_record_is_lost() {
    let mut job = next_life();
    job.introduces(1, seat(0, Ring::Whole));
    job.event(Event::StopRequested);
    let told = job.introduces(2, seat(1, Ring::Broken));
    has(&told, "to w1: complete s0");
    has(&told, "to w2: complete s0");
    // One that does not come back is waited for no longer than any.
    let mut job = next_life();
    job.membership = Membership::resume(group(), Incarnation::new(2), job.now, None);
    job.event(Event::StopRequested);
    job.introduces(1, seat(0, Ring::Whole));
    has(&job.passes(ADOPTION_PATIENCE), "to w1: complete s0");
    assert_eq!(job.membership.stage(), Stage::Done);
}

#[test]
fn a_stop_of_a_group_that_has_begun_ends_it_well_also_where_none_comes_back() {
    let mut job = next_life();
    assert_eq!(words(&job.event(Event::StopRequested)), [""; 0]);
    any_begins(&job.passes(ADOPTION_PATIENCE), "done at s0");
    // Nor is it known, without a record, that there was none.
    job.membership = Membership::resume(group(), Incarnation::new(3), job.now, None);
    job.event(Event::StopRequested);
    any_begins(&job.passes(ADOPTION_PATIENCE), "done at s0");
}

#[test]
fn a_stop_that_a_life_could_not_bring_about_is_brought_about_by_the_next() {
    let mut job = next_life();
    job.event(Event::StopRequested);
    let record = job.membership.record();
    job.membership = Membership::resume(group(), Incarnation::new(3), job.now, Some(record));
    job.introduces(1, seat(0, Ring::Whole));
    has(&job.introduces(2, seat(1, Ring::Whole)), "to w2: complete s0");
}
