//! What an earlier life has written down, and what a later one believes of it.

use super::*;

/// What a worker's last word or its agent may have said, and no gradient can have been.
fn impossible() -> [Tally; 3] {
    let all = u64::MAX;
    [
        Tally {
            step: s(all),
            ..tally(3)
        },
        Tally { total: all, ..tally(3) },
        Tally {
            this_step: u32::MAX,
            previous_step: u32::MAX,
            ..tally(3)
        },
    ]
}

#[test]
fn a_count_that_cannot_be_is_in_no_record_and_ends_no_life() {
    for tally in impossible() {
        let mut job = Job::training(3, config());
        job.progress(1, 1, 3, &[]);
        job.exits(3, Some(tally));
        let claims = Standing { tally, ..standing(3) };
        assert_eq!(job.introduces(4, introduction(g(1), claims)), ["to w4: dismiss"]);
        job.all_halted([1, 2], 2, 3);
        assert_eq!(job.membership.reached(), s(3));
        let record = job.membership.record();
        assert_eq!(
            record,
            record.clone().within(job.membership.bounds()),
            "nothing of it is in the record"
        );
    }
}

/// As an earlier version wrote it.
#[test]
fn a_record_with_a_count_that_cannot_be_is_read_and_the_count_is_unknown() {
    for tally in impossible() {
        let mut job = Job::training(2, config());
        job.progress(1, 1, 3, &[]);
        job.membership.ledger.lost(w(3), Some(tally));
        job.membership.training.reached = s(u64::MAX);
        job.membership.training.next_report = s(u64::MAX);
        let record = job.membership.record();
        job.membership = Membership::resume(config(), Incarnation::new(2), job.now, Some(record));
        assert_eq!(job.membership.reached(), config().steps);
        let count = job.membership.ledger.clone();
        assert_eq!(count.unknown(), 3, "two workers that were there, and that count");
        // It goes on.
        for worker in [5, 6] {
            job.arrives(worker, 3);
        }
        job.now += Duration::from_secs(60);
        job.event(Event::Tick);
        let generation = job.membership.generation();
        for worker in [5, 6] {
            job.halts(worker, generation, standing(3));
        }
        assert_eq!(job.membership.stage(), crate::membership::Stage::Forming);
    }
}
