//! What is not written as it should be does not count, and what a kept sum does not need is let go of.

use super::*;

#[test]
fn zeros_that_are_not_added_are_an_error_until_the_gradient_is_stored_anew() {
    let layout = three();
    let (mut buffer, memory) = (GradientBuffer::zeros(&layout), Plain::new(&layout));
    let burns = |found: Option<Result<&[u8], ResidentError>>| {
        let error = found.expect("no reader waits for ever").unwrap_err().to_string();
        assert!(error.ends_with("it burns"), "{error}");
    };
    write(&mut buffer, &layout, Some(3), WriteMode::Store, Some((&memory, &[true; 3])));
    let view = buffer.awaited(&layout);
    assert!(view.lies(&layout).now_or_never().is_none());
    memory.burns.store(true, Ordering::Relaxed);
    assert!(buffer.writer(&layout, WriteMode::Add).zero().is_err());
    drop(buffer.complete());
    let lies = view.lies(&layout).now_or_never();
    assert!(lies.is_some_and(|found| found.is_none()), "then the chunks are asked for");
    burns(view.chunk(0).now_or_never());
    drop(view);
    // What is added later is added to what is wrong, whether or not somebody waits for it.
    memory.burns.store(false, Ordering::Relaxed);
    for awaited in [true, false] {
        let view = awaited.then(|| buffer.awaited(&layout));
        write(&mut buffer, &layout, Some(4), WriteMode::Add, Some((&memory, &[true; 3])));
        let view = view.unwrap_or_else(|| buffer.complete());
        burns(view.chunk(0).now_or_never());
    }
    write(&mut buffer, &layout, Some(5), WriteMode::Store, Some((&memory, &[true; 3])));
    let view = buffer.complete();
    assert!(view.lies(&layout).now_or_never().is_some_and(|found| found.is_some()));
    let mut plain = GradientBuffer::zeros(&layout);
    write(&mut plain, &layout, Some(5), WriteMode::Store, None);
    assert!(read(&view, &layout, &memory, 2, &[0]) == plain.bytes());
}

#[test]
fn a_tensor_that_was_claimed_and_neither_kept_nor_written_to_its_end_is_missing() {
    let layout = layout_of(&[(40, false), (0, false), (9, true)]);
    let (mut buffer, memory) = (GradientBuffer::zeros(&layout), Plain::new(&layout));
    let shard = |buffer: &mut GradientBuffer, bytes: usize, kept: bool| {
        let mut writer = buffer.writer(&layout, WriteMode::Store);
        let mut place = writer.place(0, Dtype::F32, 40).unwrap();
        if bytes > 0 {
            place.write_next(&vec![1; bytes / 2]);
            place.write_next(&vec![2; bytes - bytes / 2]);
        }
        if kept {
            place.keep(Arc::clone(&memory) as _);
        }
        // What has no elements is written by its claim.
        let _ = writer.place(1, Dtype::F32, 0).unwrap();
        writer.write_f64(2, &[0.5; 9]).unwrap();
        assert!(matches!(writer.place(0, Dtype::F32, 40), Err(GradientError::WrittenTwice(_))));
        writer.samples(1).unwrap();
        writer.finish()
    };
    shard(&mut buffer, 160, false).unwrap();
    for bytes in [0, 152] {
        let missing = shard(&mut buffer, bytes, false);
        assert!(
            matches!(missing, Err(GradientError::NotWritten(spec)) if spec.name == "0"),
            "{bytes}"
        );
    }
    shard(&mut buffer, 0, true).unwrap();
}

#[test]
fn a_sum_lets_go_of_its_memory_elsewhere_once_all_of_it_is_here() {
    let layout = three();
    let (mut buffer, memory) = (GradientBuffer::zeros(&layout), Plain::new(&layout));
    write(&mut buffer, &layout, Some(3), WriteMode::Store, Some((&memory, &[true; 3])));
    let view = buffer.complete();
    buffer.let_go_elsewhere();
    assert!(buffer.has_memory_elsewhere(), "it lies nowhere else");
    let bytes = read(&view, &layout, &memory, 1, &[0]);
    while memory.bring(0) {}
    drop(view);
    let sum = Sum::from_buffer(Step::ZERO, buffer);
    assert_eq!(Arc::strong_count(&memory), 2);
    sum.let_go_elsewhere();
    assert_eq!(Arc::strong_count(&memory), 1, "it can be freed");
    assert!(sum.resident(&layout).is_none() && sum.bytes() == bytes);
    assert!(!sum.into_buffer().has_memory_elsewhere());
}

#[test]
fn room_for_a_sum_has_nothing_of_what_it_held_wherever_that_lies() {
    let layout = three();
    let (mut buffer, memory) = (GradientBuffer::zeros(&layout), Plain::new(&layout));
    write(&mut buffer, &layout, Some(3), WriteMode::Store, Some((&memory, &[true; 3])));
    drop(buffer.complete());
    assert!(buffer.resident(&layout).is_some());
    // As of a sum that is borrowed as a whole: nothing is written here.
    let coming = Coming::default();
    let sum = Sum::from_buffer(Step::ZERO, Filling::new(&layout, buffer, &coming).finish());
    assert!(sum.resident(&layout).is_none());
    assert_eq!(sum.runs(0..layout.bytes()).count(), 1, "it can be read, too");
}
