//! Gradients so small that one member adds up those of all, or that each member adds up some chunks of all.

use super::*;
use crate::memory::GradientMemory;
use crate::plan::{Owner, Part};

const SMALL: u64 = 4 << 10;

/// Workers with small gradients that are about to train, on one host.
fn forming(workers: u64) -> (Job, Vec<Command>) {
    forming_on(workers, SMALL, 1)
}

/// Workers with gradients of so many bytes, on so many hosts.
fn forming_on(workers: u64, gradient: u64, hosts: u64) -> (Job, Vec<Command>) {
    let mut job = Job::new(Config {
        expected: u32::try_from(workers).unwrap(),
        ..config()
    });
    let arrives = |worker| {
        job.comes(Arrival {
            memory: GradientMemory::unbounded(gradient),
            address: SocketAddr::from(([10, 0, 0, u8::try_from(worker % hosts).unwrap()], 1)),
            ..newcomer(worker, standing(0))
        })
    };
    let told = (1..=workers).map(arrives).last().unwrap();
    (job, told)
}

/// Of each member: `o` for the one owner of all chunks, `b` for one that brings it gradients, `O` where all own some, `-` where the sum runs from rank
/// to rank.
fn parts(told: &[Command]) -> String {
    let letter = |(_, form): (u64, Form)| {
        assert_eq!(form.first, form.steady);
        match form.steady {
            Part::Direct(part) => match part.owners[..] {
                [Owner::Here(_)] => 'o',
                [Owner::There { .. }] => 'b',
                _ => 'O',
            },
            Part::Ordered(_) => '-',
            Part::Ring(_) => panic!("the order is exact"),
        }
    };
    forms(told).into_iter().map(letter).collect()
}

#[test]
fn three_or_more_are_a_star_whose_owner_closes() {
    for (workers, expected) in [(1, "-"), (2, "--"), (3, "bbo"), (5, "bbbbo")] {
        let (mut job, told) = forming(workers);
        assert_eq!(parts(&told), expected);
        job.all_ready(1..=workers, 1);
        let told = words(&job.event(Event::StopRequested));
        has(&told, &format!("to w{workers}: close g1.1 with stop"));
    }
}

#[test]
fn all_own_chunks_where_none_shares_a_host_or_all_share_one() {
    let cases = [
        (1 << 20, 4, "OOOO"),
        (1 << 20, 3, "----"),
        (1 << 20, 1, "OOOO"),
        (16 << 20, 4, "----"),
        (16 << 20, 1, "OOOO"),
        (64 << 20, 1, "----"),
    ];
    for (gradient, hosts, expected) in cases {
        let (_, told) = forming_on(4, gradient, hosts);
        assert_eq!(parts(&told), expected);
    }
    let (mut job, _) = forming_on(4, 1 << 20, 4);
    job.all_ready(1..=4, 1);
    let told = words(&job.event(Event::StopRequested));
    has(&told, "to w4: close g1.1 with stop");
    job.link_broken(1, 1, 3);
    job.link_broken(3, 1, 1);
    let told = (1..=4).map(|worker| job.halts(worker, g(2), standing(0)));
    assert_eq!(parts(&told.last().unwrap()), "----", "two may be cut off from each other");
}

/// Four workers whose first star breaks between worker `one` and its owner, worker 4, train without a star and are disturbed. What they form then.
fn after_a_break_between(one: u64) -> String {
    let (mut job, _) = forming(4);
    for worker in (1..4).filter(|&worker| worker != one) {
        job.ready(worker, 1);
    }
    job.link_broken(one, 1, 4);
    job.link_broken(4, 1, one);
    let halts = |job: &mut Job, count: u64| {
        let told = (1..=4).map(|worker| job.halts(worker, g(count), standing(count - 2)));
        parts(&told.last().unwrap())
    };
    assert_eq!(halts(&mut job, 2), "----");
    job.all_ready(1..=4, 2);
    for worker in 1..=4 {
        job.says(worker, heartbeat(2, tally(1), 0, None));
    }
    job.membership.disturb();
    halts(&mut job, 3)
}

#[test]
fn after_a_link_broke_each_has_two_neighbours_until_it_is_known_to_work() {
    assert_eq!(
        after_a_break_between(3),
        "bbbo",
        "3 and 4 were neighbours in the generation that works"
    );
    assert_eq!(after_a_break_between(1), "----", "1 and 4 were not");
}
