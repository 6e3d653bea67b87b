//! Where links cannot be made, the worker at fault is left out, whichever end says so.

use super::*;
use crate::limits::{LINK_GRACE, MAX_LINK_FAILURES};
use crate::status::Stage;

/// Members in the order of their ranks.
fn members(job: &Job) -> Vec<u64> {
    let formation = job.membership.formation.as_ref().expect("a generation was formed");
    formation.workers().map(WorkerId::get).collect()
}

/// Pairs of workers: the first tells of its link with the second.
type Reports = Vec<(u64, u64)>;

/// The neighbours of a member, where each has links with the next.
fn neighbours(members: &[u64], worker: u64) -> Vec<u64> {
    let place = members.iter().position(|&member| member == worker).expect("it is a member");
    let before = place.checked_sub(1).and_then(|before| members.get(before));
    before.into_iter().chain(members.get(place + 1)).copied().collect()
}

/// What does not pass at the broken end.
#[derive(Debug, Clone, Copy)]
enum Port {
    Out,
    In,
    Both,
}

impl Port {
    /// What workers notice of links with `broken`, `broken` itself among them.
    fn reports(self, members: &[u64], broken: u64) -> Reports {
        let others = neighbours(members, broken);
        let by_it = others.iter().map(|&other| (broken, other));
        let by_others = others.iter().map(|&other| (other, broken));
        match self {
            Self::Out => by_others.collect(),
            Self::In => by_it.collect(),
            Self::Both => by_others.chain(by_it).collect(),
        }
    }
}

impl Job {
    /// A generation is being formed. Workers that tell of no broken link are ready; the others tell theirs, and all halt.
    fn cannot_link(&mut self, reports: impl Fn(&[u64]) -> Reports) -> Vec<String> {
        assert_eq!(self.membership.stage(), Stage::Forming);
        let (count, all) = (self.membership.generation().count(), members(self));
        let reports = reports(&all);
        let mut told = vec![];
        for &member in all
            .iter()
            .filter(|member| reports.iter().all(|(teller, _)| teller != *member))
        {
            told.extend(self.ready(member, count));
        }
        for (teller, peer) in reports {
            told.extend(self.link_broken(teller, count, peer));
        }
        assert_eq!(self.membership.stage(), Stage::Halting, "{told:?}");
        let count = self.membership.generation().count();
        for member in all {
            told.extend(self.halted(member, count, 0));
        }
        told
    }

    /// A generation of these workers is to be formed.
    fn forming(workers: u64) -> Self {
        let mut job = Self::training(workers, config());
        job.membership.disturb();
        job.all_halted(1..=workers, 2, 0);
        job
    }

    /// As many generations as it takes until a worker is left out: which one that is.
    fn leaves_out(&mut self, reports: impl Fn(&[u64]) -> Reports) -> u64 {
        let before = members(self);
        for tries in 1.. {
            self.cannot_link(&reports);
            let gone: Vec<u64> = before.iter().copied().filter(|&one| !self.membership.knows(w(one))).collect();
            if let [gone] = gone[..] {
                assert!(tries >= MAX_LINK_FAILURES, "no worker is left out for an accident");
                return gone;
            }
            assert!(gone.is_empty() && tries < 10, "one is left out, in time: {gone:?}");
        }
        unreachable!("there are few tries")
    }
}

#[test]
fn a_worker_with_a_broken_port_is_left_out_wherever_it_is_and_whichever_end_notices() {
    for workers in [3, 4, 8] {
        for broken in 1..=workers {
            for port in [Port::Out, Port::In, Port::Both] {
                let mut job = Job::forming(workers);
                let gone = job.leaves_out(|members| port.reports(members, broken));
                assert_eq!(gone, broken, "{port:?} of {workers}");
                // The others train on, and nothing speaks against them any more.
                let count = job.membership.generation().count();
                job.all_ready((1..=workers).filter(|&worker| worker != broken), count);
                assert_eq!(job.membership.stage(), Stage::Running);
            }
        }
    }
}

#[test]
fn who_accuses_all_others_is_left_out_itself() {
    for workers in [3, 4, 8] {
        for liar in 1..=workers {
            let mut job = Job::forming(workers);
            let accuses = |members: &[u64]| {
                let others = neighbours(members, liar);
                others.into_iter().map(|other| (liar, other)).collect()
            };
            assert_eq!(job.leaves_out(accuses), liar, "of {workers}");
        }
    }
}

#[test]
fn what_a_worker_says_of_others_than_its_neighbours_counts_for_nothing() {
    let mut job = Job::training(4, config());
    for peer in [1, 3, 4, 99] {
        assert_eq!(job.link_broken(1, 1, peer), [""; 0], "{peer}");
    }
    assert_eq!(job.link_broken(1, 1, 2)[0], "halting for g1.2");
}

#[test]
fn between_two_the_one_that_came_last_goes_and_only_after_some_tries() {
    for port in [Port::Out, Port::In, Port::Both] {
        let mut job = Job::forming(2);
        assert_eq!(job.leaves_out(|members| port.reports(members, 1)), 2, "{port:?}");
    }
}

/// The first one was left out in its stead. Its state is in a checkpoint, or the second would be refused.
#[test]
fn of_two_the_one_that_a_second_cannot_be_linked_with_either_goes() {
    let mut job = Job::forming(2);
    let broken = 1;
    assert_eq!(job.leaves_out(|members| Port::Both.reports(members, broken)), 2);
    let count = job.membership.generation().count();
    job.ready(broken, count);
    assert_eq!(job.membership.stage(), Stage::Running, "it trains alone");
    job.comes(Arrival {
        address: SocketAddr::from(([10, 0, 0, 3], 1)),
        ..newcomer(3, standing(0))
    });
    job.membership.disturb();
    job.membership.call_in(w(3));
    let count = job.membership.generation().count();
    job.halted(broken, count, 0);
    job.halted(3, count, 0);
    assert_eq!(job.leaves_out(|members| Port::Both.reports(members, broken)), broken);
    assert!(job.membership.knows(w(3)));
}

#[test]
fn a_generation_that_works_clears_all_charges() {
    let mut job = Job::training(3, config());
    for count in 1..10 {
        job.link_broken(1, count, 2);
        job.all_halted(1..=3, count + 1, count - 1);
        job.all_ready(1..=3, count + 1);
        job.progress(1, count + 1, count, &[]);
    }
    assert_eq!(job.membership.stage(), Stage::Running);
    assert_eq!(job.membership.present(), 3);
}

/// The neighbour that lets go of its links since it cannot make another is not charged for that.
#[test]
fn a_link_that_broke_after_it_was_made_is_held_against_no_worker_if_others_could_not_be_made() {
    let mut job = Job::forming(4);
    for _ in 0..MAX_LINK_FAILURES {
        let count = job.membership.generation().count();
        job.all_ready([3, 4], count);
        assert_eq!(job.link_broken(3, count, 2), [""; 0], "2 lets go of it");
        assert_eq!(job.link_broken(2, count, 1), [""; 0], "1 may notice as well");
        assert_eq!(job.link_broken(1, count, 2)[0], format!("halting for g1.{}", count + 1));
        job.all_halted(1..=4, count + 1, 0);
    }
    assert!(!job.membership.knows(w(1)), "2 could be linked with 3");
    assert_eq!(members(&job), [2, 3, 4]);
}

#[test]
fn a_report_waits_a_moment_for_those_of_others() {
    let mut job = Job::forming(3);
    job.ready(1, 2);
    assert_eq!(job.link_broken(2, 2, 3), [""; 0], "worker 3 has not said anything");
    let mut told = job.passes(LINK_GRACE - Duration::from_millis(1));
    told.retain(|said| !said.contains("form g1.2"));
    assert_eq!(told, [""; 0]);
    assert_eq!(job.passes(Duration::from_millis(1))[0], "halting for g1.3");
}
