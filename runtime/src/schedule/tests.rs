//! Schedules against closed forms, at the ends of their ranges, and out of them.

use std::f64::consts::PI;

use super::*;

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-13 * expected.abs().max(1e-3)
}

#[test]
fn each_schedule_is_its_closed_form() {
    let over = 90_u32;
    let step = Schedule::step(0.4, 30, 0.1);
    let exponential = Schedule::exponential(0.256, 24, 0.97);
    let cosine = Schedule::cosine(0.5, 0.01, u64::from(over));
    let linear = Schedule::linear(0.01, 0.5, u64::from(over));
    for update in 0..over {
        let (number, part) = (u64::from(update), f64::from(update) / f64::from(over));
        let half_cosine = f64::midpoint(1.0, (PI * part).cos());
        assert_eq!(Schedule::constant(0.3).at(number), 0.3);
        assert!(close(step.at(number), 0.4 * 0.1_f64.powf(f64::from(update / 30))), "{update}");
        assert!(
            close(exponential.at(number), 0.256 * 0.97_f64.powf(f64::from(update) / 24.0)),
            "{update}"
        );
        assert!(close(cosine.at(number), 0.01 + 0.49 * half_cosine), "{update}");
        assert!(close(linear.at(number), 0.01 + 0.49 * part), "{update}");
    }
}

#[test]
fn curves_begin_and_end_exactly_where_they_say_and_stay_there() {
    for schedule in [Schedule::cosine(0.7, 0.1, 1_000), Schedule::linear(0.7, 0.1, 1_000)] {
        assert!(close(schedule.at(0), 0.7));
        assert!(schedule.at(999) > 0.1);
        for update in [1_000, 1_001, u64::MAX] {
            assert_eq!(schedule.at(update), 0.1);
        }
        assert!((0..1_000).all(|update| schedule.at(update) > schedule.at(update + 1)));
    }
    assert_eq!(Schedule::step(3.0, 10, 0.5).at(9), 3.0);
    assert_eq!(Schedule::step(3.0, 10, 0.5).at(10), 1.5);
    assert_eq!(Schedule::exponential(3.0, 10, 0.5).at(0), 3.0);
    assert_eq!(Schedule::exponential(3.0, 10, 0.5).at(20), 0.75);
    assert_eq!(Schedule::from(0.3), Schedule::constant(0.3));
}

#[test]
fn a_piece_lasts_until_the_next_begins() {
    let schedule = Schedule::pieces(&[(0, 1.0), (10, 0.5), (11, 0.0), (20, 2.0)]);
    for (update, rate) in [
        (0, 1.0),
        (9, 1.0),
        (10, 0.5),
        (11, 0.0),
        (19, 0.0),
        (20, 2.0),
        (u64::MAX, 2.0),
    ] {
        assert_eq!(schedule.at(update), rate, "{update}");
    }
}

#[test]
fn a_warm_up_rises_evenly_to_the_whole_rate_at_its_last_update() {
    for updates in [2, 7, 1_000] {
        let schedule = Schedule::constant(3.2).warm_up(updates);
        for update in 0..updates {
            assert!(
                close(schedule.at(update), 3.2 * (update + 1) as f64 / updates as f64),
                "{update} of {updates}"
            );
            assert!(
                update == 0 || schedule.at(update) > schedule.at(update - 1),
                "{update} of {updates}"
            );
        }
        for update in [updates - 1, updates, u64::MAX] {
            assert_eq!(schedule.at(update), 3.2);
        }
    }
    for updates in [0, 1] {
        assert_eq!(Schedule::constant(3.2).warm_up(updates).at(0), 3.2);
    }
    let schedule = Schedule::constant(2.0).warm_up_from(0.0, 5);
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(|update| schedule.at(update)),
        [0.0, 0.5, 1.0, 1.5, 2.0, 2.0]
    );
}

#[test]
fn a_warm_up_does_not_delay_what_it_warms_up() {
    let plain = Schedule::step(1.0, 30, 0.1);
    let warm = plain.clone().warm_up(45);
    for update in 0..100 {
        let factor = ((update + 1) as f64 / 45.0).min(1.0);
        assert!(close(warm.at(update), plain.at(update) * factor), "{update}");
    }
}

/// Goyal et al. 2017, section 5.1: ImageNet in batches of 8,192, which is 32 times 256. The rate of 0.1 becomes 3.2 over 5 epochs of
/// warm-up, and a tenth at epochs 30, 60 and 80, as Horovod's `LearningRateWarmupCallback` and `LearningRateScheduleCallback` are used
/// in its `ImageNet` examples.
#[test]
fn the_schedule_of_imagenet_in_one_hour_is_its_table_of_factors() {
    let epoch = 1_281_167_u64.div_ceil(8_192);
    let pieces = [(0, 3.2), (30 * epoch, 0.32), (60 * epoch, 0.032), (80 * epoch, 0.0032)];
    let ramp = Schedule::pieces(&pieces).warm_up(5 * epoch);
    let from_unscaled = Schedule::pieces(&pieces).warm_up_from(1.0 / 32.0, 5 * epoch);
    assert!(close(from_unscaled.at(0), 0.1));
    for schedule in [ramp, from_unscaled] {
        assert_eq!(schedule.check(), Ok(()));
        assert!((1..5 * epoch).all(|update| schedule.at(update) > schedule.at(update - 1)));
        for (first, end, factor) in [(5, 30, 1.0), (30, 60, 0.1), (60, 80, 0.01), (80, 90, 0.001)] {
            for update in [first * epoch, first * epoch + 1, end * epoch - 1] {
                assert!(
                    close(schedule.at(update), 3.2 * factor),
                    "update {update} of epochs of {epoch}"
                );
            }
        }
        assert_eq!(schedule.at(5 * epoch - 1), 3.2);
    }
}

#[test]
fn no_update_is_too_late_to_have_a_rate() {
    let schedules = [
        Schedule::step(0.1, 1, 0.5),
        Schedule::step(0.0, 1, 2.0),
        Schedule::step(0.1, 1, 2.0),
        Schedule::exponential(0.1, 3, 0.5),
        Schedule::exponential(0.0, 3, 2.0),
        Schedule::exponential(3.0, 3, 2.0),
        Schedule::exponential(0.1, u64::MAX, 0.0),
        Schedule::exponential(0.1, u64::MAX, 0.5),
        Schedule::cosine(0.1, 0.0, u64::MAX),
        Schedule::linear(0.0, f64::MAX, u64::MAX),
        Schedule::linear(f64::MAX, 0.0, u64::MAX),
        Schedule::constant(1.0).warm_up(u64::MAX),
        Schedule::pieces(&[(0, 1.0), (u64::MAX, 0.5)]),
    ];
    for schedule in schedules {
        assert_eq!(schedule.check(), Ok(()));
        for update in [0, 1, 1 << 32, u64::MAX - 1, u64::MAX] {
            let rate = schedule.at(update);
            assert!(rate.is_finite() && rate >= 0.0, "{}, {update}: {rate}", schedule.describe());
        }
    }
}

#[test]
fn what_makes_no_rate_is_refused_in_words_and_panics_nowhere() {
    let message = |schedule: Schedule| {
        let _ = [0, 1, u64::MAX].map(|update| schedule.at(update));
        schedule.check().unwrap_err().to_string()
    };
    for rate in [-0.1, f64::NAN, f64::INFINITY] {
        let words = message(Schedule::constant(rate));
        let expected = "constant schedule: expected rate to be finite and 0 or more, found";
        assert_eq!(words, format!("{expected} {rate}; correct it where the schedule is made"));
        for schedule in [
            Schedule::step(rate, 1, 0.1),
            Schedule::step(1.0, 1, rate),
            Schedule::exponential(rate, 1, 0.1),
            Schedule::exponential(1.0, 1, rate),
            Schedule::cosine(rate, 0.1, 1),
            Schedule::cosine(0.1, rate, 1),
            Schedule::linear(rate, 0.1, 1),
            Schedule::linear(0.1, rate, 1),
            Schedule::pieces(&[(0, 0.1), (5, rate)]),
            Schedule::constant(0.1).warm_up_from(rate, 5),
        ] {
            assert!(message(schedule).contains(&format!("found {rate};")));
        }
    }
    for schedule in [
        Schedule::step(1.0, 0, 0.1),
        Schedule::exponential(1.0, 0, 0.1),
        Schedule::cosine(1.0, 0.1, 0),
        Schedule::linear(1.0, 0.1, 0),
    ] {
        assert!(message(schedule).contains("1 update or more, found 0"));
    }
    assert!(message(Schedule::pieces(&[])).contains("found none"));
    assert!(message(Schedule::pieces(&[(3, 0.1)])).contains("at update 0, found 3"));
    for second in [0, 5] {
        let pieces = [(0, 1.0), (5, 0.5), (second, 0.1)];
        assert!(message(Schedule::pieces(&pieces)).contains(&format!("update 5 to begin later, found update {second}")));
    }
    assert!(message(Schedule::constant(0.1).warm_up_from(1.5, 5)).contains("a factor from 0 to 1, found 1.5"));
}

#[test]
fn a_description_has_all_constants() {
    for (schedule, expected) in [
        (Schedule::constant(1e-8), "constant(rate 0.00000001)"),
        (Schedule::step(0.1, 30, 0.5), "step(rate 0.1, every 30, factor 0.5)"),
        (
            Schedule::exponential(0.1, 30, 0.5),
            "exponential(rate 0.1, factor 0.5, every 30)",
        ),
        (Schedule::cosine(0.5, 0.1, 9), "cosine(from 0.5, to 0.1, over 9)"),
        (Schedule::linear(0.5, 0.1, 9), "linear(from 0.5, to 0.1, over 9)"),
        (Schedule::pieces(&[(0, 0.5), (7, 0.1)]), "pieces(0.5 from 0, 0.1 from 7)"),
        (
            Schedule::constant(3.0).warm_up(4),
            "constant(rate 3) times warm_up(from 0.25, updates 4)",
        ),
        (
            Schedule::constant(3.0).warm_up(4).warm_up_from(0.5, 7),
            "constant(rate 3) times warm_up(from 0.5, updates 7)",
        ),
    ] {
        assert_eq!(schedule.describe(), expected);
    }
}
