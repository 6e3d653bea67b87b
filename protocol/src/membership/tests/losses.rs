//! Deaths, silences and broken links, in every stage.

use super::*;
use crate::limits::STATE_GRACE;
use crate::status::Stage;

#[test]
fn a_death_while_running_halts_the_others() {
    let mut job = Job::training(3, config());
    assert_eq!(
        job.dies(2, 0),
        [
            "lost w2 while running: its agent saw it end (signal 9)",
            "halting for g1.2",
            "to w1: halt g1.2",
            "to w3: halt g1.2",
        ]
    );
    job.halted(3, 2, 0);
    assert_eq!(
        job.halted(1, 2, 0),
        [
            "forming g1.2 of [1, 3] at s0",
            "to w1: form g1.2 r0 at s0",
            "to w3: form g1.2 r1 at s0",
        ]
    );
}

#[test]
fn a_death_while_halting_only_shortens_the_wait() {
    let mut job = Job::training(3, config());
    job.dies(3, 0);
    job.halted(1, 2, 0);
    assert_eq!(
        job.dies(2, 0),
        [
            "lost w2 while halting: its agent saw it end (signal 9)",
            "forming g1.2 of [1] at s0",
            "to w1: form g1.2 r0 at s0",
        ]
    );
}

#[test]
fn a_death_while_forming_halts_again_under_the_next_number() {
    let mut job = Job::training(3, config());
    job.dies(3, 0);
    job.all_halted([1, 2], 2, 0);
    job.ready(1, 2);
    assert_eq!(
        job.dies(2, 0),
        [
            "lost w2 while forming: its agent saw it end (signal 9)",
            "halting for g1.3",
            "to w1: halt g1.3",
        ]
    );
    assert_eq!(job.halted(1, 2, 0), [""; 0], "GEN-3");
    assert_eq!(job.halted(1, 3, 0)[0], "forming g1.3 of [1] at s0");
}

/// The gradients that the dead alone held are counted as computed again; the survivors keep theirs.
#[test]
fn a_death_costs_what_the_dead_had_not_summed() {
    let mut job = Job::training(2, config());
    let tally = Tally {
        total: 9,
        step: s(4),
        this_step: 1,
        previous_step: 2,
    };
    job.exits(2, Some(tally));
    let commands = job.halts(1, g(2), standing(4));
    assert!(
        commands.iter().any(|command| matches!(
            command,
            Command::Tell(JobEvent::Generation(GenerationEvent::Forming { recomputed: 1, .. }))
        )),
        "{commands:?}"
    );
}

#[test]
fn when_all_are_dead_the_state_is_lost_and_that_is_told() {
    let mut job = Job::training(2, config());
    job.progress(1, 1, 5, &[0, 1, 2, 3, 4]);
    job.dies(1, 5);
    assert_eq!(
        job.dies(2, 4),
        [
            "lost w2 while halting: its agent saw it end (signal 9)",
            "waiting: 0 here, needs at least 1 worker",
        ]
    );
    assert_eq!(job.arrives(3, 0), ["joined w3 at s0", "held for w3", "to w3: halt g1.2"]);
    assert_eq!(
        job.halted(3, 2, 0),
        [
            "state lost: s5 reached, again from s0",
            "forming g1.2 of [3] at s0",
            "to w3: form g1.2 r0 at s0",
        ]
    );
    job.ready(3, 2);
    assert_eq!(job.progress(3, 2, 1, &[0])[0], "steps [s0]", "the steps are told again");
}

#[test]
fn a_holder_of_the_state_that_was_only_cut_off_is_waited_for() {
    let waiting = "waiting: 1 here, needs a worker that holds the state and may be on its way back";
    let cut_off = || {
        let mut job = Job::training(1, config());
        job.progress(1, 1, 5, &[0, 1, 2, 3, 4]);
        job.is_cut_off(1);
        assert_eq!(job.arrives(2, 0), ["joined w2 at s0", "held for w2", "to w2: halt g1.2"]);
        assert_eq!(job.halted(2, 2, 0), [waiting]);
        job
    };
    let mut job = cut_off();
    assert_eq!(job.arrives(1, 5), ["joined w1 at s5", "halting for g1.3", "to w1: halt g1.3"]);
    assert_eq!(
        job.halted(1, 3, 5),
        [
            "forming g1.3 of [2, 1] at s5",
            "to w2: form g1.3 r0 at s5, state from r1",
            "to w1: form g1.3 r1 at s5",
        ]
    );
    // It ended after all, which is certain.
    let mut job = cut_off();
    assert_eq!(job.dies(1, 5)[0], "state lost: s5 reached, again from s0");
    // It stays away.
    let mut job = cut_off();
    job.now = STATE_GRACE - Duration::from_millis(1);
    assert_eq!(job.progress(2, 1, 0, &[]), [""; 0]);
    let told = job.passes(Duration::from_millis(1));
    assert_eq!(told[0], "state lost: s5 reached, again from s0");
}

/// The step before the one from which training began again counts for no worker any more.
#[test]
fn a_holder_of_the_state_that_training_began_again_with_is_waited_for() {
    let mut job = Job::training(1, config());
    job.progress(1, 1, 5, &[0, 1, 2, 3, 4]);
    job.dies(1, 5);
    job.arrives(2, 1);
    assert_eq!(job.halted(2, 2, 1)[0], "state lost: s5 reached, again from s1");
    job.ready(2, 2);
    job.is_cut_off(2);
    assert_eq!(job.arrives(3, 0)[2], "to w3: halt g1.4");
    let waiting = "waiting: 1 here, needs a worker that holds the state and may be on its way back";
    assert_eq!(job.halted(3, 4, 0), [waiting]);
}

#[test]
fn who_comes_back_while_training_must_halt_first() {
    let mut job = Job::training(2, config());
    job.is_cut_off(2);
    job.halted(1, 2, 3);
    job.ready(1, 2);
    let trains = Introduction {
        training: true,
        ..introduction(g(1), standing(3))
    };
    assert_eq!(
        job.introduces(2, trains),
        ["joined w2 at s3", "halting for g1.3", "to w1: halt g1.3", "to w2: halt g1.3"]
    );
}

/// The only holder of the state is silent for so long that the others begin anew; then it is back after all.
#[test]
fn a_state_that_was_given_up_is_taken_when_its_holder_comes_back() {
    let returns = |step| {
        let mut job = Job::training(2, config());
        let told = job.introduces(3, introduction(g(1), standing(step)));
        (told, job.membership.stage())
    };
    let (told, stage) = returns(2);
    assert_eq!(stage, Stage::Halting, "{told:?}");
    assert_eq!(told[..2], ["joined w3 at s2", "halting for g1.2"]);
    let (told, stage) = returns(1);
    assert_eq!(
        stage,
        Stage::Running,
        "the others are about to have that step again: {told:?}"
    );
}
