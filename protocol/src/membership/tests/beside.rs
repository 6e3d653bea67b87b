//! Workers of one host have ranks beside each other.

use super::*;

fn on(host: u8, worker: u64, step: u64) -> Arrival {
    Arrival {
        address: SocketAddr::from(([10, 0, 0, host], u16::try_from(worker).unwrap())),
        ..newcomer(worker, standing(step))
    }
}

/// A job that waits for so many workers, of which those with odd numbers are on one host, and the others on another one.
fn mingled(workers: u64, max: u32) -> (Job, Vec<Command>) {
    let mut job = Job::new(Config {
        expected: u32::try_from(workers).unwrap(),
        shards: 8,
        max,
        ..config()
    });
    let told = (1..=workers).map(|worker| job.comes(on((worker % 2) as u8, worker, 0)));
    let told = told.last().unwrap();
    (job, told)
}

/// The members by rank.
fn ranks(told: &[Command]) -> Vec<u64> {
    let mut members: Vec<_> = forms(told).into_iter().map(|(worker, form)| (form.rank, worker)).collect();
    members.sort_unstable();
    members.into_iter().map(|(_, worker)| worker).collect()
}

#[test]
fn members_come_host_by_host_and_spares_after_them() {
    assert_eq!(ranks(&mingled(5, 8).1), [1, 3, 5, 2, 4]);
    assert_eq!(ranks(&mingled(6, 4).1), [1, 3, 2, 4, 5, 6], "two are spares");
}

#[test]
fn a_worker_that_replaces_another_is_beside_those_of_its_host() {
    let (mut job, _) = mingled(4, 8);
    job.all_ready(1..=4, 1);
    job.dies(3, 0);
    job.all_halted([1, 2, 4], 2, 5);
    job.all_ready([1, 2, 4], 2);
    words(&job.comes(on(1, 5, 0)));
    for worker in [1, 2, 4] {
        job.room_made(worker, 2);
    }
    for (place, worker) in [1, 2, 4].into_iter().enumerate() {
        let place = u32::try_from(place).unwrap();
        job.snapshotted(worker, shares_of(place, 3), snapshot(2, 5));
    }
    let told = job.caught_up(5, snapshot(2, 5), 5);
    let prepared = told.iter().filter(|said| said.contains("prepare"));
    assert_eq!(prepared.count(), 4, "{told:?}");
    let plan = job.membership.change.plan.as_ref().unwrap();
    let next: Vec<u64> = plan.next.as_ref().unwrap().workers().map(WorkerId::get).collect();
    assert_eq!(next, [1, 5, 2, 4]);
}

#[test]
fn the_ranks_of_a_group_keep_their_order_whatever_their_hosts() {
    let mut job = Job::new(Config {
        expected: 4,
        shards: 0,
        steps: Step::ZERO,
        max: 8,
        ..config()
    });
    let mut workers = [1, 2, 3, 4].map(w);
    (1..=4).for_each(|worker| drop(job.comes(on((worker % 2) as u8, worker, 0))));
    let members = &job.membership.members;
    job.membership
        .order_by_host(&mut workers, |worker| members[worker].address.ip());
    assert_eq!(workers.map(WorkerId::get), [1, 2, 3, 4]);
}

#[test]
fn while_links_are_doubted_workers_stay_where_they_are() {
    let (mut job, _) = mingled(4, 8);
    job.all_ready(1..=4, 1);
    let order = |job: &Job| {
        let mut workers = [1, 2, 3, 4].map(w);
        let members = &job.membership.members;
        job.membership
            .order_by_host(&mut workers, |worker| members[worker].address.ip());
        workers.map(WorkerId::get)
    };
    assert_eq!(order(&job), [1, 3, 2, 4]);
    job.link_broken(1, 1, 3);
    job.link_broken(3, 1, 1);
    assert_eq!(order(&job), [1, 2, 3, 4]);
}
