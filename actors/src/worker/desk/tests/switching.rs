//! A second ring beside the running one, sums that are laid aside, and what goes to the actor as it is.

use sardana_protocol::member::{Command, NetworkCommand};
use sardana_protocol::messages::Snapshot;

use super::arrival::Payload;
use super::*;

fn execute(desk: &Desk, command: Command) {
    desk.execute(command);
}

fn order(count: u64) -> Box<Form> {
    let Event::Ordered(CoordinatorMessage::Form(form)) = form(count, 1, &[1, SHARDS], 0) else {
        panic!("it is a form");
    };
    form
}

/// A member of a ring, and that ring's inbox.
fn member() -> (Arc<Desk>, Outbox, mpsc::UnboundedReceiver<RingInput>) {
    let (desk, mut outbox) = desk(10, Order::Exact);
    desk.handle(form(1, 1, &[1, SHARDS], 0));
    let mut inbox = ring(&mut outbox);
    assert!(matches!(inbox.try_recv(), Ok(RingInput::Begin { .. })));
    (desk, outbox, inbox)
}

fn prepared(desk: &Desk, outbox: &mut Outbox, count: u64) -> mpsc::UnboundedReceiver<RingInput> {
    execute(desk, Command::Prepare(order(count)));
    let Ok(ActorCommand::Prepare { form, inbox }) = outbox.commands.try_recv() else {
        panic!("somebody must make the links");
    };
    assert_eq!(form, order(count));
    inbox
}

fn close(desk: &Desk) {
    let trailer = Trailer::Continue;
    execute(desk, Command::CloseWith { trailer });
}

#[test]
fn a_prepared_ring_hears_nothing_before_the_switch_and_everything_after() {
    let (desk, mut outbox, mut present) = member();
    let mut next = prepared(&desk, &mut outbox, 2);
    close(&desk);
    compute(&desk, desk.next());
    assert!(matches!(present.try_recv(), Ok(RingInput::CloseWith(Trailer::Continue))));
    assert!(matches!(present.try_recv(), Ok(RingInput::Piece { .. })));
    assert!(next.try_recv().is_err());

    let (generation, step) = (generation(2), Step::new(1));
    execute(&desk, Command::Network(NetworkCommand::Switch { generation, step }));
    let Ok(ActorCommand::Network(NetworkCommand::Switch {
        generation: begun,
        step: at,
    })) = outbox.commands.try_recv()
    else {
        panic!("somebody must begin it");
    };
    assert_eq!((begun, at), (generation, step));
    execute(&desk, Command::Begin { step });
    close(&desk);
    assert!(matches!(next.try_recv(), Ok(RingInput::Begin { step: found, .. }) if found == step));
    assert!(matches!(next.try_recv(), Ok(RingInput::CloseWith(Trailer::Continue))));
    // The old one is told by the end of its inbox that nothing more comes.
    assert_eq!(present.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
}

#[test]
fn what_was_prepared_ends_when_it_is_replaced_or_does_not_come() {
    let (desk, mut outbox, mut present) = member();
    let mut first = prepared(&desk, &mut outbox, 2);
    let mut second = prepared(&desk, &mut outbox, 3);
    assert_eq!(first.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
    execute(&desk, Command::Network(NetworkCommand::Unprepare));
    assert!(matches!(
        outbox.commands.try_recv(),
        Ok(ActorCommand::Network(NetworkCommand::Unprepare))
    ));
    assert_eq!(second.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
    // The present one goes on.
    close(&desk);
    assert!(matches!(present.try_recv(), Ok(RingInput::CloseWith(_))));
    // So it does if a generation is formed anew.
    let mut third = prepared(&desk, &mut outbox, 4);
    execute(&desk, Command::Connect(order(5)));
    assert_eq!(third.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
}

fn some_sum(desk: &Desk, step: u64) -> Sum {
    Sum::from_buffer(Step::new(step), GradientBuffer::zeros(desk.layout()))
}

fn execute_with(desk: &Desk, command: Command, sum: Sum) {
    desk.execute_with(command, Some(Payload::Sum(sum)));
}

#[test]
fn a_sum_that_is_laid_aside_is_the_next_to_be_applied() {
    let (desk, _outbox) = desk(10, Order::Exact);
    let accepted = |step| {
        let taken = desk.lock().accepted.take_sum(Step::new(step));
        taken.expect("it is the sum that was accepted").1
    };
    let trailer = Trailer::Snapshot;
    execute_with(&desk, Command::Accept { trailer }, some_sum(&desk, 3));
    execute_with(&desk, Command::LayAside, some_sum(&desk, 4));
    assert_eq!(accepted(3), Trailer::Snapshot);
    let trailer = Trailer::Stop;
    execute(&desk, Command::AcceptAside { trailer });
    assert_eq!(accepted(4), Trailer::Stop);
}

#[test]
fn a_sum_carries_the_trailer_that_it_was_accepted_with() {
    let (desk, mut outbox, mut inbox) = member();
    for _ in 1..SHARDS {
        compute(&desk, desk.next());
    }
    while inbox.try_recv().is_ok() {}
    let (generation, trailer) = (generation(1), Trailer::Stop);
    desk.arrived(Arrival::Summed {
        generation,
        trailer,
        sum: some_sum(&desk, 0),
    });
    apply(&desk, desk.next());
    assert_eq!(desk.sum_of(Step::ZERO).unwrap().trailer(), Trailer::Stop);
    drop(outbox.commands.try_recv());

    let (desk, _outbox) = self::desk(10, Order::Exact);
    desk.handle(form(1, 0, &[SHARDS], 0));
    desk.handle(Event::Ordered(CoordinatorMessage::CloseWith { generation, trailer }));
    for _ in 0..SHARDS {
        compute(&desk, desk.next());
    }
    apply(&desk, desk.next());
    assert_eq!(desk.sum_of(Step::ZERO).unwrap().trailer(), Trailer::Stop);
}

#[test]
fn what_concerns_others_goes_to_the_actor() {
    let (desk, mut outbox) = desk(10, Order::Exact);
    let snapshot = Snapshot {
        id: SnapshotId {
            generation: generation(1),
            step: Step::new(4),
        },
        holders: vec![None],
        shares: vec![StateHash::new([7; 32])],
    };
    let (joiners, step) = (vec![WorkerId::new(8)], Step::new(5));
    execute(&desk, Command::Network(NetworkCommand::Admit { joiners }));
    execute(&desk, Command::Network(NetworkCommand::Copy(Box::new(snapshot.clone()))));
    execute(
        &desk,
        Command::Network(NetworkCommand::Follow {
            step,
            snapshot: Box::new(snapshot.clone()),
        }),
    );
    execute(&desk, Command::Network(NetworkCommand::EndCopy));
    assert!(
        matches!(outbox.commands.try_recv(), Ok(ActorCommand::Network(NetworkCommand::Admit { joiners })) if joiners == [WorkerId::new(8)])
    );
    assert!(
        matches!(outbox.commands.try_recv(), Ok(ActorCommand::Network(NetworkCommand::Copy(found))) if *found == snapshot)
    );
    assert!(
        matches!(outbox.commands.try_recv(), Ok(ActorCommand::Network(NetworkCommand::Follow { step: found, snapshot: of })) if found == step && *of == snapshot)
    );
    assert!(matches!(
        outbox.commands.try_recv(),
        Ok(ActorCommand::Network(NetworkCommand::EndCopy))
    ));
    assert!(outbox.commands.try_recv().is_err());
}

/// How the desk says that its worker cannot go on.
fn failure(desk: &Desk, outbox: &mut Outbox) -> Mismatch {
    assert!(matches!(desk.next(), Task::End));
    while let Ok(command) = outbox.commands.try_recv() {
        if let ActorCommand::Fail { mismatch, .. } = command {
            return mismatch;
        }
    }
    panic!("it must be told");
}

#[test]
fn a_worker_whose_machine_and_buffers_do_not_fit_ends_and_says_so() {
    let trailer = Trailer::Continue;
    let nothing_came: [fn(&Desk); 3] = [
        |desk| execute(desk, Command::LayAside),
        |desk| execute(desk, Command::Accept { trailer: Trailer::Stop }),
        |desk| execute(desk, Command::AcceptAside { trailer: Trailer::Stop }),
    ];
    for act in nothing_came {
        let (desk, mut outbox) = desk(10, Order::Exact);
        act(&desk);
        assert_eq!(failure(&desk, &mut outbox), Mismatch::NothingCame);
    }

    // An event that brings a sum, without it.
    let (desk, mut outbox, _inbox) = member();
    let (generation, step) = (generation(1), Step::ZERO);
    desk.handle(Event::Summed {
        generation,
        step,
        trailer,
    });
    assert_eq!(failure(&desk, &mut outbox), Mismatch::NothingCame);

    // The sum of another step than the machine was told of.
    let (desk, mut outbox, _inbox) = member();
    let sum = some_sum(&desk, 3);
    let commands = desk.lock().member.handle(Event::Summed {
        generation,
        step,
        trailer,
    });
    assert_eq!(commands, [Command::Accept { trailer }]);
    execute_with(&desk, Command::Accept { trailer }, sum);
    assert_eq!(failure(&desk, &mut outbox), Mismatch::OtherSum);

    // A state where a sum was lacking, and the other way round.
    for (lacking, mismatch) in [
        (CatchUp::Sum { from: Rank::ZERO }, Mismatch::OtherSum),
        (CatchUp::State { from: Rank::ZERO }, Mismatch::NoState),
    ] {
        let (desk, mut outbox) = self::desk(10, Order::Exact);
        let mut behind = order(1);
        (behind.catch_up, behind.step) = (lacking, Step::new(1));
        desk.handle(Event::Ordered(CoordinatorMessage::Form(behind)));
        desk.arrived(match lacking {
            CatchUp::Sum { .. } => Arrival::FetchedState {
                generation,
                step,
                state: SavedState {
                    bytes: Bytes::new(),
                    shares: vec![],
                },
            },
            CatchUp::State { .. } | CatchUp::None | CatchUp::Checkpoint => Arrival::FetchedSum {
                generation,
                sum: some_sum(&desk, 1),
            },
        });
        assert_eq!(failure(&desk, &mut outbox), mismatch);
    }
}
