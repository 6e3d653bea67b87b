//! Tests of gradients whose tensors lie elsewhere: in plain memory here, from which they come late, in any order, or not at all.

mod plain;
mod unfinished;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use proptest::prelude::*;
use sardana_protocol::words::Step;

use plain::{AtOnce, Plain, enqueue, layout_of, read, values, write};

use super::passing::PlainSlot;
use super::*;
use crate::alone::add_up;
use crate::coming::Coming;
use crate::limits::{ALIGNMENT, CHUNK_BYTES, LOWERED_BYTES};

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn whatever_lies_elsewhere_a_gradient_has_the_bytes_of_one_that_is_written_here(
        tensors in prop::collection::vec((prop_oneof![0..50_usize, 0..400_000_usize], any::<bool>()), 1..5),
        elsewhere in prop::collection::vec(prop::collection::vec(any::<bool>(), 5), 2),
        shards in prop::collection::vec(prop::option::weighted(0.8, 0..9_usize), 1..4),
        (awaited, later) in any::<(bool, bool)>(),
        ahead in 1..4_usize,
        order in prop::collection::vec(any::<usize>(), 8),
    ) {
        let layout = layout_of(&tensors);
        let (mut plain, mut buffer) = (GradientBuffer::zeros(&layout), GradientBuffer::zeros(&layout));
        let memory = Plain::new(&layout);
        // The second gradient is written where the first one was.
        for (round, elsewhere) in elsewhere.into_iter().enumerate() {
            let (mut view, mut before) = (None, None::<Enqueued>);
            for (number, shard) in shards.iter().enumerate() {
                let mode = if number == 0 { WriteMode::Store } else { WriteMode::Add };
                let shard = shard.map(|shard| shard + round);
                // What was kept for the first shard is kept for the others.
                let first: Vec<bool> = if shards[0].is_none() { vec![false; 5] } else { elsewhere.clone() };
                let is_last = number + 1 == shards.len();
                if awaited && is_last {
                    view = Some(buffer.awaited(&layout));
                }
                write(&mut plain, &layout, shard, mode, None);
                let memory = (&memory, &first[..]);
                let next = match shard.filter(|_| later) {
                    Some(shard) => Some(enqueue(&mut buffer, &layout, shard, mode, memory)),
                    None => {
                        if let Some(before) = before.take() {
                            before.settle(&mut buffer, &layout).unwrap();
                        }
                        write(&mut buffer, &layout, shard, mode, Some(memory));
                        None
                    }
                };
                if let Some(before) = std::mem::replace(&mut before, next) {
                    before.settle(&mut buffer, &layout).unwrap();
                }
            }
            if let Some(last) = before {
                last.settle(&mut buffer, &layout).unwrap();
            }
            let counted = buffer.complete();
            let view = view.unwrap_or(counted);
            prop_assert!(read(&view, &layout, &memory, ahead, &order) == plain.bytes());
            while memory.bring(0) {}
            drop(view);
            prop_assert!(buffer.is_unread());
            prop_assert!(buffer.bytes() == plain.bytes());
        }
    }
}

#[test]
fn what_a_gradient_counts_with_is_shown_with_it_in_whichever_chunks_it_lies() {
    let tensor = TensorSpec::new("0", Dtype::F64, &[(CHUNK_BYTES - ALIGNMENT) / 8]);
    let layout = Layout::new(vec![tensor], ALIGNMENT / 8).unwrap();
    assert!(layout.chunks() == 2 && layout.auxiliary_bytes().end == CHUNK_BYTES);
    let (mut buffer, memory) = (GradientBuffer::zeros(&layout), Plain::new(&layout));
    let view = buffer.awaited(&layout);
    let is_seen = |chunk| view.chunk(chunk).now_or_never().is_some();
    let enqueued = enqueue(&mut buffer, &layout, 3, WriteMode::Store, (&memory, &[true]));
    assert!(!is_seen(0) && !is_seen(1));
    while memory.bring(0) {}
    assert!(!is_seen(0), "it lacks its sum");
    enqueued.settle(&mut buffer, &layout).unwrap();
    assert!(!is_seen(0) && !is_seen(1), "it does not count");
    drop(buffer.complete());
    assert!(is_seen(0) && is_seen(1));
    drop(view);
    assert_eq!(buffer.bytes()[layout.auxiliary_bytes()][..8], 3_f64.to_le_bytes());
    assert_eq!(buffer.bytes()[CHUNK_BYTES..], 4_u64.to_le_bytes());
}

#[test]
fn what_fails_on_its_way_through_is_told_to_all_that_wait_for_it() {
    let layout = three();
    let mut sum = GradientBuffer::zeros(&layout);
    sum.renew(&layout);
    let (view, part) = (sum.view(), 0..LOWERED_BYTES);
    let goes = sum.places().place(part.clone());
    let (passing, passed) = Passing::new(part, Dtype::F32, false, Box::new(PlainSlot::new()));
    passing.finished_in(Some(goes), None).fail(ResidentError::new("it burns"));
    let told = [
        passed.now_or_never().unwrap().unwrap().err(),
        view.chunk(0).now_or_never().unwrap().err(),
    ];
    for reason in told {
        assert!(reason.unwrap().to_string().ends_with("it burns"));
    }
}

/// Three tensors of 1 MiB, of which the middle one is the caller's to keep or not.
fn three() -> Layout {
    layout_of(&[(LOWERED_BYTES / 4, false); 3])
}

#[test]
fn what_is_not_asked_for_stays_where_it_is() {
    let layout = layout_of(&[(5 * LOWERED_BYTES / 4, false)]);
    let (mut buffer, memory) = (GradientBuffer::zeros(&layout), Plain::new(&layout));
    write(&mut buffer, &layout, Some(3), WriteMode::Store, Some((&memory, &[true])));
    let view = buffer.complete();
    assert!(memory.asked.lock().unwrap().is_empty());
    assert!(view.chunk(LOWERED_BYTES as u32 / 128 / 1024).now_or_never().is_none());
    let asked: Vec<_> = memory.asked.lock().unwrap().iter().map(Lowering::range).collect();
    assert_eq!(asked, [LOWERED_BYTES..2 * LOWERED_BYTES, 0..LOWERED_BYTES]);
    // Once.
    assert!(view.chunk(0).now_or_never().is_none() && view.clone().chunk(9).now_or_never().is_none());
    assert_eq!(memory.asked.lock().unwrap().len(), 2);
    while memory.bring(0) {}
    assert!(view.chunk(0).now_or_never().is_some() && view.chunk(9).now_or_never().is_some());
}

#[test]
fn a_buffer_that_is_filled_with_something_else_can_let_go_of_its_memory_elsewhere() {
    let layout = three();
    let (mut buffer, memory) = (GradientBuffer::zeros(&layout), Plain::new(&layout));
    write(&mut buffer, &layout, Some(3), WriteMode::Store, Some((&memory, &[true; 3])));
    drop(buffer.complete());
    buffer.let_go_elsewhere();
    assert!(buffer.has_memory_elsewhere(), "what is in there is nowhere else");
    buffer.bytes_mut().fill(1);
    buffer.let_go_elsewhere();
    assert!(!buffer.has_memory_elsewhere());
    assert!(buffer.bytes().iter().all(|byte| *byte == 1));
}

/// Whether a reader was woken.
#[derive(Default)]
struct Told(AtomicBool);

impl std::task::Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_reader_that_came_first_gets_what_is_left_elsewhere_later() {
    let layout = three();
    let (mut buffer, memory) = (GradientBuffer::zeros(&layout), Plain::new(&layout));
    let view = buffer.awaited(&layout);
    let mut last = Box::pin(view.chunk(layout.chunks() - 2));
    assert!(last.as_mut().now_or_never().is_none());
    let told = Arc::new(Told::default());
    let waker = std::task::Waker::from(Arc::clone(&told));
    let mut context = std::task::Context::from_waker(&waker);
    assert!(last.as_mut().poll(&mut context).is_pending());
    write(&mut buffer, &layout, Some(1), WriteMode::Store, Some((&memory, &[true; 3])));
    assert!(told.0.load(Ordering::Relaxed), "it is woken to ask");
    assert!(last.as_mut().poll(&mut context).is_pending());
    while memory.bring(0) {}
    assert!(last.as_mut().now_or_never().is_some_and(|bytes| bytes.is_ok()));
}

#[test]
fn what_does_not_come_is_an_error_for_those_that_wait_and_those_that_come_later() {
    let layout = three();
    let (mut buffer, memory) = (GradientBuffer::zeros(&layout), Plain::new(&layout));
    for gone in [false, true] {
        write(&mut buffer, &layout, Some(3), WriteMode::Store, Some((&memory, &[true; 3])));
        let view = buffer.complete();
        assert!(view.chunk(0).now_or_never().is_none());
        let lowering = memory.take(0).unwrap();
        let words = if gone {
            drop(lowering);
            "a gradient did not come from where it lies: what was to bring it is gone"
        } else {
            lowering.fail(ResidentError::new("its device burns"));
            "a gradient did not come from where it lies: its device burns"
        };
        for chunk in [0, 9, layout.chunks() - 2] {
            let error = view.chunk(chunk).now_or_never().unwrap().unwrap_err();
            assert_eq!(error.to_string(), words);
        }
        drop(view);
        while memory.bring(0) {}
        assert!(buffer.lower().is_err());
    }
    // Its memory is of use for the next.
    let mut plain = GradientBuffer::zeros(&layout);
    write(&mut plain, &layout, Some(4), WriteMode::Store, None);
    write(&mut buffer, &layout, Some(4), WriteMode::Store, None);
    assert!(buffer == plain);
}

#[test]
fn a_tensor_that_lies_elsewhere_is_not_added_to_here() {
    let layout = three();
    let (mut buffer, memory) = (GradientBuffer::zeros(&layout), Plain::new(&layout));
    write(
        &mut buffer,
        &layout,
        Some(3),
        WriteMode::Store,
        Some((&memory, &[true, false, true])),
    );
    let mut writer = buffer.writer(&layout, WriteMode::Add);
    let lies = |result| matches!(result, Err(GradientError::LiesElsewhere(spec)) if spec.name == "0");
    assert!(lies(writer.write_f32(0, &vec![0.0; LOWERED_BYTES / 4])));
    writer.fill_f32(1, |_| ()).unwrap();
    let elements = LOWERED_BYTES / 4;
    assert!(matches!(
        writer.place(1, Dtype::F32, elements),
        Err(GradientError::WrittenTwice(_))
    ));
    assert!(matches!(
        writer.place(2, Dtype::F64, elements),
        Err(GradientError::Dtype { .. })
    ));
    assert!(matches!(writer.place(2, Dtype::F32, 1), Err(GradientError::Elements { .. })));
    assert!(writer.place(2, Dtype::F32, elements).unwrap().may_be_kept());
    // What has no elements lies anywhere.
    let layout = layout_of(&[(0, false), (1, false)]);
    let (mut buffer, memory) = (GradientBuffer::zeros(&layout), Plain::new(&layout));
    write(&mut buffer, &layout, Some(1), WriteMode::Store, Some((&memory, &[true; 2])));
    let mut writer = buffer.writer(&layout, WriteMode::Add);
    writer.place(0, Dtype::F32, 0).unwrap().keep(memory);
    let mut writer = buffer.writer(&layout, WriteMode::Add);
    writer.write_f32(0, &[]).unwrap();
}

#[test]
#[should_panic(expected = "brought here before it is read")]
fn a_gradient_that_lies_elsewhere_is_not_read_before_it_is_brought() {
    let layout = three();
    let (mut buffer, memory) = (GradientBuffer::zeros(&layout), Plain::new(&layout));
    write(
        &mut buffer,
        &layout,
        Some(3),
        WriteMode::Store,
        Some((&memory, &[false, true, false])),
    );
    let _ = buffer.bytes();
}

#[test]
fn alone_what_lies_elsewhere_is_brought_and_stays_there_where_it_is_the_sum() {
    let layout = three();
    let at_once = |shard: usize| {
        let (mut buffer, memory) = (GradientBuffer::zeros(&layout), Plain::new(&layout));
        let mut writer = buffer.writer(&layout, WriteMode::Store);
        let resident = Arc::new(AtOnce(Arc::clone(&memory)));
        for tensor in 0..3 {
            let place = writer.place(tensor, Dtype::F32, LOWERED_BYTES / 4).unwrap();
            memory.write(&place, Dtype::F32, &values(&layout, tensor, shard));
            place.keep(Arc::clone(&resident) as _);
        }
        writer.samples(1).unwrap();
        writer.finish().unwrap();
        buffer
    };
    let here = |shard| {
        let mut buffer = at_once(shard);
        buffer.lower().unwrap();
        buffer.clone()
    };
    for shards in [vec![0], vec![0, 1, 2]] {
        let sum = add_up(&layout, Step::ZERO, shards.iter().map(|&shard| at_once(shard))).unwrap();
        let expected = add_up(&layout, Step::ZERO, shards.iter().map(|&shard| here(shard))).unwrap();
        assert!(sum == expected);
        assert_eq!(sum.resident(&layout).is_some(), shards.len() == 1);
        assert!(expected.resident(&layout).is_none());
    }
}
