//! Gradients so small that one member adds up those of all, or that each member adds up some chunks of all.

use super::links::line;
use super::*;
use crate::limits::FORGIVEN;
use crate::memory::GradientMemory;
use crate::messages::{HostHash, LinkKind, LinkLine, Passed};
use crate::plan::{Owner, Part};

const SMALL: u64 = 4 << 10;

/// Workers with small gradients that are about to train, on one host.
fn forming(workers: u64) -> (Job, Vec<Command>) {
    forming_on(workers, SMALL, 1)
}

/// Workers with gradients of so many bytes, on so many hosts.
fn forming_on(workers: u64, gradient: u64, hosts: u64) -> (Job, Vec<Command>) {
    forming_with(workers, gradient, hosts, |_| None)
}

/// Which say that they share memory.
fn forming_with(workers: u64, gradient: u64, hosts: u64, hash: impl Fn(u64) -> Option<u8>) -> (Job, Vec<Command>) {
    forming_on_devices(workers, gradient, hosts, hash, |_| false)
}

/// Such workers, some of which compute on devices.
fn forming_on_devices(
    workers: u64,
    gradient: u64,
    hosts: u64,
    hash: impl Fn(u64) -> Option<u8>,
    on_device: impl Fn(u64) -> bool,
) -> (Job, Vec<Command>) {
    let mut job = Job::new(Config {
        expected: u32::try_from(workers).unwrap(),
        ..config()
    });
    let arrives = |worker| {
        job.comes(Arrival {
            memory: GradientMemory::unbounded(gradient),
            address: SocketAddr::from(([10, 0, 0, u8::try_from(worker % hosts).unwrap()], 1)),
            host_hash: hash(worker).map(|byte| HostHash::new([byte; 16])),
            on_device: on_device(worker),
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

#[test]
fn all_own_chunks_of_any_size_where_all_share_memory() {
    let large = |hosts, hash: fn(u64) -> Option<u8>| parts(&forming_with(4, 64 << 20, hosts, hash).1);
    assert_eq!(large(1, |_| Some(7)), "OOOO");
    assert_eq!(large(1, |worker| (worker != 2).then_some(7)), "----", "one cannot");
    assert_eq!(
        large(1, |worker| Some(u8::from(worker == 2))),
        "----",
        "one is another user's"
    );
    assert_eq!(large(4, |_| Some(7)), "----", "copies of one virtual machine");
}

#[test]
fn large_gradients_that_all_lie_on_devices_are_passed_by_the_sum() {
    let formed = |gradient, on_device: fn(u64) -> bool| {
        let (_, told) = forming_on_devices(4, gradient, 1, |_| Some(7), on_device);
        parts(&told)
    };
    assert_eq!(formed(64 << 20, |_| true), "----");
    assert_eq!(
        formed(64 << 20, |worker| worker != 2),
        "OOOO",
        "one of them computes on processors"
    );
    assert_eq!(formed(4 << 10, |_| true), "bbbo", "hops would cost more");
}

/// Four workers that are about to train with large gradients, and say that they share memory.
fn sharing() -> Job {
    let (job, told) = forming_with(4, 64 << 20, 1, |_| Some(7));
    assert_eq!(parts(&told), "OOOO");
    job
}

/// What all four form for g1.`count`.
fn formed(job: &mut Job, count: u64, step: u64) -> String {
    let told = (1..=4).map(|worker| job.halts(worker, g(count), standing(step)));
    parts(&told.last().unwrap())
}

/// A worker tells of what its links are made of, before it is ready.
fn tells_of(job: &mut Job, worker: u64, count: u64, kinds: &[(u64, LinkKind)]) -> Vec<String> {
    let lines: Vec<_> = kinds.iter().map(|&(peer, kind)| line(peer, kind, 0, 0)).collect();
    job.tells(worker, count, 1, &lines)
}

#[test]
fn no_generation_that_counts_on_memory_begins_where_a_worker_cannot_share_it() {
    use LinkKind::{Quic, SharedMemory};
    for shares in [
        [(1, SharedMemory), (3, SharedMemory), (4, SharedMemory)],
        // One took too long.
        [(1, SharedMemory), (3, SharedMemory), (4, Quic)],
        // Of an earlier generation.
        [(1, SharedMemory), (8, Quic), (9, Quic)],
    ] {
        assert_eq!(tells_of(&mut sharing(), 2, 1, &shares), Vec::<String>::new());
    }
    for cannot in [[(1, Quic), (3, Quic), (4, Quic)], [(1, SharedMemory), (3, Quic), (4, Quic)]] {
        let mut job = sharing();
        let told = tells_of(&mut job, 2, 1, &cannot);
        has(&told, "shares no memory: w2");
        has(&told, "to w1: halt g1.2");
        assert_eq!(formed(&mut job, 2, 0), "----");
        // It may be of other use, and what it is told is no news.
        assert_eq!(tells_of(&mut job, 2, 2, &cannot), Vec::<String>::new());
        job.all_ready(1..=4, 2);
        assert_eq!(tells_of(&mut job, 2, 2, &cannot), Vec::<String>::new());
        // It trains, a step a minute.
        for second in 0..FORGIVEN.as_secs() {
            job.now += Duration::from_secs(1);
            (1..=4).for_each(|worker| drop(job.progress(worker, 2, second / 70, &[])));
        }
        job.membership.disturb();
        assert_eq!(formed(&mut job, 3, 8), "OOOO", "it is believed again");
    }
}

#[test]
fn a_worker_that_sends_on_no_link_through_memory_cannot_share_it() {
    let mut job = sharing();
    let receives = LinkLine {
        outgoing: Passed::default(),
        ..line(3, LinkKind::SharedMemory, 0, 0)
    };
    let found = job.tells(2, 1, 1, &[line(1, LinkKind::Quic, 0, 0), receives]);
    has(&found, "to w1: halt g1.2");
}

#[test]
fn small_gradients_are_added_alike_whether_memory_is_shared_or_not() {
    let (mut job, told) = forming_with(4, 8 << 20, 1, |_| Some(7));
    let found = tells_of(&mut job, 2, 1, &[(1, LinkKind::Quic), (3, LinkKind::Quic)]);
    assert_eq!(parts(&told), "OOOO");
    assert_eq!(found, ["shares no memory: w2"], "and none halts");
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
