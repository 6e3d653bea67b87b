//! What a campaign that is long enough must have done: each check made, each kind of fault struck, each transition reached, and no more
//! excused than there is reason for. An oracle that was never asked has not answered.

use strum::VariantArray;

use super::campaign::Report;
use super::coverage::COVERED_WITHIN;
use super::faults::Fault;

/// All checks, by the names that [`super::Violation`] has. One that is not listed here is a mistake of the simulator.
pub(crate) const CHECKS: &[&str] = &[
    "BITS-1",
    "BITS-1, at the end",
    "CKPT-1, committed",
    "CKPT-1, deleting",
    "CKPT-1, pieces first",
    "CKPT-1, pieces on disks",
    "CKPT-2",
    "CKPT-2, resuming",
    "DATA-1",
    "GEN-1",
    "GEN-1, adopting",
    "GEN-2, all orders",
    "GEN-2, one order",
    "GEN-3",
    "GEN-3, welcoming",
    "LIVE-1",
    "LIVE-1, coming to rest",
    "LIVE-1, ending",
    "STEP-1",
    "STEP-1, halting",
    "STEP-2",
    "a donor has what is fetched",
    "a leave loses nothing",
    "a sum comes once",
    "all are at the end",
    "all are ready first",
    "all have halted first",
    "an honest worker is believed",
    "checkpoints come",
    "each count is known",
    "each gradient once",
    "memory is bounded",
    "nothing is applied after the end",
    "only a whole ring is adopted",
    "progress speaks for the silent",
    "the job ends where it should",
    "the last state is saved",
    "the newest checkpoint is resumed from",
    "the state is lost with its holders",
    "what is there is not computed anew but for want of memory",
    "who comes back waits first",
    "who follows asks on",
    "who was let go stays away",
    "who works is not left out as one who hangs",
];

/// A reason not to check, or to let pass what a check found.
#[derive(Debug)]
pub(crate) struct Excuse {
    /// As the invariants say it.
    pub(crate) why: &'static str,
    /// The check that is not made, or that stands for those that are not.
    pub(crate) check: &'static str,
    /// Whether it is needed in every long campaign: else what it excuses does not happen any more.
    pub(crate) needed: bool,
    /// Of 1,000 such checks and excuses at most so many may be excuses: else it excuses something else as well.
    pub(crate) most: u64,
}

/// All of them. The bounds are those of long campaigns, with room to both sides.
pub(crate) const EXCUSES: &[Excuse] = &[
    Excuse {
        why: "a coordinator does not know what was counted in an earlier life",
        check: "each count is known",
        needed: true,
        most: 700,
    },
    Excuse {
        why: "a coordinator without its records adopts an older generation",
        check: "GEN-1, adopting",
        needed: false,
        most: 20,
    },
    Excuse {
        why: "a piece has rotted on a disk with a checkpoint that is told of",
        check: "CKPT-1, pieces on disks",
        needed: true,
        most: 450,
    },
    Excuse {
        why: "a run is over since no checkpoint can be resumed from",
        check: "the job ends where it should",
        needed: true,
        most: 350,
    },
    Excuse {
        why: "a worker leaves while one that is to stay is gone unseen",
        check: "a leave loses nothing",
        needed: true,
        most: 150,
    },
    Excuse {
        why: "a worker that leaves has waited for an heir in vain",
        check: "a leave loses nothing",
        needed: true,
        most: 60,
    },
    Excuse {
        why: "how many gradients were computed cannot be known",
        check: "the job ends where it should",
        needed: true,
        // In most runs connections break.
        most: 600,
    },
];

/// Checks that are made so seldom that only a campaign of ten times [`COVERED_WITHIN`] must have made them.
const RARE: &[&str] = &["who comes back waits first", "who works is not left out as one who hangs"];

impl Report {
    /// What keeps the campaign from being believed. Nothing, if it was long enough, went everywhere, and looked everywhere.
    #[must_use]
    pub fn lacks(&self) -> Vec<String> {
        let mut lacks: Vec<String> = self
            .checked
            .keys()
            .filter(|check| !CHECKS.contains(check))
            .map(|check| format!("the check `{check}` is not listed as one that must be made"))
            .collect();
        let unlisted = self
            .excused
            .keys()
            .filter(|why| EXCUSES.iter().all(|excuse| excuse.why != **why));
        lacks.extend(unlisted.map(|why| format!("the excuse `{why}` is not listed with its bounds")));
        if self.counted < COVERED_WITHIN {
            return lacks;
        }
        let due = |check: &&&str| !RARE.contains(*check) || self.counted >= 10 * COVERED_WITHIN;
        let unmade = CHECKS.iter().filter(|check| !self.checked.contains_key(*check)).filter(due);
        lacks.extend(unmade.map(|check| format!("the check `{check}` was never made")));
        let faults = Fault::VARIANTS.iter().map(|fault| fault.name());
        let unstruck = faults.filter(|fault| !self.counts.faults.contains_key(fault));
        lacks.extend(unstruck.map(|fault| format!("the fault `{fault}` never struck")));
        let missing = self.coverage.missing();
        lacks.extend(
            missing
                .iter()
                .map(|(list, from, to)| format!("never reached: {list}: {from} {to}")),
        );
        lacks.extend(EXCUSES.iter().filter_map(|excuse| self.beyond(excuse)));
        lacks
    }

    /// Says so if an excuse was used more seldom, or more often, than it may be.
    fn beyond(&self, excuse: &Excuse) -> Option<String> {
        let times = self.excused.get(excuse.why).copied().unwrap_or(0);
        let all = self.checked.get(excuse.check).copied().unwrap_or(0) + times;
        let share = times * 1_000 / all.max(1);
        let Excuse {
            why,
            check,
            needed,
            most,
        } = excuse;
        let right = share <= *most && (times > 0 || !needed);
        (!right).then(|| {
            let least = if *needed { "one" } else { "none" };
            format!("`{why}` was said {times} times of {all} (`{check}`), expected are {least} to {most} of 1,000")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A campaign that has done all that it must, with each excuse used as often as it may be.
    fn complete() -> Report {
        let mut report = Report {
            counted: 10 * COVERED_WITHIN,
            checked: CHECKS.iter().map(|check| (*check, 1_000_000)).collect(),
            ..Report::default()
        };
        for excuse in EXCUSES {
            let times = 1_000_000 * excuse.most / (1_000 - excuse.most.min(999));
            report.excused.insert(excuse.why, times.max(1));
        }
        let faults = Fault::VARIANTS.iter();
        report.counts.faults = faults.map(|fault| (fault.name(), 1)).collect::<BTreeMap<_, _>>();
        report
    }

    /// Without the transitions, which only real runs reach.
    fn lacks(report: &Report) -> Vec<String> {
        let reached = |lack: &String| !lack.starts_with("never reached: ");
        report.lacks().into_iter().filter(reached).collect()
    }

    #[test]
    fn a_campaign_that_did_all_lacks_nothing_and_a_check_or_fault_that_never_came_is_named() {
        assert_eq!(lacks(&complete()), Vec::<String>::new());
        for check in CHECKS {
            let mut report = complete();
            report.checked.remove(check);
            assert!(lacks(&report).iter().any(|lack| lack.contains(check)), "{check}");
            report.counted = COVERED_WITHIN / 2;
            assert_eq!(lacks(&report), Vec::<String>::new(), "too short to demand it");
        }
        for fault in Fault::VARIANTS.iter() {
            let mut report = complete();
            report.counts.faults.remove(fault.name());
            assert_eq!(lacks(&report), [format!("the fault `{}` never struck", fault.name())]);
        }
        assert!(!complete().lacks().is_empty(), "no transition was reached");
    }

    #[test]
    fn an_excuse_that_is_used_too_often_or_never_is_named() {
        for excuse in EXCUSES {
            let mut report = complete();
            report.excused.remove(excuse.why);
            assert_eq!(lacks(&report).len(), usize::from(excuse.needed), "{excuse:?}");
            let too_often = 1_000_000 * (excuse.most + 2) / (998 - excuse.most.min(997));
            report.excused.insert(excuse.why, too_often);
            assert_eq!(lacks(&report).len(), 1, "{excuse:?}");
        }
    }

    #[test]
    fn a_name_that_is_not_listed_is_a_mistake_also_in_a_short_campaign() {
        let mut report = Report::default();
        report.checked.insert("something", 1);
        report.excused.insert("for no reason", 1);
        assert_eq!(report.lacks().len(), 2);
    }
}
