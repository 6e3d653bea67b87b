//! What is counted as computed again, and when that is in doubt.

use super::*;
use crate::lineage::Lineage;
use crate::words::ShardRange;

const WORKER: WorkerId = WorkerId::new(1);

fn tally(step: u64, this_step: u32, previous_step: u32) -> Tally {
    Tally {
        total: 100,
        step: Step::new(step),
        this_step,
        previous_step,
    }
}

fn standing(tally: Tally, kept: u32) -> Standing {
    Standing {
        step: tally.step,
        lineage: Lineage::default(),
        kept: vec![ShardRange::new(0, kept)],
        sum: None,
        stop_at: None,
        tally,
    }
}

/// A worker was lost whose count is not known, and a generation resumes without it at s7.
fn missed() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.lost(WORKER, None);
    ledger.resume(Step::new(7));
    ledger
}

impl Ledger {
    /// The worker is back and has halted. The others are at s8.
    fn is_back(&mut self, tally: Tally, kept: u32) {
        self.returned(WORKER, &standing(tally, kept), Halted::Yes, Step::new(8));
    }

    /// How many gradients the lost have computed, and of how many it is not known.
    fn computed_and_unknown(&self) -> (u64, u32) {
        (self.computed(std::iter::empty()), self.unknown())
    }
}

#[test]
fn a_death_costs_what_was_not_summed() {
    let lost = |tally| {
        let mut ledger = Ledger::default();
        ledger.lost(WORKER, Some(tally));
        ledger.resume(Step::new(7))
    };
    assert_eq!(lost(tally(7, 2, 3)), 2, "it died in the step under way");
    assert_eq!(lost(tally(6, 2, 3)), 0, "the others have the sum it took part in");
    assert_eq!(lost(tally(8, 2, 3)), 5, "it took the only sum along");
}

/// What the checkpoint holds beside the gradients that are known may be those of the worker whose end no agent has told yet.
#[test]
fn a_checkpoint_that_outlives_a_worker_whose_count_comes_later_leaves_a_doubt() {
    let resumed = |lost: Option<Tally>| {
        let mut ledger = Ledger::default();
        ledger.lost(WORKER, lost);
        ledger.resume_from_checkpoint(100);
        ledger
    };
    let mut late = resumed(None);
    late.found(WORKER, tally(7, 0, 0));
    assert_eq!(late.computed_and_unknown(), (100, 1), "they count once");
    assert_eq!(resumed(Some(tally(7, 0, 0))).computed_and_unknown(), (100, 0));
    let mut earlier = Ledger::default();
    earlier.resume_from_checkpoint(100);
    assert_eq!(earlier.computed_and_unknown(), (100, 0), "of an earlier run");
}

#[test]
fn what_was_given_up_for_an_older_checkpoint_is_not_in_vain_once_a_newer_one_is_back() {
    let mut ledger = Ledger::default();
    ledger.lost(WORKER, Some(tally(7, 0, 0)));
    ledger.resume_from_checkpoint(40);
    assert_eq!((ledger.computed_and_unknown(), ledger.recomputed()), ((100, 0), 60));
    ledger.resume_from_checkpoint(90);
    assert_eq!((ledger.computed_and_unknown(), ledger.recomputed()), ((100, 0), 10));
    ledger.resume_from_checkpoint(130);
    assert_eq!(
        (ledger.computed_and_unknown(), ledger.recomputed()),
        ((130, 0), 0),
        "some of an earlier run"
    );
}

#[test]
fn a_state_that_outlives_all_whose_counts_are_known_is_told_of() {
    let mut ledger = Ledger::default();
    ledger.lost(WORKER, None);
    assert_eq!(ledger.restart(60), 60, "its gradients are in the state that is left");
    let mut ledger = Ledger::default();
    ledger.lost(WORKER, Some(tally(7, 2, 3)));
    assert_eq!(ledger.restart(60), 0, "its count says so");
    assert_eq!(ledger.recomputed(), 40);
}

#[test]
fn losing_the_state_costs_everything() {
    let mut ledger = Ledger::default();
    ledger.lost(WORKER, Some(tally(5, 2, 2)));
    ledger.resume(Step::new(5));
    ledger.lost(WORKER, Some(tally(9, 1, 2)));
    ledger.lost(WORKER, None);
    ledger.restart(0);
    assert_eq!((ledger.computed_and_unknown(), ledger.recomputed()), ((200, 1), 200));
}

#[test]
fn a_count_that_comes_late_is_split_as_if_it_had_come_in_time() {
    let late = |resumed: &[u64], tally: Tally| {
        let mut ledger = Ledger::default();
        ledger.lost(WORKER, None);
        for &step in resumed {
            ledger.resume(Step::new(step));
        }
        assert_eq!(ledger.unknown(), 1);
        let news = ledger.found(WORKER, tally);
        assert_eq!(news, resumed.is_empty(), "what has resumed since tells where the job stands");
        assert_eq!(ledger.computed_and_unknown(), (100, 0));
        ledger.recomputed() + ledger.resume(Step::new(9))
    };
    assert_eq!(late(&[7, 8], tally(7, 2, 3)), 2, "the others computed them again long ago");
    assert_eq!(late(&[8, 7], tally(8, 2, 3)), 5, "they went back one step");
    assert_eq!(late(&[8], tally(7, 2, 3)), 0, "the others had the sum it took part in");
    assert_eq!(late(&[], tally(9, 2, 3)), 2, "nothing has happened since");
}

#[test]
fn what_a_worker_had_reached_and_not_told_is_not_clear() {
    let mut ledger = Ledger::default();
    ledger.lost(WORKER, None);
    ledger.resume(Step::new(1));
    ledger.found(WORKER, tally(8, 1, 8));
    assert_eq!((ledger.recomputed(), ledger.unknown()), (9, 1), "those of s1 to s6 as well");
}

#[test]
fn a_worker_that_is_back_is_not_unknown() {
    let mut ledger = missed();
    let tally = tally(7, 2, 3);
    ledger.returned(WORKER, &standing(tally, 0), Halted::NotYet, Step::new(8));
    assert_eq!((ledger.unknown(), ledger.recomputed()), (1, 0), "it goes on");
    ledger.is_back(tally, 2);
    assert_eq!((ledger.unknown(), ledger.recomputed()), (0, 2));
    assert_eq!(ledger.computed([100].into_iter()), 100, "it counts for itself");
    ledger.is_back(tally, 3);
    assert_eq!(ledger.recomputed(), 2, "it halts for other reasons");
}

#[test]
fn the_gradient_under_way_of_a_worker_that_is_back_is_in_vain_too() {
    let late = |step, kept| {
        let mut ledger = missed();
        ledger.is_back(tally(step, 2, 3), kept);
        ledger.recomputed()
    };
    assert_eq!(late(7, 3), 3);
    assert_eq!(late(7, 8), 3, "it has not begun the others");
    assert_eq!(late(7, 2), 2);
    assert_eq!(late(6, 3), 0, "the others had the sum it took part in");
}

#[test]
fn a_worker_that_comes_back_and_ends_before_it_halts_is_counted_once() {
    let mut ledger = missed();
    ledger.returned(WORKER, &standing(tally(7, 2, 3), 2), Halted::NotYet, Step::new(8));
    ledger.lost(WORKER, Some(tally(7, 3, 3)));
    ledger.resume(Step::new(7));
    assert_eq!((ledger.computed_and_unknown(), ledger.recomputed()), ((100, 0), 3));
}

#[test]
fn what_was_in_vain_when_it_came_back_is_not_so_again_when_it_is_lost() {
    let lost_again = |end: &dyn Fn(&mut Ledger)| {
        let mut ledger = missed();
        ledger.is_back(tally(7, 2, 3), 2);
        ledger.resume(Step::new(7));
        end(&mut ledger);
        assert_eq!(ledger.computed_and_unknown(), (100, 0));
        ledger
    };
    let end = tally(17, 0, 3);
    let heard = |ledger: &mut Ledger| ledger.lost(WORKER, Some(end));
    let late = |ledger: &mut Ledger| {
        ledger.lost(WORKER, None);
        ledger.resume(Step::new(27));
        assert!(!ledger.found(WORKER, end));
    };
    let after_a_restart = |ledger: &mut Ledger| {
        ledger.lost(WORKER, None);
        ledger.restart(0);
        ledger.found(WORKER, end);
    };
    let kept = |ledger: &mut Ledger, kept| {
        ledger.restart(kept);
        ledger.recomputed()
    };
    assert_eq!(kept(&mut lost_again(&heard), 98), 2, "all others are in the state");
    assert_eq!(kept(&mut lost_again(&late), 98), 2);
    assert_eq!(kept(&mut lost_again(&late), 90), 10);
    assert_eq!(lost_again(&after_a_restart).recomputed(), 100, "all of them, once");
}

#[test]
fn what_a_state_holds_of_one_that_came_back_is_without_what_it_did_in_vain() {
    let mut ledger = Ledger::default();
    let holds = |ledger: &Ledger, step, this_step, at| {
        ledger.useful_of(WORKER, &standing(tally(step, this_step, 3), 0), Step::new(at))
    };
    assert_eq!(holds(&ledger, 7, 2, 7), 98, "what it has of this step is in no state");
    ledger.lost(WORKER, None);
    ledger.resume(Step::new(7));
    ledger.is_back(tally(7, 2, 3), 3);
    assert_eq!(holds(&ledger, 7, 3, 7), 97, "no less for being in vain");
    assert_eq!(holds(&ledger, 9, 2, 9), 95);
    assert_eq!(holds(&ledger, 9, 2, 10), 97);
}

#[test]
fn one_that_came_back_and_is_lost_again_at_once_leaves_a_doubt() {
    let ends = |step| {
        let mut ledger = missed();
        ledger.is_back(tally(7, 2, 3), 3);
        assert_eq!((ledger.unknown(), ledger.recomputed()), (0, 3), "two, and the one under way");
        ledger.lost(WORKER, Some(tally(step, 2, 3)));
        ledger.unknown()
    };
    assert_eq!((ends(7), ends(8), ends(9)), (1, 1, 0));
}

#[test]
fn what_one_that_comes_back_has_of_the_step_under_way_may_be_used() {
    let comes_back = |reached| {
        let mut ledger = missed();
        ledger.returned(WORKER, &standing(tally(8, 2, 3), 2), Halted::Yes, Step::new(reached));
        ledger.unknown()
    };
    assert_eq!((comes_back(8), comes_back(9)), (1, 0));
}

#[test]
fn a_lost_worker_of_whom_it_is_open_no_longer_what_was_in_vain_leaves_a_doubt() {
    let mut ledger = Ledger::default();
    let lose = |ledger: &mut Ledger, worker| ledger.lost(WorkerId::new(worker), Some(tally(7, 2, 3)));
    (0..OPEN_TALLIES as u64).for_each(|worker| lose(&mut ledger, worker));
    assert_eq!((ledger.open(), ledger.unknown()), (OPEN_TALLIES, 0));
    lose(&mut ledger, OPEN_TALLIES as u64);
    assert_eq!(
        (ledger.open(), ledger.unknown()),
        (OPEN_TALLIES, 1),
        "there is no room for more"
    );
    assert_eq!(ledger.resume(Step::new(7)), 2 * OPEN_TALLIES as u64);
}

#[test]
fn what_was_lost_and_may_live_on_in_a_joiners_state_leaves_a_doubt() {
    let rescued = |lost, members| {
        let mut ledger = Ledger::default();
        ledger.lost(WORKER, Some(tally(lost, 2, 3)));
        ledger.resume(Step::new(7));
        ledger.rescued_from(Step::new(members));
        ledger.unknown()
    };
    assert_eq!((rescued(7, 7), rescued(7, 8)), (1, 0), "all members have what it had");
    assert_eq!(rescued(6, 6), 0, "nothing was lost");
}

#[test]
fn those_that_had_come_back_when_an_earlier_version_wrote_them_down_leave_a_doubt_each() {
    let earlier = EarlierLedger {
        recent: vec![],
        useful: 0,
        gone: 0,
        recomputed: 0,
        unsure: 1,
        unknown: BTreeMap::new(),
        vain: [(WORKER, Step::new(7)), (WorkerId::new(2), Step::new(8))].into(),
    };
    assert_eq!(Ledger::from(earlier).unknown(), 3);
}
