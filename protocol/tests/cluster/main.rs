//! Whole clusters of machines: one coordinator and its workers, under arbitrary deaths, joins, lost, delayed and reordered
//! messages. The invariants are checked after every event; then the faults stop and the job must end with the reference state.

mod hostile;
mod model;
mod ring;
mod run;
mod world;

use hostile::alone::{besiege_coordinator, besiege_member};
use hostile::siege::{End, Siege};
use proptest::prelude::*;
use run::{REPLAY, Run};
use world::{Chaos, Story, World};

/// How many runs each property gets: `PROPTEST_CASES`, or a few.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(400)
}

/// Nothing goes wrong for so many events: workers only come.
fn peace(events: u32) -> Chaos {
    Chaos {
        events,
        kills: 0,
        losses: 0,
        cuts: 0,
        drains: 0,
        crashes: 0,
    }
}

proptest! {
    // A failing case prints all that replays it. One worth keeping becomes a test of its own with a name, not a line of numbers
    // in a regressions file.
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn deaths_and_joins_never_change_the_result(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 1_u64..12, events in 0_u32..1500,
    ) {
        let chaos = Chaos { events, kills: 12, losses: 0, cuts: 0, drains: 0, crashes: 0 };
        Run { seed, workers, shards, steps, chaos, stop: None }.play();
    }

    #[test]
    fn joins_and_drains_never_change_the_result(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 10_u64..40, events in 500_u32..6000,
        kills in 0_u32..12,
    ) {
        let chaos = Chaos { events, kills, losses: 0, cuts: 0, drains: 8, crashes: 0 };
        Run { seed, workers, shards, steps, chaos, stop: None }.play();
    }

    #[test]
    fn lost_and_reordered_messages_never_change_the_result(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 1_u64..12, events in 0_u32..2500,
    ) {
        let chaos = Chaos { events, kills: 4, losses: 100, cuts: 8, drains: 4, crashes: 0 };
        Run { seed, workers, shards, steps, chaos, stop: None }.play();
    }

    #[test]
    fn joins_and_drains_with_lost_messages_never_change_the_result(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 10_u64..40, events in 500_u32..6000,
        kills in 0_u32..6, cuts in 0_u32..12, losses in prop_oneof![Just(10_u32), Just(100), Just(300)],
    ) {
        let chaos = Chaos { events, kills, losses, cuts, drains: 8, crashes: 0 };
        Run { seed, workers, shards, steps, chaos, stop: None }.play();
    }

    #[test]
    fn a_stop_ends_the_job_at_one_boundary_with_its_state(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 1_u64..12,
        before in 0_u32..900, after in 0_u32..800, losses in prop_oneof![Just(0_u32), Just(100)],
    ) {
        let chaos = Chaos { events: before, kills: 4, losses, cuts: losses / 20, drains: 0, crashes: 0 };
        // Many cuts: some stop where the trailer says while others, without them, go on.
        let stop = Chaos { events: after, kills: 8, losses, cuts: losses * 3 / 5, drains: 4, crashes: 0 };
        Run { seed, workers, shards, steps, chaos, stop: Some(stop) }.play();
    }

    #[test]
    fn a_stop_among_joins_and_drains_ends_the_job_at_one_boundary(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 10_u64..40,
        before in 200_u32..3000, after in 0_u32..1500, kills in 0_u32..6, losses in prop_oneof![Just(0_u32), Just(100)],
    ) {
        let chaos = Chaos { events: before, kills, losses, cuts: losses / 20, drains: 8, crashes: 0 };
        let stop = Chaos { events: after, kills, losses, cuts: losses / 20, drains: 8, crashes: 0 };
        Run { seed, workers, shards, steps, chaos, stop: Some(stop) }.play();
    }

    #[test]
    fn a_coordinator_that_dies_changes_nothing(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 10_u64..40, events in 500_u32..6000,
        kills in 0_u32..6, drains in 0_u32..6, crashes in 1_u32..8,
    ) {
        let chaos = Chaos { events, kills, losses: 0, cuts: 0, drains, crashes };
        Run { seed, workers, shards, steps, chaos, stop: None }.play();
    }

    #[test]
    fn coordinators_that_die_among_all_other_faults_change_nothing(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 10_u64..40,
        before in 200_u32..4000, after in 0_u32..1500, kills in 0_u32..6, cuts in 0_u32..8, crashes in 1_u32..8,
        losses in prop_oneof![Just(0_u32), Just(100)],
    ) {
        let chaos = Chaos { events: before, kills, losses, cuts, drains: 6, crashes };
        let stop = Chaos { events: after, kills, losses, cuts, drains: 6, crashes };
        Run { seed, workers, shards, steps, chaos, stop: Some(stop) }.play();
    }

    #[test]
    fn an_undisturbed_stop_computes_every_gradient_once(
        seed in any::<u64>(), workers in 1_u32..7, shards in 1_u32..17, steps in 1_u64..12, before in 0_u32..1500,
    ) {
        let summary = Run { seed, workers, shards, steps, chaos: peace(before), stop: Some(peace(0)) }.play();
        if let Some(summary) = summary {
            prop_assert_eq!(summary.computed, u64::from(shards) * summary.step.get());
            prop_assert_eq!(summary.recomputed, 0);
        }
    }

    #[test]
    fn nobody_dies_and_every_gradient_is_computed_once(
        seed in any::<u64>(), workers in 1_u32..9, shards in 1_u32..17, steps in 1_u64..12,
    ) {
        let summary = Run { seed, workers, shards, steps, chaos: peace(0), stop: None }.play().expect("it is not stopped");
        prop_assert_eq!(summary.computed, u64::from(shards) * steps);
        prop_assert_eq!(summary.recomputed, 0);
    }
}

/// The seeds of runs with peers that lie, which are longer than the others: always the same ones, and more of them on demand.
fn sieges() -> impl Iterator<Item = u64> {
    (0..cases().div_ceil(8)).map(|number| model::mix(1, number.into()))
}

#[test]
fn a_coordinator_that_is_told_anything_does_not_end_and_does_not_grow() {
    let largest = sieges().map(|seed| besiege_coordinator(seed, 4_000)).max();
    println!("the coordinator was at most {largest:?} bytes of text");
}

#[test]
fn a_worker_that_is_told_anything_does_not_end_and_does_not_grow() {
    let largest = sieges().map(|seed| besiege_member(seed, 3_000)).max();
    println!("a worker was at most {largest:?} bytes of text");
}

#[test]
fn workers_that_lie_do_not_keep_the_honest_from_the_right_state() {
    let (mut well, mut failed) = (0, Vec::new());
    for seed in sieges() {
        match Siege::drawn(seed).play(Story::Untold) {
            End::Well => well += 1,
            End::Failed(reason) => failed.push(reason),
        }
    }
    println!("{well} ended well, {} by the word of who lies: {failed:#?}", failed.len());
    assert!(
        well > failed.len() * 2,
        "{well} ended well, {} did not: {failed:#?}",
        failed.len()
    );
}

#[test]
fn depots_and_agents_that_lie_do_not_keep_the_honest_from_the_right_state() {
    let ends: Vec<_> = sieges().map(|seed| Siege::of_others(seed).play(Story::Untold)).collect();
    // A depot may keep a job from beginning, by a checkpoint of another job; and is then named.
    let well = ends.iter().filter(|end| **end == End::Well).count();
    assert!(
        well * 2 > ends.len(),
        "{well} of {} jobs came to their end: {ends:?}",
        ends.len()
    );
    let failed = ends.iter().filter_map(End::failure);
    for reason in failed {
        assert!(reason.contains("can be resumed from"), "{reason}");
    }
}

/// Shards move while no worker comes or goes, and each gradient is computed once.
#[test]
fn shards_move_towards_the_faster() {
    let mut moved = Vec::new();
    for seed in 0..10 {
        let mut world = World::new(seed, 3, 16, 60, Story::Untold);
        let summary = world.heal().expect("it is not stopped");
        assert_eq!((summary.computed, summary.recomputed), (16 * 60, 0), "seed {seed}");
        moved.push(world.moved);
    }
    let most = moved.iter().filter(|&&times| times > 0).count();
    assert!(most > moved.len() / 2, "shards moved so often: {moved:?}");
}

/// All begin anew from what a joiner has of the state of two members that have left, and only then are these two's counts known. All that
/// they had computed was once counted as computed again.
#[test]
fn counts_that_come_after_the_state_is_lost_are_in_doubt() {
    let run: Run = "12266496340968174845 1 12 35 5708 1 0 0 8 0"
        .parse()
        .expect("a line that a failing run has printed");
    let summary = run.play().expect("it is not stopped");
    assert_eq!((summary.step.get(), summary.unknown), (35, 1));
}

/// Tells the story of the run that [`REPLAY`] names, if it names one, or [`hostile::siege::REPLAY`].
#[test]
fn replay() {
    if let Ok(seed) = std::env::var(hostile::siege::REPLAY) {
        let seed = seed.parse().expect("the number that a failing run has printed");
        println!("{:?}", Siege::drawn(seed).play(Story::Told));
        println!("{:?}", Siege::of_others(seed).play(Story::Told));
        println!(
            "{} and {} bytes",
            besiege_coordinator(seed, 4_000),
            besiege_member(seed, 3_000)
        );
    }
    if let Ok(words) = std::env::var(REPLAY) {
        let run: Run = words.parse().expect("the line that a failing run has printed");
        run.replay();
    }
}

/// Nothing stays of a worker that has died and said how much it had computed.
#[test]
fn a_job_that_outlives_thousands_of_workers_does_not_grow() {
    let mut world = World::new(3, 4, 8, 200_000, Story::Untold);
    let first = world.outlive(400);
    world.outlive(4_000);
    let last = world.outlive(400);
    println!("at first {first:?}, at last {last:?}");
    // Numbers get longer, and what a life leaves for a while is more at one time than at another. One number of each would be 40,000.
    for (first, last) in [(first.coordinator, last.coordinator), (first.oldest, last.oldest)] {
        assert!(last < first + 10_000, "{first} bytes of text have become {last}");
    }
}
