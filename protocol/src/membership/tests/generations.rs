//! Gathering and forming: which workers are waited for, what each is told, and what is said again.

use super::*;
use crate::limits::{GATHER, KEEP_LEAST, RESEND, RESEND_EACH};
use crate::memory::SUMS;
use crate::messages::MembersDigest;
use crate::plan::Part;
use crate::status::Stage;
use crate::words::{Rank, ShardRange};

#[test]
fn the_first_generation_waits_for_all_that_are_expected() {
    let mut job = Job::new(config());
    assert_eq!(job.arrives(1, 0), ["joined w1 at s0"]);
    assert_eq!(
        job.arrives(2, 0),
        [
            "joined w2 at s0",
            "forming g1.1 of [1, 2] at s0",
            "to w1: form g1.1 r0 at s0",
            "to w2: form g1.1 r1 at s0",
        ]
    );
    assert_eq!(job.ready(2, 1), [""; 0]);
    assert_eq!(job.ready(1, 1), ["formed g1.1"]);
    assert_eq!(job.membership.stage(), Stage::Running);
}

#[test]
fn the_first_generation_does_not_wait_for_ever() {
    let mut job = Job::new(config());
    job.arrives(1, 0);
    job.now = GATHER - Duration::from_millis(1);
    job.progress(1, 0, 0, &[]);
    assert_eq!(job.passes(Duration::ZERO), [""; 0]);
    assert_eq!(
        job.passes(Duration::from_millis(1)),
        ["forming g1.1 of [1] at s0", "to w1: form g1.1 r0 at s0"]
    );
}

#[test]
fn a_job_with_too_few_workers_waits_and_says_so_once() {
    let mut job = Job::new(Config { min: 2, ..config() });
    let waiting = "waiting: 1 here, needs at least 2 workers";
    assert_eq!(job.arrives(1, 0), ["joined w1 at s0", waiting]);
    assert_eq!(job.passes(RESEND), [""; 0]);
    job.arrives(2, 0);
    job.all_ready([1, 2], 1);
    job.dies(2, 0);
    assert_eq!(job.halted(1, 2, 0), [waiting]);
    assert_eq!(job.passes(RESEND), [""; 0]);
    // What the newcomer says of itself counts once it has halted.
    assert_eq!(job.arrives(3, 0), ["joined w3 at s0", "halting for g1.3", "to w3: halt g1.3"]);
    assert_eq!(
        job.halted(3, 3, 0),
        [
            "forming g1.3 of [1, 3] at s0",
            "to w1: form g1.3 r0 at s0",
            "to w3: form g1.3 r1 at s0",
        ]
    );
}

#[test]
fn a_job_without_room_for_its_shards_waits_and_says_so() {
    let mut job = Job::new(Config {
        shards: 25,
        expected: 1,
        ..config()
    });
    let need = "waiting: 1 here, needs room for 25 shards, there is room for 24 (1.5 GiB and 1.5 GiB of gradients)";
    assert_eq!(job.arrives(1, 0), ["joined w1 at s0", need]);
    assert_eq!(job.arrives(2, 0)[1], "forming g1.1 of [1, 2] at s0");
}

#[test]
fn an_arrival_while_training_halts_no_member() {
    let mut job = Job::training(2, config());
    assert_eq!(
        job.arrives(3, 0),
        ["joined w3 at s0", "to w1: serve [3]", "to w2: serve [3]",]
    );
    assert_eq!(job.membership.stage(), Stage::Running);
    assert_eq!(job.progress(1, 1, 6, &[5]), ["steps [s5]"], "no member was disturbed");
    assert_eq!(job.progress(1, 1, 7, &[5, 6]), ["steps [s6]"], "each step is told once");
}

#[test]
fn an_arrival_while_halting_comes_last_if_it_is_needed() {
    let mut job = Job::training(3, Config { min: 3, ..config() });
    job.dies(3, 5);
    assert_eq!(
        job.arrives(4, 0),
        ["joined w4 at s0"],
        "no newcomer is asked before it is known which workers are left"
    );
    job.halted(2, 2, 4);
    assert_eq!(job.halted(1, 2, 5), ["held for w4", "to w4: halt g1.2"]);
    // The member that was ahead gives its sum to the one just behind, and its state to the newcomer.
    assert_eq!(
        job.halted(4, 2, 0),
        [
            "forming g1.2 of [1, 2, 4] at s5",
            "to w1: form g1.2 r0 at s5",
            "to w2: form g1.2 r1 at s5, sum from r0",
            "to w4: form g1.2 r2 at s5, state from r0",
        ]
    );
    job.all_ready([1, 2, 4], 2);
    assert_eq!(job.progress(1, 2, 6, &[5]), ["steps [s5]", "resumed g1.2 with s6"]);
}

#[test]
fn old_answers_change_nothing() {
    let mut job = Job::training(2, config());
    job.dies(2, 0);
    assert_eq!(job.halted(1, 1, 0), [""; 0], "GEN-3");
    job.halted(1, 2, 0);
    assert_eq!(job.ready(1, 1), [""; 0], "GEN-3");
    assert_eq!(job.link_broken(1, 1, 2), [""; 0], "GEN-3");
    assert_eq!(job.finishes(1, 1, 10), [""; 0], "GEN-3");
    assert_eq!(job.membership.stage(), Stage::Forming);
    assert_eq!(job.ready(1, 2), ["formed g1.2"]);
    assert_eq!(job.ready(9, 2), [""; 0], "no such worker is known");
}

#[test]
fn halts_and_forms_that_are_not_answered_are_sent_again() {
    let mut job = Job::training(4, config());
    job.dies(4, 0);
    job.all_halted([1, 3], 2, 0);
    let just_before = RESEND - Duration::from_millis(1);
    assert_eq!(job.passes(just_before), [""; 0]);
    assert_eq!(job.passes(Duration::from_millis(1)), ["to w2: halt g1.2"]);
    assert_eq!(job.passes(just_before), [""; 0]);
    job.halted(2, 2, 0);
    job.all_ready([1, 2], 2);
    assert_eq!(job.passes(RESEND), ["to w3: form g1.2 r2 at s0"]);
    assert_eq!(job.ready(3, 2), ["formed g1.2"]);
    assert_eq!(job.passes(RESEND), [""; 0]);
}

/// The empty ranges of ranks without work lie behind the last shard (GEN-2).
#[test]
fn more_workers_than_shards_leave_the_last_without_work() {
    let mut job = Job::new(Config {
        shards: 2,
        max: 3,
        expected: 5,
        ..config()
    });
    for worker in 1..5 {
        job.arrives(worker, 0);
    }
    let forms = forms(&job.comes(newcomer(5, standing(0))));
    assert_eq!(forms.len(), 5);
    let expected = ["0..1", "1..2", "2..2", "2..2", "2..2"];
    for (rank, (_, form)) in (0..).zip(forms) {
        assert_eq!(form.rank, Rank::new(rank));
        for part in [form.first, form.steady] {
            let Part::Ordered(part) = part else { panic!("{part:?}") };
            let found: Vec<String> = part.visits.iter().map(|visit| visit.shards.to_string()).collect();
            assert_eq!(found, [expected[rank as usize]]);
        }
    }
}

#[test]
fn a_spare_steps_in_for_the_dead() {
    let mut job = Job::training(3, Config { max: 2, ..config() });
    job.dies(1, 0);
    job.halted(2, 2, 0);
    let forms = forms(&job.halts(3, g(2), standing(0)));
    let ranges: Vec<String> = forms
        .iter()
        .flat_map(|(_, form)| form.steady.shards())
        .map(|shards| shards.to_string())
        .collect();
    assert_eq!(ranges, ["0..2", "2..4"]);
}

/// What a member is told does not grow with the others.
#[test]
fn a_member_is_told_of_those_it_has_to_do_with_and_of_no_others() {
    let many = 100;
    let mut job = Job::new(Config {
        expected: many,
        max: many,
        shards: many,
        ..config()
    });
    for worker in 1..u64::from(many) {
        job.arrives(worker, 0);
    }
    // All others fetch the state from it.
    let forms = forms(&job.comes(newcomer(u64::from(many), standing(7))));
    let digest = MembersDigest::of(forms.iter().map(|(worker, _)| w(*worker)));
    for (worker, form) in &forms {
        assert_eq!((form.world_size, form.digest), (many, digest));
        let donor = form.catch_up.donor();
        let most = if donor.is_some() { 3 } else { many as usize - 1 };
        assert!(form.peers.len() <= most, "{form:?}");
        let fetches = donor.and_then(|rank| form.peer(rank)).map(|donor| donor.worker);
        let expected = (*worker != u64::from(many)).then_some(w(u64::from(many)));
        assert_eq!(fetches, expected);
        let donor = forms
            .iter()
            .find(|(worker, _)| *worker == u64::from(many))
            .map(|(_, form)| form)
            .unwrap();
        let lets_in = donor.peer(form.rank).map(|member| member.worker);
        assert_eq!(lets_in.is_some(), form.rank != donor.rank, "the donor knows who will come");
    }
}

#[test]
fn many_are_given_time_to_answer() {
    let many = 500;
    let expected = Config {
        expected: many,
        max: many,
        shards: many,
        ..config()
    };
    let mut job = Job::new(expected);
    for worker in 1..=u64::from(many) {
        job.arrives(worker, 0);
    }
    job.all_ready(2..=u64::from(many), 1);
    let just_before = RESEND_EACH * many - Duration::from_millis(1);
    assert_eq!(job.passes(just_before), [""; 0]);
    assert_eq!(job.passes(Duration::from_millis(1)), ["to w1: form g1.1 r0 at s0"]);
}

/// What each member of the generation that is formed computes in its first step and in later ones.
fn formed(commands: &[Command]) -> Vec<(Vec<ShardRange>, Vec<ShardRange>)> {
    let shards = |(_, form): &(u64, Form)| (form.first.shards(), form.steady.shards());
    forms(commands).iter().map(shards).collect()
}

#[test]
fn memory_shapes_the_ranges_and_keeps_no_worker_from_training() {
    const GIB: u64 = 1 << 30;
    // Four pieces each, beside the sums.
    let memory = GradientMemory {
        gradient: GIB,
        room: (4 + u64::from(SUMS + KEEP_LEAST)) * GIB,
        links: 0,
    };
    let range = ShardRange::new;
    let one = ShardRange::one;
    let mut job = Job::new(Config {
        shards: 24,
        expected: 2,
        ..config()
    });
    let [_, commands] = [1, 2].map(|worker| {
        job.comes(Arrival {
            memory,
            ..newcomer(worker, standing(0))
        })
    });
    let each = |shards: ShardRange| (vec![shards], vec![shards]);
    assert_eq!(formed(&commands), [each(range(0, 20)), each(range(20, 24))]);
    job.all_ready([1, 2], 1);
    // Rank 0 dies with the running sum. The worker that is left has no memory for all that is missing beside all that it has: it has room
    // for the running sum only, and computes the step anew.
    job.dies(1, 0);
    let kept: Vec<ShardRange> = (20..24).map(one).collect();
    let standing = Standing { kept, ..standing(0) };
    let commands = job.halts(2, g(2), standing);
    assert_eq!(formed(&commands), [each(range(0, 24))]);
    let dropping = |command: &Command| {
        matches!(
            command,
            Command::Tell(JobEvent::Generation(GenerationEvent::Forming { dropping: true, .. }))
        )
    };
    assert!(commands.iter().any(dropping), "people are told");
    let unknown = job.membership.ledger.unknown();
    assert_eq!(
        unknown, 1,
        "what it drops it computes again, and it does not say how many they are"
    );
}
