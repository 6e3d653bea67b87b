//! Halts and forms: what is promised, what is kept, what is ignored.

use super::*;
use crate::messages::{MembersDigest, Ring, Seated};

#[test]
fn a_halt_while_computing_is_answered_at_once_and_keeps_the_pieces() {
    let mut worker = seated(0);
    compute(&mut worker, 0);
    let commands = halt(&mut worker, 2);
    assert_eq!(commands[0], Command::Network(NetworkCommand::Abort { generation: g(1) }));
    assert_eq!(said(&commands), ["halted g1.2 at s0 with [0..2]"]);
    let told = worker.introduction();
    assert_eq!((told.generation, told.seat, told.training), (g(2), None, false));

    // The gradient under way goes on; the next generation takes it as it is, and one more.
    compute(&mut worker, 1);
    let first = part(0, &[(0, shards(0, 3)), (1, shards(3, 4))]);
    let commands = form(&mut worker, Form { first, ..pair(2, 0, 0) });
    assert_eq!(
        commands[1..],
        [
            Command::Retain {
                pieces: vec![shards(0, 2), shards(2, 3)]
            },
            Command::Begin { step: s(0) },
            Command::Offer { piece: shards(0, 2) },
        ]
    );
    assert_eq!(compute(&mut worker, 2), [], "the ring had it while it was computed");
    assert_eq!(worker.next_work(), Work::Wait);
    assert_eq!(worker.tally().this_step, 3, "nothing is computed twice");
}

#[test]
fn a_halt_during_apply_is_answered_only_after_it() {
    let mut worker = seated(1);
    compute_all(&mut worker, shards(2, 4));
    assert_eq!(summed(&mut worker, 1, 0, Trailer::Continue), [accept()]);
    assert_eq!(worker.next_work(), Work::Apply { step: s(0) });
    assert_eq!(
        halt(&mut worker, 2),
        [Command::Network(NetworkCommand::Abort { generation: g(1) })]
    );
    // A further halt during the same update replaces the first.
    assert_eq!(halt(&mut worker, 3), []);
    assert_eq!(form(&mut worker, pair(3, 1, 0)), [], "it has not promised yet");
    let commands = worker.handle(Event::Applied { report: report(0) });
    assert_eq!(said(&commands), ["halted g1.3 at s1 with [2..3, 3..4]"]);
    // It went on with the shards that it would have had.
    compute(&mut worker, 2);
}

#[test]
fn a_sum_that_is_there_is_applied_before_a_halt_is_answered() {
    let mut worker = seated(0);
    compute_all(&mut worker, shards(0, 2));
    let _ = summed(&mut worker, 1, 0, Trailer::Continue);
    assert_eq!(said(&halt(&mut worker, 2)), [""; 0]);
    assert_eq!(said(&apply(&mut worker, 0)), ["halted g1.2 at s1 with [0..2]"]);
}

#[test]
fn after_halted_a_sum_of_the_old_generation_changes_nothing() {
    let mut worker = seated(0);
    compute_all(&mut worker, shards(0, 2));
    halt(&mut worker, 2);
    assert_eq!(summed(&mut worker, 1, 0, Trailer::Continue), [], "GEN-3");
    form(&mut worker, pair(2, 0, 0));
    assert_eq!(summed(&mut worker, 1, 0, Trailer::Continue), [], "GEN-3");
    assert_eq!(summed(&mut worker, 2, 1, Trailer::Continue), [], "not the step under way");
    assert_eq!(link_broken(&mut worker, 1, 2), [], "GEN-3");
    assert_eq!(worker.handle(Event::LinksReady { generation: g(1) }), [], "GEN-3");
    assert_eq!(close_with(&mut worker, 1, Trailer::Stop), [], "GEN-3");
    assert_eq!(worker.next_work(), Work::Wait);
    assert_eq!(said(&link_broken(&mut worker, 2, 2)), ["link broken g1.2 w2"]);
    assert_eq!(summed(&mut worker, 2, 0, Trailer::Continue), [accept()]);
    assert_eq!(summed(&mut worker, 2, 0, Trailer::Continue), [], "once is enough");
}

#[test]
fn halts_and_forms_of_old_generations_are_ignored() {
    let mut worker = worker();
    assert_eq!(said(&halt(&mut worker, 3)), ["halted g1.3 at s0 with []"]);
    assert_eq!(form(&mut worker, pair(2, 0, 0)), [], "GEN-3");
    assert_eq!(halt(&mut worker, 2), [], "GEN-3");
    assert_eq!(said(&halt(&mut worker, 3)), ["halted g1.3 at s0 with []"], "asked again");
    assert_ne!(form(&mut worker, pair(3, 0, 0)), []);
    assert_eq!(halt(&mut worker, 3), [], "a halt that was overtaken by its form");
    // No worker leaves a generation without a promise.
    assert_eq!(form(&mut worker, pair(4, 0, 0)), []);
    let generation = Generation::new(Incarnation::new(2), 1);
    let newer = worker.handle(Event::Ordered(CoordinatorMessage::Halt { generation }));
    assert_eq!(said(&newer).len(), 1);
    assert_eq!(halt(&mut worker, 900), [], "an older incarnation is fenced");
}

#[test]
fn ready_is_said_when_the_links_are_made_and_again_when_asked_again() {
    let mut worker = seated(0);
    assert_eq!(form(&mut worker, pair(1, 0, 0)), [], "the links are being made");
    assert_eq!(said(&worker.handle(Event::LinksReady { generation: g(1) })), ["ready g1.1"]);
    assert_eq!(said(&form(&mut worker, pair(1, 0, 0))), ["ready g1.1"]);
    let told = worker.introduction();
    assert_eq!(
        (told.generation, told.seat, told.training),
        (g(1), Some(seat(0, Ring::Whole)), true)
    );
    let _ = link_broken(&mut worker, 1, 2);
    assert_eq!(worker.introduction().seat, Some(seat(0, Ring::Broken)));
}

/// No other worker may know of it, and the coordinator does not ask.
#[test]
fn a_broken_link_is_told_until_the_halt_comes() {
    let mut worker = seated(0);
    let told = said(&link_broken(&mut worker, 1, 2));
    assert_eq!(said(&beat(&mut worker, Heartbeat::Due(None)))[..1], told[..]);
    let ready = said(&worker.handle(Event::LinksReady { generation: g(1) }));
    assert_eq!(ready, told, "links that were made since then do not make it whole");
    assert_eq!(beat(&mut worker, Heartbeat::NotDue), []);
    let _ = halt(&mut worker, 2);
    let beats = said(&beat(&mut worker, Heartbeat::Due(None)));
    assert_eq!(beats.len(), 1, "only that it lives");
}

/// A seat at `rank` of two.
fn seat(rank: u32, ring: Ring) -> Seated {
    Seated {
        rank: Rank::new(rank),
        world_size: 2,
        digest: MembersDigest::of([member(0).worker, member(1).worker]),
        peers: vec![(Rank::new(1 - rank), member(1 - rank).worker)],
        shards: shards(rank * 2, rank * 2 + 2),
        ring,
    }
}

#[test]
fn nothing_of_a_life_before_the_newest_coordinators_counts() {
    let mut worker = seated(0);
    let _ = worker.handle(Event::Welcomed {
        incarnation: Incarnation::new(3),
        report_from: s(0),
    });
    assert_eq!(worker.introduction().incarnation, Incarnation::new(3));
    let later = |incarnation| Generation::new(Incarnation::new(incarnation), 9);
    for old in [1, 2] {
        let generation = later(old);
        assert_eq!(worker.handle(Event::Ordered(CoordinatorMessage::Halt { generation })), []);
        let fenced = Form {
            generation,
            ..pair(2, 0, 0)
        };
        assert_eq!(form(&mut worker, fenced.clone()), []);
        assert_eq!(prepare(&mut worker, fenced), []);
    }
    assert_eq!(worker.introduction().generation, g(1), "it goes on training");
    let told = said(&worker.handle(Event::Ordered(CoordinatorMessage::Halt { generation: later(3) })));
    assert_eq!(told, ["halted g3.9 at s0 with [0..2]"]);
}

#[test]
fn a_form_that_cannot_be_is_not_answered() {
    let changes: [fn(&mut Form); 6] = [
        |form| form.rank = Rank::new(2),
        |form| form.catch_up = CatchUp::State { from: Rank::new(2) },
        |form| form.step = s(11),
        |form| form.first = part(0, &[(0, shards(0, 5)), (1, shards(5, 6))]),
        |form| form.steady = part(0, &[(0, shards(0, 2)), (2, shards(2, 4))]),
        |form| form.peers.clear(),
    ];
    for change in changes {
        let mut worker = worker();
        let mut unsound = pair(1, 0, 0);
        change(&mut unsound);
        assert_eq!(form(&mut worker, unsound.clone()), [], "{unsound:?}");
        assert_eq!(worker.generation(), Generation::NONE);
    }
}
