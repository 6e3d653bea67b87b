//! Gradients that are begun beside the one before, as where a device computes them.

use super::*;

/// The gradient of `task` and how it is written, as a model has it that only enqueues it.
fn begun(task: Task) -> (Gradient, WriteMode) {
    let Task::Gradient {
        step,
        piece,
        shard,
        buffer,
        mode,
    } = task
    else {
        panic!("expected a gradient, found {task:?}");
    };
    let gradient = Gradient {
        step,
        piece,
        shard,
        buffer: Some(buffer),
    };
    (gradient, mode)
}

fn write(driver: &StepDriver, gradient: &mut Gradient, mode: WriteMode) {
    let buffer = gradient.buffer.as_mut().unwrap();
    let mut writer = buffer.writer(driver.layout(), mode);
    writer.write_f64(0, &[f64::from(gradient.shard), 1.0, 0.0]).unwrap();
    writer.samples(1).unwrap();
    writer.finish().unwrap();
}

#[test]
fn a_gradient_is_begun_beside_the_one_before_and_counts_after_it() {
    let (driver, _outbox) = driver(10, Order::Exact);
    driver.handle(form(1, 0, &[SHARDS], 0));
    let (mut before, mode) = begun(driver.next());
    write(&driver, &mut before, mode);
    let mut modes = vec![mode];
    while let Some(task) = driver.next_beside(&mut before) {
        let (mut gradient, mode) = begun(task);
        assert!(before.buffer.is_none(), "it went on with the running sum");
        assert_eq!(gradient.shard, before.shard + 1);
        write(&driver, &mut gradient, mode);
        modes.push(mode);
        driver.computed(std::mem::replace(&mut before, gradient));
        assert_eq!(driver.read(Member::tally).total, u64::from(before.shard));
    }
    assert_eq!(before.shard + 1, SHARDS, "there is nothing but gradients to begin beside one");
    assert_eq!(modes, [WriteMode::Store, WriteMode::Add, WriteMode::Add, WriteMode::Add]);
    driver.computed(before);
    let sum = apply(&driver, driver.next());
    assert_eq!(sum.sum().mean(driver.layout()).f64(0).unwrap(), [1.5, 1.0, 0.0]);
}

#[test]
fn a_gradient_that_is_begun_beside_another_goes_on_with_what_its_piece_has() {
    let (driver, _outbox) = driver(10, Order::Fast);
    driver.handle(form_in(Order::Fast, 1, 1, &[2, SHARDS], 0));
    let (mut first, mode) = begun(driver.next());
    write(&driver, &mut first, mode);
    driver.computed(first);
    driver.handle(halt(2));
    // The shards before those of the piece that is begun were another's.
    driver.handle(form_in(Order::Fast, 2, 0, &[SHARDS], 0));
    let (mut before, mode) = begun(driver.next());
    write(&driver, &mut before, mode);
    let mut order = vec![(before.shard, mode)];
    while let Some(task) = driver.next_beside(&mut before) {
        let (mut gradient, mode) = begun(task);
        write(&driver, &mut gradient, mode);
        order.push((gradient.shard, mode));
        driver.computed(std::mem::replace(&mut before, gradient));
    }
    driver.computed(before);
    assert_eq!(order, [(0, WriteMode::Store), (1, WriteMode::Add), (3, WriteMode::Add)]);
    let sum = apply(&driver, driver.next());
    assert_eq!(sum.sum().mean(driver.layout()).f64(0).unwrap(), [1.5, 1.0, 0.0]);
}

#[test]
fn a_ring_has_both_gradients_of_which_one_is_begun_beside_the_other_and_ends_with_neither_before_it_is_counted() {
    let (driver, mut outbox) = driver(10, Order::Exact);
    driver.handle(form(1, 1, &[2, SHARDS], 0));
    let mut inbox = ring(&mut outbox);
    assert!(matches!(inbox.try_recv(), Ok(RingInput::Begin { .. })));
    let mut offered = || match inbox.try_recv() {
        Ok(RingInput::Piece { gradient, .. }) => Some(gradient),
        Ok(RingInput::Begin { .. } | RingInput::CloseWith(_)) | Err(_) => None,
    };
    let (mut first, mode) = begun(driver.next());
    let (mut second, _) = begun(driver.next_beside(&mut first).unwrap());
    let pieces = [offered().unwrap(), offered().unwrap()];
    let written = || [&pieces[0], &pieces[1]].map(|piece| written(piece).is_some());
    write(&driver, &mut first, mode);
    write(&driver, &mut second, mode);
    assert_eq!(written(), [false, false]);
    driver.computed(first);
    assert_eq!(written(), [true, false]);
    assert!(driver.next_beside(&mut second).is_none(), "it is the last");
    driver.computed(second);
    assert_eq!(written(), [true, true]);
    assert!(offered().is_none(), "each is offered once");
}

#[test]
fn no_gradient_is_begun_beside_one_that_is_not_wanted_any_more_nor_where_a_copy_is() {
    let (driver, _outbox) = driver(10, Order::Exact);
    driver.handle(form(1, 0, &[2, SHARDS], 0));
    let (mut before, mode) = begun(driver.next());
    write(&driver, &mut before, mode);
    driver.handle(halt(2));
    // Another has computed shard 0 by now.
    driver.handle(form(2, 1, &[1, SHARDS], 0));
    assert!(driver.next_beside(&mut before).is_none());
    let place = |gradient: &Gradient| gradient.buffer.as_ref().unwrap().bytes().as_ptr() as usize;
    let unwanted = place(&before);
    driver.computed(before);
    let (mut before, _) = begun(driver.next());
    assert_eq!((before.shard, place(&before)), (1, unwanted), "its memory is used again");
    let copy = driver.lock().copy(Step::ZERO, Vec::new(), copies::Haste::AtOnce);
    assert!(driver.next_beside(&mut before).is_none());
    drop(copy);
}
