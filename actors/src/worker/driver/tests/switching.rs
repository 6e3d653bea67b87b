//! A second ring beside the running one, sums that are laid aside, and what goes to the actor as it is.

use sardana_protocol::member::{Command, NetworkCommand};
use sardana_protocol::messages::Snapshot;

use super::arrival::Payload;
use super::*;

fn order(count: u64) -> Box<Form> {
    let Event::Ordered(CoordinatorMessage::Form(form)) = form(count, 1, &[1, SHARDS], 0) else {
        panic!("it is a form");
    };
    form
}

/// A member of a ring, and that ring's inbox.
fn member() -> (Arc<StepDriver>, Outbox, mpsc::UnboundedReceiver<RingInput>) {
    let (driver, mut outbox) = driver(10, Order::Exact);
    driver.handle(form(1, 1, &[1, SHARDS], 0));
    let mut inbox = ring(&mut outbox);
    assert!(matches!(inbox.try_recv(), Ok(RingInput::Begin { .. })));
    (driver, outbox, inbox)
}

fn prepared(driver: &StepDriver, outbox: &mut Outbox, count: u64) -> mpsc::UnboundedReceiver<RingInput> {
    driver.execute(Command::Prepare(order(count)));
    let Ok(ActorCommand::Prepare { form, inbox }) = outbox.commands.try_recv() else {
        panic!("somebody must make the links");
    };
    assert_eq!(form, order(count));
    inbox
}

fn close(driver: &StepDriver) {
    let trailer = Trailer::Continue;
    driver.execute(Command::CloseWith { trailer });
}

#[test]
fn a_prepared_ring_hears_nothing_before_the_switch_and_everything_after() {
    let (driver, mut outbox, mut present) = member();
    let mut next = prepared(&driver, &mut outbox, 2);
    close(&driver);
    compute(&driver, driver.next());
    assert!(matches!(present.try_recv(), Ok(RingInput::CloseWith(Trailer::Continue))));
    assert!(matches!(present.try_recv(), Ok(RingInput::Piece { .. })));
    assert!(next.try_recv().is_err());

    let (generation, step) = (generation(2), Step::new(1));
    driver.execute(Command::Network(NetworkCommand::Switch { generation, step }));
    let Ok(ActorCommand::Network(NetworkCommand::Switch {
        generation: begun,
        step: at,
    })) = outbox.commands.try_recv()
    else {
        panic!("somebody must begin it");
    };
    assert_eq!((begun, at), (generation, step));
    driver.execute(Command::Begin { step });
    close(&driver);
    assert!(matches!(next.try_recv(), Ok(RingInput::Begin { step: found, .. }) if found == step));
    assert!(matches!(next.try_recv(), Ok(RingInput::CloseWith(Trailer::Continue))));
    // The old ring is told by the end of its inbox that nothing more comes.
    assert_eq!(present.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
}

#[test]
fn what_was_prepared_ends_when_it_is_replaced_or_does_not_come() {
    let (driver, mut outbox, mut present) = member();
    let mut first = prepared(&driver, &mut outbox, 2);
    let mut second = prepared(&driver, &mut outbox, 3);
    assert_eq!(first.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
    driver.execute(Command::Network(NetworkCommand::Unprepare));
    assert!(matches!(
        outbox.commands.try_recv(),
        Ok(ActorCommand::Network(NetworkCommand::Unprepare))
    ));
    assert_eq!(second.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
    // The present ring goes on.
    close(&driver);
    assert!(matches!(present.try_recv(), Ok(RingInput::CloseWith(_))));
    // So it does if a generation is formed anew.
    let mut third = prepared(&driver, &mut outbox, 4);
    driver.execute(Command::Connect(order(5)));
    assert_eq!(third.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
}

fn some_sum(driver: &StepDriver, step: u64) -> Sum {
    Sum::from_buffer(Step::new(step), GradientBuffer::zeros(driver.layout()))
}

fn execute_with(driver: &StepDriver, command: Command, sum: Sum) {
    driver.execute_with(command, Some(Payload::Sum(sum)));
}

#[test]
fn a_sum_that_is_laid_aside_is_the_next_to_be_applied() {
    let (driver, _outbox) = driver(10, Order::Exact);
    let accepted = |step| {
        let taken = driver.lock().accepted.take_sum(Step::new(step));
        taken.expect("it is the sum that was accepted").1
    };
    let trailer = Trailer::Snapshot;
    execute_with(&driver, Command::Accept { trailer }, some_sum(&driver, 3));
    execute_with(&driver, Command::LayAside, some_sum(&driver, 4));
    assert_eq!(accepted(3), Trailer::Snapshot);
    let trailer = Trailer::Stop;
    driver.execute(Command::AcceptAside { trailer });
    assert_eq!(accepted(4), Trailer::Stop);
}

#[test]
fn a_sum_carries_the_trailer_that_it_was_accepted_with() {
    let (driver, mut outbox, mut inbox) = member();
    for _ in 1..SHARDS {
        compute(&driver, driver.next());
    }
    while inbox.try_recv().is_ok() {}
    let (generation, trailer) = (generation(1), Trailer::Stop);
    driver.arrived(Arrival::Summed {
        generation,
        trailer,
        sum: some_sum(&driver, 0),
    });
    apply(&driver, driver.next());
    assert_eq!(driver.sum_of(testing::sum(0)).unwrap().closed().trailer, Trailer::Stop);
    drop(outbox.commands.try_recv());

    let (driver, _outbox) = self::driver(10, Order::Exact);
    driver.handle(form(1, 0, &[SHARDS], 0));
    driver.handle(Event::Ordered(CoordinatorMessage::CloseWith { generation, trailer }));
    for _ in 0..SHARDS {
        compute(&driver, driver.next());
    }
    apply(&driver, driver.next());
    assert_eq!(driver.sum_of(testing::sum(0)).unwrap().closed().trailer, Trailer::Stop);
}

#[test]
fn what_concerns_others_goes_to_the_actor() {
    let (driver, mut outbox) = driver(10, Order::Exact);
    let snapshot = Snapshot {
        id: SnapshotId {
            generation: generation(1),
            step: Step::new(4),
        },
        holders: vec![None],
        shares: vec![StateHash::new([7; 32])],
    };
    let (joiners, sum) = (vec![WorkerId::new(8)], testing::sum(5));
    driver.execute(Command::Network(NetworkCommand::Admit { joiners }));
    driver.execute(Command::Network(NetworkCommand::Copy(Box::new(snapshot.clone()))));
    driver.execute(Command::Network(NetworkCommand::Follow {
        sum,
        snapshot: Box::new(snapshot.clone()),
    }));
    driver.execute(Command::Network(NetworkCommand::EndCopy));
    assert!(
        matches!(outbox.commands.try_recv(), Ok(ActorCommand::Network(NetworkCommand::Admit { joiners })) if joiners == [WorkerId::new(8)])
    );
    assert!(
        matches!(outbox.commands.try_recv(), Ok(ActorCommand::Network(NetworkCommand::Copy(found))) if *found == snapshot)
    );
    assert!(
        matches!(outbox.commands.try_recv(), Ok(ActorCommand::Network(NetworkCommand::Follow { sum: found, snapshot: of })) if found == sum && *of == snapshot)
    );
    assert!(matches!(
        outbox.commands.try_recv(),
        Ok(ActorCommand::Network(NetworkCommand::EndCopy))
    ));
    assert!(outbox.commands.try_recv().is_err());
}

/// How the step driver says that its worker cannot go on.
fn failure(driver: &StepDriver, outbox: &mut Outbox) -> Mismatch {
    assert!(matches!(driver.next(), Task::End));
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
    let nothing_came: [fn(&StepDriver); 3] = [
        |driver| driver.execute(Command::LayAside),
        |driver| driver.execute(Command::Accept { trailer: Trailer::Stop }),
        |driver| driver.execute(Command::AcceptAside { trailer: Trailer::Stop }),
    ];
    for act in nothing_came {
        let (driver, mut outbox) = driver(10, Order::Exact);
        act(&driver);
        assert_eq!(failure(&driver, &mut outbox), Mismatch::NothingCame);
    }

    // An event that brings a sum, without it.
    let (driver, mut outbox, _inbox) = member();
    let (generation, step) = (generation(1), Step::ZERO);
    driver.handle(Event::Summed {
        generation,
        step,
        trailer,
    });
    assert_eq!(failure(&driver, &mut outbox), Mismatch::NothingCame);

    // The sum of another step than the machine was told of.
    let (driver, mut outbox, _inbox) = member();
    let sum = some_sum(&driver, 3);
    let commands = driver.lock().member.handle(Event::Summed {
        generation,
        step,
        trailer,
    });
    assert_eq!(commands, [Command::Accept { trailer }]);
    execute_with(&driver, Command::Accept { trailer }, sum);
    assert_eq!(failure(&driver, &mut outbox), Mismatch::OtherSum);

    // A state where a sum was lacking, and the other way round.
    for (lacking, mismatch) in [
        (CatchUp::Sum { from: Rank::ZERO }, Mismatch::OtherSum),
        (CatchUp::State { from: Rank::ZERO }, Mismatch::NoState),
    ] {
        let (driver, mut outbox) = self::driver(10, Order::Exact);
        let mut behind = order(1);
        (behind.catch_up, behind.step) = (lacking, Step::new(1));
        driver.handle(Event::Ordered(CoordinatorMessage::Form(behind)));
        driver.arrived(match lacking {
            CatchUp::Sum { .. } => Arrival::FetchedState {
                generation,
                step,
                state: SavedState {
                    bytes: Bytes::new(),
                    shares: vec![],
                    compared_here: false,
                },
            },
            CatchUp::State { .. } | CatchUp::None | CatchUp::Checkpoint => Arrival::FetchedSum {
                generation,
                sum: some_sum(&driver, 1),
            },
        });
        assert_eq!(failure(&driver, &mut outbox), mismatch);
    }
}
