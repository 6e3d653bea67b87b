//! A coordinator's next life: what it finds, what it adopts, which workers it halts.

use super::*;
use crate::limits::{ADOPTION_PATIENCE, HEARTBEAT, STALL_UNKNOWN};
use crate::membership::JobRecord;
use crate::messages::{MembersDigest, Ring, Seated};
use crate::status::Stage;
use crate::words::{Rank, ShardRange};

/// The next life of a coordinator, with what the last one has written down.
fn next_life(record: Option<JobRecord>) -> Job {
    let now = Duration::from_secs(100);
    Job {
        membership: Membership::resume(config(), Incarnation::new(2), now, record),
        now,
    }
}

/// Workers 1 and 2 train in g1.1.
fn record() -> JobRecord {
    let mut job = Job::training(2, config());
    job.progress(1, 1, 4, &[0, 1, 2, 3]);
    job.membership.record()
}

fn seat(rank: u32, ring: Ring) -> Seated {
    Seated {
        rank: Rank::new(rank),
        world_size: 2,
        digest: MembersDigest::of([w(1), w(2)]),
        peers: vec![(Rank::new(1 - rank), w(2 - u64::from(rank)))],
        shards: ShardRange::new(rank * 2, rank * 2 + 2),
        ring,
    }
}

impl Job {
    /// A member of g`count` says hello.
    fn returns(&mut self, worker: u64, count: u64, step: u64, seat: Option<Seated>) -> Vec<String> {
        let introduction = Introduction {
            training: seat.is_some(),
            seat,
            ..introduction(g(count), standing(step))
        };
        self.introduces(worker, introduction)
    }

    /// The two members of g1.1 say hello at `step`, each from its seat. What is said to the second.
    fn both_return(&mut self, step: u64) -> Vec<String> {
        self.returns(1, 1, step, Some(seat(0, Ring::Whole)));
        self.returns(2, 1, step, Some(seat(1, Ring::Whole)))
    }

    /// Time passes in which this worker is heard of. Returns what is said at the end.
    fn waits(&mut self, worker: u64, time: Duration) -> Vec<String> {
        let end = self.now + time;
        while self.now + HEARTBEAT < end {
            self.now += HEARTBEAT;
            assert_eq!(self.progress(worker, 1, 0, &[]), [""; 0]);
            assert_eq!(self.passes(Duration::ZERO), [""; 0]);
        }
        self.now = end;
        self.passes(Duration::ZERO)
    }
}

#[test]
fn a_whole_ring_is_adopted_and_no_worker_is_told_anything() {
    let mut job = next_life(Some(record()));
    assert_eq!(job.returns(2, 1, 6, Some(seat(1, Ring::Whole))), ["joined w2 at s6"]);
    assert_eq!(job.waits(2, ADOPTION_PATIENCE / 2), [""; 0], "it waits for the other");
    assert_eq!(
        job.returns(1, 1, 7, Some(seat(0, Ring::Whole))),
        ["joined w1 at s7", "adopted g1.1 of [1, 2] at s7"]
    );
    assert_eq!(job.membership.stage(), Stage::Running);
    assert_eq!(
        job.progress(1, 1, 8, &[3, 4, 5, 6, 7]),
        ["steps [s4, s5, s6, s7]"],
        "s3 was told before"
    );
    // From here on it is a job like any other, with numbers of this life.
    let told = job.dies(2, 8);
    has(&told, "to w1: halt g2.1");
}

/// A link that only the generation's first step needed ends the ring as any other does when it breaks.
#[test]
fn a_link_of_the_first_step_that_breaks_after_the_adoption_halts_all() {
    let mut before = Job::training(4, config());
    before.progress(1, 1, 4, &[0, 1, 2, 3]);
    let mut job = next_life(Some(before.membership.record()));
    for rank in 0..4_u32 {
        // In the first step the first rank was visited once more, after the last one.
        let peers: &[u32] = [&[1, 3][..], &[0, 2], &[1, 3], &[0, 2]][rank as usize];
        job.returns(u64::from(rank) + 1, 1, 6, Some(seat_of_four(rank, peers)));
    }
    assert_eq!(job.membership.stage(), Stage::Running);
    let strange = job.link_broken(1, 1, 3);
    assert_eq!(strange, [""; 0], "they have no link");
    let told = job.link_broken(1, 1, 4);
    has(&told, "halting for g2.1");
}

#[test]
fn without_a_record_it_waits_whether_there_is_a_later_generation() {
    let mut job = next_life(None);
    assert_eq!(job.both_return(7), ["joined w2 at s7"]);
    job.now += ADOPTION_PATIENCE;
    job.progress(1, 1, 8, &[]);
    let told = job.progress(2, 1, 8, &[]);
    assert_eq!(job.membership.stage(), Stage::Running, "{told:?}");
    assert_eq!(job.membership.record().formed, g(1));
}

#[test]
fn a_generation_older_than_the_record_is_halted() {
    let mut before = Job::training(2, config());
    before.link_broken(1, 1, 2);
    before.halted(1, 2, 5);
    before.halted(2, 2, 5);
    let mut job = next_life(Some(before.membership.record()));
    let told = job.both_return(5);
    has(&told, "halting for g2.1");
}

#[test]
fn a_broken_ring_is_halted_once_all_are_there() {
    let mut job = next_life(Some(record()));
    assert_eq!(job.returns(1, 1, 6, Some(seat(0, Ring::Broken))), ["joined w1 at s6"]);
    assert_eq!(
        job.returns(2, 1, 6, Some(seat(1, Ring::Whole)))[1..],
        ["halting for g2.1", "to w1: halt g2.1", "to w2: halt g2.1"]
    );
}

#[test]
fn a_link_that_breaks_while_others_are_awaited_is_no_ring_to_adopt() {
    let mut job = next_life(Some(record()));
    job.returns(1, 1, 6, Some(seat(0, Ring::Whole)));
    job.link_broken(1, 1, 2);
    let told = job.returns(2, 1, 6, Some(seat(1, Ring::Whole)));
    has(&told, "halting for g2.1");
}

#[test]
fn who_was_seen_to_end_is_not_waited_for_and_counted() {
    let mut job = next_life(Some(record()));
    job.returns(1, 1, 6, Some(seat(0, Ring::Whole)));
    let told = job.dies(2, 6);
    assert_eq!(told, ["halting for g2.1", "to w1: halt g2.1"]);
    assert!(job.halted(1, 2, 6).is_empty(), "that was for another life");
    let told = words(&job.halts(1, Generation::new(Incarnation::new(2), 1), standing(6)));
    has(&told, "forming g2.1 of [1] at s6");
}

#[test]
fn who_was_seen_to_end_before_any_worker_came_is_not_waited_for_either() {
    let mut job = next_life(Some(record()));
    job.dies(2, 6);
    let told = job.returns(1, 1, 6, Some(seat(0, Ring::Whole)));
    assert_eq!(told, ["joined w1 at s6", "halting for g2.1", "to w1: halt g2.1"]);
}

#[test]
fn who_is_not_seen_at_all_is_waited_for_a_while() {
    let mut job = next_life(Some(record()));
    job.returns(1, 1, 6, Some(seat(0, Ring::Whole)));
    assert_eq!(job.waits(1, ADOPTION_PATIENCE - Duration::from_millis(1)), [""; 0]);
    let told = job.waits(1, Duration::from_millis(1));
    has(&told, "to w1: halt g2.1");
}

/// A seat among four, each of which computes one shard.
fn seat_of_four(rank: u32, peers: &[u32]) -> Seated {
    Seated {
        rank: Rank::new(rank),
        world_size: 4,
        digest: MembersDigest::of((1..=4).map(w)),
        peers: peers.iter().map(|&peer| (Rank::new(peer), w(u64::from(peer) + 1))).collect(),
        shards: ShardRange::new(rank, rank + 1),
        ring: Ring::Whole,
    }
}

#[test]
fn whom_no_worker_present_has_for_a_peer_is_waited_for_a_while() {
    let mut job = next_life(Some(record()));
    for ended in [2, 3, 4] {
        job.dies(ended, 6);
    }
    // It has links with two of them, and which worker the third was is not known.
    job.returns(1, 1, 6, Some(seat_of_four(0, &[1, 3])));
    assert_eq!(job.waits(1, ADOPTION_PATIENCE - Duration::from_millis(1)), [""; 0]);
    let told = job.waits(1, Duration::from_millis(1));
    has(&told, "to w1: halt g2.1");
    // Where each is known there is nothing to wait for.
    let mut job = next_life(Some(record()));
    for ended in [2, 4] {
        job.dies(ended, 6);
    }
    job.returns(1, 1, 6, Some(seat_of_four(0, &[1, 3])));
    let told = job.returns(3, 1, 6, Some(seat_of_four(2, &[1, 3])));
    has(&told, "to w1: halt g2.1");
}

#[test]
fn who_ended_and_was_no_member_breaks_no_ring() {
    let mut job = next_life(Some(record()));
    job.dies(9, 0);
    let told = job.both_return(6);
    has(&told, "adopted g1.1 of [1, 2] at s6");
}

#[test]
fn seats_of_other_members_make_no_ring() {
    let mut job = next_life(Some(record()));
    let other = Seated {
        digest: MembersDigest::of([w(1), w(3)]),
        ..seat(0, Ring::Whole)
    };
    job.returns(2, 1, 6, Some(seat(1, Ring::Whole)));
    let told = job.returns(1, 1, 6, Some(other));
    has(&told, "halting for g2.1");
    // All say the same, and it is not true of them.
    let mut job = next_life(Some(record()));
    let wrong = |rank| Seated {
        digest: MembersDigest::of([w(2), w(1)]),
        ..seat(rank, Ring::Whole)
    };
    job.returns(2, 1, 6, Some(wrong(1)));
    let told = job.returns(1, 1, 6, Some(wrong(0)));
    has(&told, "halting for g2.1");
}

#[test]
fn newcomers_do_not_begin_anew_while_members_may_be_on_their_way() {
    let mut job = next_life(Some(record()));
    assert_eq!(job.arrives(7, 0), ["joined w7 at s0"]);
    assert_eq!(job.waits(7, ADOPTION_PATIENCE / 2), [""; 0]);
    let told = job.both_return(6);
    has(&told, "adopted g1.1 of [1, 2] at s6");
    // It joins as always.
    has(&told, "to w1: serve [7]");
}

#[test]
fn what_an_earlier_life_was_asked_for_is_not_forgotten() {
    let mut before = Job::training(2, config());
    before.leaves(2);
    let _ = before.event(Event::StopRequested);
    let mut job = next_life(Some(before.membership.record()));
    let told = job.both_return(6);
    has(&told, "leaving w2");
    has(&told, "to w2: close g1.1 with stop");
}

#[test]
fn who_has_left_and_has_not_heard_of_it_is_told_again() {
    let mut before = Job::joined(config());
    before.leaves(3);
    let mut job = next_life(Some(before.membership.record()));
    assert_eq!(job.returns(3, 0, 5, None), ["to w3: released at s0"]);
    assert!(!job.membership.knows(w(3)));
}

#[test]
fn a_switch_that_an_earlier_life_ordered_ends_in_a_halt() {
    let mut job = next_life(Some(record()));
    job.both_return(6);
    let told = job.switched(1, 2, 7);
    assert_eq!(told, ["halting for g2.1", "to w1: halt g2.1", "to w2: halt g2.1"]);
}

/// Four workers train when the coordinator is started again. It adopts them.
fn four_are_adopted() -> Job {
    let four = Job::training(4, config());
    let mut job = next_life(Some(four.membership.record()));
    for (rank, peers) in [[1, 3], [0, 2], [1, 3], [0, 2]].iter().enumerate() {
        let rank = u32::try_from(rank).expect("four");
        job.returns(u64::from(rank) + 1, 1, 6, Some(seat_of_four(rank, peers)));
    }
    assert_eq!(job.membership.stage(), Stage::Running, "they are adopted");
    job
}

/// They halt, all but worker 1 where a trailer of the earlier life has left them out. Which members that has left out the record need not say: it may be older than the order.
fn one_has_gone_on(mut job: Job) {
    let halts =
        |job: &mut Job, worker, step| words(&job.halts(worker, Generation::new(Incarnation::new(2), 1), standing(step)));
    for worker in [2, 3, 4] {
        halts(&mut job, worker, 7);
    }
    let told = halts(&mut job, 1, 9);
    none_contains(&told, "lost w1");
    has(&told, "forming g2.1 of [1, 2, 3, 4] at s9");
}

#[test]
fn who_went_on_after_a_switch_of_an_earlier_life_is_believed() {
    let mut job = four_are_adopted();
    has(&job.switched(1, 2, 7), "halting for g2.1");
    one_has_gone_on(job);
}

#[test]
fn who_went_on_after_a_switch_of_an_earlier_life_is_believed_where_another_has_all_halt_before_it_says_so() {
    let mut job = four_are_adopted();
    has(&job.link_broken(2, 1, 1), "halting for g2.1");
    one_has_gone_on(job);
}

#[test]
fn who_had_halted_and_comes_late_brings_its_state_back() {
    let mut job = next_life(None);
    let newcomers = u64::from(config().expected);
    for worker in 11..11 + newcomers {
        job.arrives(worker, 0);
    }
    job.now += ADOPTION_PATIENCE;
    job.arrives(10, 0);
    let generation = job.membership.generation();
    for worker in 10..11 + newcomers {
        job.halts(worker, generation, standing(0));
    }
    assert_eq!(job.membership.stage(), Stage::Forming, "no worker knows of what was before");
    let told = job.returns(1, 1, 9, None);
    assert_eq!(told[..2], ["joined w1 at s9", "halting for g2.2"]);
    has(&told, "to w1: halt g2.2");
    // A worker that never trained disturbs none.
    let mut job = Job::training(2, config());
    assert_eq!(job.returns(3, 0, 9, None)[..1], ["joined w3 at s9"]);
    assert_eq!(job.membership.stage(), Stage::Running);
}

#[test]
fn who_was_seen_to_end_tells_where_the_job_stood() {
    let mut job = next_life(Some(record()));
    job.dies(1, 9);
    job.dies(2, 9);
    job.arrives(3, 0);
    job.now += ADOPTION_PATIENCE;
    let mut told = job.progress(3, 1, 0, &[]);
    told.extend(words(&job.halts(3, job.membership.generation(), standing(0))));
    has(&told, "state lost: s9 reached, again from s0");
}

#[test]
fn a_joiner_that_is_to_leave_and_is_alone_keeps_its_state_for_others() {
    let mut before = Job::training(2, config());
    before.leaves(2);
    let mut job = next_life(Some(before.membership.record()));
    assert_eq!(job.arrives(2, 7), ["joined w2 at s7", "leaving w2"]);
    assert_eq!(job.waits(2, ADOPTION_PATIENCE / 2), [""; 0], "a worker may come for it");
}

/// Its members may have computed less of that step than of others, and are not to be blamed for that.
#[test]
fn no_worker_is_left_out_in_the_step_where_a_generation_was_adopted_but_all_halt_if_it_does_not_end() {
    let mut job = next_life(Some(record()));
    assert_eq!(job.both_return(7)[1], "adopted g1.1 of [1, 2] at s7");
    let end = job.now + STALL_UNKNOWN;
    let mut told = vec![];
    while job.now < end {
        assert_eq!(told, [""; 0]);
        job.progress(1, 1, 7, &[]);
        job.progress(2, 1, 7, &[]);
        told = job.passes(HEARTBEAT);
    }
    assert_eq!(told, ["halting for g2.1", "to w1: halt g2.1", "to w2: halt g2.1"]);
}
