//! The machine of a group's worker: what it promises, what it says again, and what it refuses.

use super::*;
use crate::member::{GroupCommand, GroupEvent, GroupMember};
use crate::messages::Ring;

fn words(commands: &[GroupCommand]) -> Vec<String> {
    let words = |command: &GroupCommand| match command {
        GroupCommand::Send(WorkerMessage::Halted { generation, .. }) => format!("halted {generation}"),
        GroupCommand::Send(WorkerMessage::Ready { generation }) => format!("ready {generation}"),
        GroupCommand::Send(WorkerMessage::LinkBroken { generation, peer }) => {
            format!("broken {generation} with {}", peer.get())
        }
        GroupCommand::Send(WorkerMessage::GivenUp { generation }) => format!("given up {generation}"),
        GroupCommand::Send(WorkerMessage::Finished { generation, .. }) => format!("finished {generation}"),
        GroupCommand::Send(WorkerMessage::Leave { reason }) => format!("leave: {reason}"),
        GroupCommand::Send(WorkerMessage::Progress { generation, .. }) => format!("alive {generation}"),
        GroupCommand::Send(other) => format!("{other:?}"),
        GroupCommand::Connect(form) => format!("connect {} {}", form.generation, form.rank),
        GroupCommand::Abort { generation, next } => {
            let over = generation.map_or("nothing".to_owned(), |generation| generation.to_string());
            format!("abort {over} for {next}")
        }
    };
    commands.iter().map(words).collect()
}

/// The seat `rank` among three.
fn seat(generation: Generation, rank: u32) -> Form {
    let members = (0..3).map(member).collect();
    let none: Vec<(u32, ShardRange)> = (0..3).map(|rank| (rank, shards(0, 0))).collect();
    let both = [visits(&none), visits(&none)];
    Form::all(generation, Order::Fast, s(0), members, both).swap_remove(rank as usize)
}

fn told(worker: &mut GroupMember, event: GroupEvent) -> Vec<String> {
    words(&worker.handle(event))
}

fn ordered(worker: &mut GroupMember, message: CoordinatorMessage) -> Vec<String> {
    told(worker, GroupEvent::Ordered(message))
}

fn halt(worker: &mut GroupMember, generation: Generation) -> Vec<String> {
    ordered(worker, CoordinatorMessage::Halt { generation })
}

fn forms(worker: &mut GroupMember, form: Form) -> Vec<String> {
    ordered(worker, CoordinatorMessage::Form(Box::new(form)))
}

/// A member of g1.1, with its links.
fn linked() -> GroupMember {
    let mut worker = GroupMember::default();
    assert_eq!(forms(&mut worker, seat(g(1), 1)), ["connect g1.1 r1"]);
    let ready = GroupEvent::LinksReady { generation: g(1) };
    assert_eq!(told(&mut worker, ready.clone()), ["ready g1.1"]);
    assert_eq!(told(&mut worker, ready), [""; 0], "it is known");
    worker
}

#[test]
fn a_halt_ends_the_generation_before_it_is_promised_and_is_answered_again() {
    let mut worker = linked();
    assert_eq!(halt(&mut worker, g(2)), ["abort g1.1 for g1.2", "halted g1.2"]);
    assert_eq!(
        halt(&mut worker, g(2)),
        ["abort nothing for g1.2", "halted g1.2"],
        "it was not heard"
    );
    assert_eq!(halt(&mut worker, g(1)), [""; 0], "an older one");
    assert_eq!(forms(&mut worker, seat(g(1), 1)), [""; 0], "what it has promised not to take");
    assert_eq!(forms(&mut worker, seat(g(2), 0)), ["connect g1.2 r0"]);
    assert_eq!(halt(&mut worker, g(2)), [""; 0], "it has a seat there");
    assert_eq!(forms(&mut worker, seat(g(3), 0)), [""; 0], "it has not halted for it");
}

#[test]
fn what_happens_in_a_generation_that_is_over_changes_nothing() {
    let mut worker = linked();
    halt(&mut worker, g(2));
    forms(&mut worker, seat(g(2), 1));
    let (generation, peer) = (g(1), WorkerId::new(1));
    for late in [
        GroupEvent::LinksReady { generation },
        GroupEvent::LinkBroken { generation, peer },
        GroupEvent::GivenUp { generation },
        GroupEvent::Done { generation },
    ] {
        assert_eq!(told(&mut worker, late), [""; 0]);
    }
}

#[test]
fn what_must_be_heard_is_said_with_each_heartbeat() {
    let mut worker = linked();
    assert_eq!(told(&mut worker, GroupEvent::Beat), ["alive g1.1"]);
    let (generation, peer) = (g(1), WorkerId::new(1));
    assert_eq!(told(&mut worker, GroupEvent::GivenUp { generation }), ["given up g1.1"]);
    assert_eq!(told(&mut worker, GroupEvent::GivenUp { generation }), [""; 0]);
    assert_eq!(told(&mut worker, GroupEvent::Done { generation }), [""; 0], "it was given up");
    assert_eq!(
        told(&mut worker, GroupEvent::LinkBroken { generation, peer }),
        ["broken g1.1 with 1"]
    );
    let reason = "enough".to_owned();
    assert_eq!(told(&mut worker, GroupEvent::Leave { reason }), ["leave: enough"]);
    assert_eq!(
        told(&mut worker, GroupEvent::Beat),
        ["leave: enough", "broken g1.1 with 1", "given up g1.1", "alive g1.1"]
    );
    halt(&mut worker, g(2));
    assert_eq!(told(&mut worker, GroupEvent::Beat), ["leave: enough", "alive g1.2"]);
}

#[test]
fn an_order_that_comes_again_is_answered_by_how_the_links_stand() {
    let mut worker = linked();
    assert_eq!(forms(&mut worker, seat(g(1), 1)), ["ready g1.1"]);
    let done = GroupEvent::Done { generation: g(1) };
    assert_eq!(told(&mut worker, done), ["finished g1.1"]);
    assert_eq!(told(&mut worker, GroupEvent::Beat), ["finished g1.1", "alive g1.1"]);
}

#[test]
fn a_hello_says_whether_the_generation_works() {
    let ring = |worker: &GroupMember| worker.introduction().seat.map(|seat| seat.ring);
    let mut worker = GroupMember::default();
    assert_eq!((ring(&worker), worker.introduction().training), (None, false));
    forms(&mut worker, seat(g(1), 1));
    assert_eq!(ring(&worker), Some(Ring::Broken), "the links are not made");
    told(&mut worker, GroupEvent::LinksReady { generation: g(1) });
    assert_eq!((ring(&worker), worker.introduction().training), (Some(Ring::Whole), true));
    told(&mut worker, GroupEvent::GivenUp { generation: g(1) });
    assert_eq!(ring(&worker), Some(Ring::Broken));
    halt(&mut worker, g(2));
    assert_eq!(ring(&worker), None);
}

#[test]
fn nothing_of_an_earlier_life_counts_and_a_seat_to_train_in_is_refused() {
    let mut worker = GroupMember::default();
    let incarnation = Incarnation::new(2);
    told(&mut worker, GroupEvent::Welcomed { incarnation });
    assert_eq!(halt(&mut worker, g(5)), [""; 0]);
    assert_eq!(forms(&mut worker, seat(g(5), 0)), [""; 0]);
    let next = Generation::new(incarnation, 1);
    let train = Form::all(
        next,
        Order::Exact,
        s(0),
        (0..2).map(member).collect(),
        [
            visits(&[(0, shards(0, 2)), (1, shards(2, 4))]),
            visits(&[(0, shards(0, 2)), (1, shards(2, 4))]),
        ],
    );
    assert_eq!(forms(&mut worker, train[0].clone()), [""; 0]);
    assert_eq!(forms(&mut worker, seat(next, 0)), ["connect g2.1 r0"]);
}
