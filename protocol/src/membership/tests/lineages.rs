//! Fast order: states of the same step may differ, where a step was computed again. Then members come to one of them.

use super::*;
use crate::job::Order;
use crate::words::{Rank, ShardRange};

fn fast() -> Config {
    Config {
        order: Order::Fast,
        ..config()
    }
}

/// At this step, to which the sums of these generations have led, of an earlier life of the coordinator.
fn led(step: u64, last: u64, before: u64) -> Standing {
    let of = |count| Generation::new(Incarnation::new(0), count);
    Standing {
        lineage: Lineage {
            last: of(last),
            before: Some(of(before)),
        },
        ..standing(step)
    }
}

/// What members 1 to 3 of g1 are told, once they have halted for `g2` with this. A fourth one is dead.
fn told(standings: [Standing; 3]) -> Vec<(u64, Form)> {
    let mut job = Job::training(4, fast());
    job.dies(4, 5);
    let halts = (1..)
        .zip(standings)
        .map(|(worker, standing)| job.halts(worker, g(2), standing));
    forms(&halts.last().expect("there are three"))
}

fn ways(forms: &[(u64, Form)]) -> Vec<CatchUp> {
    forms.iter().map(|(_, form)| form.catch_up).collect()
}

const FROM_0: CatchUp = CatchUp::State { from: Rank::ZERO };

#[test]
fn a_state_that_another_generation_led_to_gives_way_to_the_newest_ones() {
    let forms = told([led(5, 1, 1), led(5, 2, 1), led(5, 2, 1)]);
    let from_1 = CatchUp::State { from: Rank::new(1) };
    assert_eq!(ways(&forms), [from_1, CatchUp::None, CatchUp::None]);
    let lineage = led(5, 2, 1).lineage;
    assert!(forms.iter().all(|(_, form)| form.lineage == lineage), "all come to have it");
}

#[test]
fn a_sum_is_fetched_where_it_leads_on_from_the_fetchers_state() {
    let sum = CatchUp::Sum { from: Rank::ZERO };
    let forms = told([led(6, 2, 1), led(5, 1, 1), led(5, 2, 1)]);
    assert_eq!(
        ways(&forms),
        [CatchUp::None, sum, FROM_0],
        "g2's sum was added to what g1's had led to"
    );
}

#[test]
fn what_led_to_a_copied_state_before_is_known_from_others() {
    let copied = || Standing {
        lineage: Lineage::of(Order::Fast, Generation::new(Incarnation::new(0), 2)),
        ..led(6, 2, 1)
    };
    let forms = told([copied(), led(6, 2, 1), led(5, 1, 1)]);
    let sum = CatchUp::Sum { from: Rank::new(1) };
    assert_eq!(ways(&forms), [CatchUp::None, CatchUp::None, sum]);
    assert!(forms.iter().all(|(_, form)| form.lineage == led(6, 2, 1).lineage));
    let forms = told([copied(), copied(), led(5, 1, 1)]);
    assert_eq!(ways(&forms), [CatchUp::None, CatchUp::None, FROM_0], "not known of any");
}

/// One that says that its sum was added to another state than the others of its state say: else the one behind would be told of a sum that does not fit.
#[test]
fn of_what_a_state_was_before_the_greatest_counts() {
    let forms = told([led(6, 2, 2), led(6, 2, 1), led(5, 1, 1)]);
    assert_eq!(ways(&forms), [CatchUp::None, CatchUp::None, FROM_0]);
    let forms = told([led(6, 2, 2), led(6, 2, 1), led(5, 2, 1)]);
    let sum = CatchUp::Sum { from: Rank::ZERO };
    assert_eq!(ways(&forms), [CatchUp::None, CatchUp::None, sum]);
}

#[test]
fn gradients_of_another_state_are_not_kept() {
    let kept = vec![ShardRange::new(0, 1)];
    let own = Standing {
        kept: vec![ShardRange::new(1, 2)],
        ..led(5, 2, 1)
    };
    let forms = told([Standing { kept, ..led(5, 1, 1) }, own, led(5, 2, 1)]);
    let first = |rank: usize| forms[rank].1.first.shards();
    assert!(
        first(1).iter().any(|range| range.iter().any(|shard| shard == 1)),
        "its own are"
    );
    let all: Vec<u32> = (0..3).flat_map(first).flat_map(ShardRange::iter).collect();
    assert_eq!(all.len(), 4, "each shard once: {all:?}");
    assert_eq!(ways(&forms)[0], CatchUp::State { from: Rank::new(1) });
}

#[test]
fn a_leaver_that_alone_has_the_newest_state_takes_part_once_more() {
    for (own, members) in [(led(5, 2, 1), vec![1, 2]), (led(5, 1, 1), vec![1])] {
        let mut job = Job::training(3, fast());
        job.dies(3, 5);
        job.leaves(2);
        job.halts(1, g(2), led(5, 1, 1));
        let formed = forms(&job.halts(2, g(2), own));
        let told: Vec<u64> = formed.iter().map(|(worker, _)| *worker).collect();
        assert_eq!(told, members);
    }
}

#[test]
fn what_is_prepared_begins_with_what_the_present_generations_sum_leads_to() {
    let mut job = Job::joined(fast());
    let commands = job.event(Event::Said {
        worker: w(3),
        message: WorkerMessage::CaughtUp {
            snapshot: snapshot(1, 5),
            step: s(5),
        },
    });
    let prepared: Vec<Lineage> = commands
        .iter()
        .filter_map(|command| match command {
            Command::Send {
                message: CoordinatorMessage::Prepare(form),
                ..
            } => Some(form.lineage),
            Command::Send { .. }
            | Command::Kill { .. }
            | Command::Order { .. }
            | Command::Commit { .. }
            | Command::Tell(_) => None,
        })
        .collect();
    assert_eq!(prepared, [Lineage::of(Order::Fast, g(1)); 3]);
}
