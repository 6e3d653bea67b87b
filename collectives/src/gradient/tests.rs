//! Tests of buffers, writers and means.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::FutureExt;
use sardana_protocol::words::Step;

use super::*;
use crate::coming::Coming;
use crate::limits::CHUNK_BYTES;
use crate::reduce;

fn layout() -> Layout {
    let tensors = vec![
        TensorSpec::new("a", Dtype::F32, &[2, 2]),
        TensorSpec::new("b", Dtype::F64, &[3]),
    ];
    Layout::new(tensors, 2).unwrap()
}

fn write(buffer: &mut GradientBuffer, layout: &Layout, mode: WriteMode, scale: f32) {
    let mut writer = buffer.writer(layout, mode);
    writer.write_f64(1, &[1e20, f64::from(scale), -1e20]).unwrap();
    writer.write_f32(0, &[scale, -scale, 1e-8, 3e7]).unwrap();
    writer.auxiliary(1, 0.5).unwrap();
    writer.samples(3).unwrap();
    writer.finish().unwrap();
}

#[test]
fn adding_into_a_running_sum_is_adding_buffers() {
    let layout = layout();
    let mut running = GradientBuffer::zeros(&layout);
    write(&mut running, &layout, WriteMode::Store, 0.1);
    let mut expected = running.clone();
    write(&mut running, &layout, WriteMode::Add, 0.7);
    let mut second = GradientBuffer::zeros(&layout);
    write(&mut second, &layout, WriteMode::Store, 0.7);
    reduce::add(&layout, 0..layout.bytes(), expected.bytes_mut(), second.bytes());
    assert_eq!(running, expected);
}

#[test]
fn storing_leaves_nothing_of_what_was_there() {
    let layout = layout();
    let mut used = GradientBuffer::zeros(&layout);
    write(&mut used, &layout, WriteMode::Store, 9.0);
    let mut writer = used.writer(&layout, WriteMode::Store);
    writer.write_f32(0, &[0.0; 4]).unwrap();
    writer.write_f64(1, &[0.0; 3]).unwrap();
    writer.samples(0).unwrap();
    writer.finish().unwrap();
    assert_eq!(used, GradientBuffer::zeros(&layout));
    write(&mut used, &layout, WriteMode::Store, 9.0);
    used.writer(&layout, WriteMode::Store).zero().unwrap();
    assert_eq!(used, GradientBuffer::zeros(&layout));
}

#[test]
fn an_empty_shard_is_a_buffer_of_zeros() {
    let layout = layout();
    let mut stored = GradientBuffer::zeros(&layout);
    let mut writer = stored.writer(&layout, WriteMode::Store);
    writer.write_f32(0, &[-0.0; 4]).unwrap();
    writer.write_f64(1, &[-0.0; 3]).unwrap();
    writer.auxiliary(0, -0.0).unwrap();
    writer.samples(7).unwrap();
    writer.finish().unwrap();
    let mut added = stored.clone();
    stored.writer(&layout, WriteMode::Add).zero().unwrap();
    reduce::add(
        &layout,
        0..layout.bytes(),
        added.bytes_mut(),
        GradientBuffer::zeros(&layout).bytes(),
    );
    assert_eq!(stored, added);
    let sum = Sum::from_buffer(Step::ZERO, stored);
    assert_eq!(sum.mean(&layout).f32(0).unwrap()[0].to_bits(), 0);
    assert_eq!(sum.auxiliary(&layout)[0].to_bits(), 0);
    assert_eq!(sum.samples(&layout), 7);
}

#[test]
fn the_mean_divides_tensors_and_not_auxiliary_sums() {
    let layout = layout();
    let mut buffer = GradientBuffer::zeros(&layout);
    write(&mut buffer, &layout, WriteMode::Store, 0.1);
    let sum = Sum::from_buffer(Step::new(4), buffer);
    let mean = sum.mean(&layout);
    assert_eq!(mean.samples(), 3);
    assert_eq!(mean.auxiliary(), [0.0, 0.5]);
    assert_eq!(
        mean.f32(0).unwrap(),
        [0.1_f32 / 3.0, -0.1_f32 / 3.0, 1e-8_f32 / 3.0, 3e7_f32 / 3.0]
    );
    assert_eq!(mean.f64(1).unwrap(), [1e20 / 3.0, f64::from(0.1_f32) / 3.0, -1e20 / 3.0]);
    let again = Sum::from_bytes(Step::new(4), &layout, sum.bytes().to_vec()).unwrap();
    assert_eq!((again.step(), &again), (Step::new(4), &sum));
    assert_eq!(again.clone().into_buffer().bytes(), sum.bytes());
    assert!(Sum::from_bytes(Step::new(4), &layout, vec![0; layout.bytes() + 1]).is_err());
}

#[test]
fn an_empty_global_batch_has_no_mean() {
    let layout = layout();
    let sum = Sum::from_buffer(Step::ZERO, GradientBuffer::zeros(&layout));
    assert_eq!(sum.mean(&layout).f32(0), Err(GradientError::NoSamples));
}

#[test]
fn mistakes_are_named() {
    let layout = layout();
    let [a, b] = [layout.tensors()[0].clone(), layout.tensors()[1].clone()];
    let mut buffer = GradientBuffer::zeros(&layout);
    let mut writer = buffer.writer(&layout, WriteMode::Add);
    assert_eq!(
        writer.write_f32(2, &[]),
        Err(GradientError::NoSuchTensor { tensors: 2, index: 2 })
    );
    assert_eq!(
        writer.write_f32(1, &[0.0; 3]),
        Err(GradientError::Dtype {
            spec: b.clone(),
            found: Dtype::F32
        })
    );
    assert_eq!(
        writer.write_f32(0, &[0.0; 3]),
        Err(GradientError::Elements {
            spec: a.clone(),
            expected: 4,
            found: 3
        })
    );
    writer.write_f32(0, &[0.0; 4]).unwrap();
    assert_eq!(writer.write_f32(0, &[0.0; 4]), Err(GradientError::WrittenTwice(a)));
    assert_eq!(
        writer.auxiliary(2, 0.0),
        Err(GradientError::NoSuchAuxiliary { auxiliary: 2, index: 2 })
    );
    writer.auxiliary(0, 0.0).unwrap();
    assert_eq!(writer.auxiliary(0, 0.0), Err(GradientError::AuxiliaryTwice(0)));
    writer.samples(1).unwrap();
    assert_eq!(writer.samples(1), Err(GradientError::Samples(2)));
    assert_eq!(writer.finish(), Err(GradientError::NotWritten(b)));
    let mut writer = buffer.writer(&layout, WriteMode::Store);
    writer.write_f32(0, &[0.0; 4]).unwrap();
    writer.write_f64(1, &[0.0; 3]).unwrap();
    assert_eq!(writer.finish(), Err(GradientError::Samples(0)));
}

#[test]
fn a_tensor_that_is_filled_in_place_has_the_bits_of_one_that_is_written() {
    let layout = layout();
    let filled = |buffer: &mut GradientBuffer, mode, scale: f32| {
        let mut writer = buffer.writer(&layout, mode);
        let fill = |values: &mut [f32]| {
            assert_eq!(values, [0.0; 4], "a backward pass may add to what it finds");
            values.copy_from_slice(&[scale, -scale, 1e-8, 3e7]);
        };
        writer.fill_f32(0, fill).unwrap();
        assert!(matches!(writer.fill_f32(0, |_| ()), Err(GradientError::WrittenTwice(_))));
        assert!(matches!(writer.fill_f32(1, |_| ()), Err(GradientError::Dtype { .. })));
        assert!(matches!(writer.fill_f32(2, |_| ()), Err(GradientError::NoSuchTensor { .. })));
        writer.write_f64(1, &[1e20, f64::from(scale), -1e20]).unwrap();
        writer.auxiliary(1, 0.5).unwrap();
        writer.samples(3).unwrap();
        writer.finish().unwrap();
    };
    let (mut one, mut other) = (GradientBuffer::zeros(&layout), GradientBuffer::zeros(&layout));
    for (mode, scale) in [(WriteMode::Store, 9.0), (WriteMode::Store, 0.1), (WriteMode::Add, 0.7)] {
        write(&mut one, &layout, mode, scale);
        filled(&mut other, mode, scale);
        assert_eq!(one, other, "{mode:?}");
    }
}

#[test]
fn a_mean_that_is_lent_in_runs_is_the_mean() {
    let elements = 2 * RUN_ELEMENTS + 7;
    let layout = Layout::new(vec![TensorSpec::new("a", Dtype::F32, &[elements])], 0).unwrap();
    let mut buffer = GradientBuffer::zeros(&layout);
    let mut writer = buffer.writer(&layout, WriteMode::Store);
    let values: Vec<f32> = (0..elements).map(|at| at as f32 * 0.3 - 5.0).collect();
    writer.write_f32(0, &values).unwrap();
    writer.samples(3).unwrap();
    writer.finish().unwrap();
    let sum = Sum::from_buffer(Step::ZERO, buffer);
    let mean = sum.mean(&layout);
    let mut lent = vec![f32::NAN; elements];
    mean.runs_f32(0, |at, run| lent[at..at + run.len()].copy_from_slice(run))
        .unwrap();
    assert_eq!(lent, mean.f32(0).unwrap());
    assert!(matches!(mean.runs_f32(1, |_, _| ()), Err(GradientError::NoSuchTensor { .. })));
}

#[test]
fn a_view_shows_a_chunk_once_it_is_whole_and_the_last_one_when_the_gradient_counts() {
    let tensors = vec![
        TensorSpec::new("a", Dtype::F32, &[5 * CHUNK_BYTES / 16]),
        TensorSpec::new("b", Dtype::F64, &[10]),
    ];
    let layout = Layout::new(tensors, 0).unwrap();
    assert_eq!(layout.chunks(), 2);
    let mut buffer = GradientBuffer::zeros(&layout);
    let view = buffer.awaited(&layout);
    let seen = |chunk: u32| view.chunk(chunk).now_or_never().map(|bytes| bytes.unwrap().to_vec());
    assert!(!buffer.is_unread());
    let mut writer = buffer.writer(&layout, WriteMode::Store);
    assert_eq!((seen(0), seen(1)), (None, None));
    writer.fill_f32(0, |values| values.fill(2.5)).unwrap();
    let written = seen(0).unwrap();
    assert!(written.as_chunks().0.iter().all(|value| f32::from_le_bytes(*value) == 2.5));
    writer.write_f64(1, &[1.0; 10]).unwrap();
    writer.samples(9).unwrap();
    writer.finish().unwrap();
    assert_eq!(seen(1), None, "it does not count yet");
    drop(buffer.complete());
    assert!(seen(1).is_some_and(|bytes| bytes.ends_with(&9_u64.to_le_bytes())));
    drop(view);
    assert!(buffer.is_unread());
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_reader_is_woken_by_the_chunk_that_it_waits_for_and_no_other() {
    let chunk = CHUNK_BYTES / size_of::<f32>();
    let tensors = ["a", "b", "c"].map(|name| TensorSpec::new(name, Dtype::F32, &[chunk]));
    let layout = Layout::new(tensors.to_vec(), 0).unwrap();
    let mut buffer = GradientBuffer::zeros(&layout);
    let view = buffer.awaited(&layout);
    let wakes = Arc::new(Wakes::default());
    let mut reading = pin!(view.chunk(1));
    let waker = Waker::from(Arc::clone(&wakes));
    let mut context = Context::from_waker(&waker);
    assert!(reading.as_mut().poll(&mut context).is_pending());
    let mut writer = buffer.writer(&layout, WriteMode::Store);
    // The first tensor says where the gradient lies, which readers may wait for.
    writer.write_f32(2, &vec![1.0; chunk]).unwrap();
    assert!(reading.as_mut().poll(&mut context).is_pending());
    let before = wakes.0.load(Ordering::Relaxed);
    writer.write_f32(0, &vec![1.0; chunk]).unwrap();
    assert_eq!(wakes.0.load(Ordering::Relaxed), before);
    writer.write_f32(1, &vec![1.0; chunk]).unwrap();
    assert_eq!(wakes.0.load(Ordering::Relaxed), before + 1);
    assert!(reading.as_mut().poll(&mut context).is_ready());
}

#[test]
fn a_tensor_is_written_in_the_order_in_which_its_chunks_travel() {
    let elements = 2 * CHUNK_BYTES / size_of::<f32>() + 7;
    let layout = Layout::new(vec![TensorSpec::new("a", Dtype::F32, &[elements])], 0).unwrap();
    let mut buffer = GradientBuffer::zeros(&layout);
    let values: Vec<f32> = (0..elements).map(|number| number as f32).collect();
    let written = RefCell::new(Vec::new());
    let mut writer = buffer.writer(&layout, WriteMode::Store);
    let bytes = layout.tensor_bytes(0).unwrap();
    writer.put(bytes, &values, |mode, stores, bytes, now| {
        written.borrow_mut().push(now[0]);
        mode.put_f32(stores, bytes, now);
    });
    let chunk = (CHUNK_BYTES / size_of::<f32>()) as f32;
    assert_eq!(written.into_inner(), [2.0 * chunk, chunk, 0.0]);
    writer.samples(1).unwrap();
    drop(writer);
    assert_eq!(
        &buffer.bytes()[layout.tensor_bytes(0).unwrap()],
        bytemuck::cast_slice::<f32, u8>(&values)
    );
}

#[test]
#[should_panic(expected = "not changed while it is read")]
fn a_gradient_that_is_read_is_not_written() {
    let layout = layout();
    let mut buffer = GradientBuffer::zeros(&layout);
    let _view = buffer.complete();
    let _ = buffer.writer(&layout, WriteMode::Store);
}

#[test]
#[cfg_attr(miri, ignore = "an interpreter has no such pages")]
fn what_a_transport_holds_is_not_written_again_and_what_it_has_let_go_of_is() {
    let layout = Layout::new(vec![TensorSpec::new("a", Dtype::F32, &[CHUNK_BYTES / 2])], 0).unwrap();
    let mut buffer = GradientBuffer::in_pages(&layout);
    let mut held = Vec::new();
    let mut places = Vec::new();
    for step in 1..=4_u8 {
        let mut writer = buffer.writer(&layout, WriteMode::Store);
        writer.write_f32(0, &vec![f32::from(step); CHUNK_BYTES / 2]).unwrap();
        writer.samples(1).unwrap();
        writer.finish().unwrap();
        let view = buffer.complete();
        let chunk = view.chunk_in_place(0).now_or_never().unwrap().unwrap();
        places.push(chunk.bytes().as_ptr());
        // As if the last two were acknowledged at once.
        if step <= 2 {
            held.push((f32::from(step), chunk.held().unwrap(), chunk.bytes().as_ptr()));
        }
    }
    for (value, bytes, place) in held {
        assert_eq!(bytes.as_ptr(), place, "they are not copied");
        assert!(bytes.chunks(4).all(|four| four == value.to_le_bytes()), "{value}");
    }
    let [first, second, third, fourth] = places[..] else {
        unreachable!("there are four steps")
    };
    assert!(first != second && second != third && third == fourth, "{places:?}");
}

#[test]
fn a_sum_is_read_while_it_fills() {
    let tensors = vec![TensorSpec::new("a", Dtype::F32, &[3 * CHUNK_BYTES / 4 + 5])];
    let layout = Layout::new(tensors, 0).unwrap();
    let coming = Coming::default();
    let mut filling = Filling::new(&layout, GradientBuffer::zeros(&layout), &coming);
    assert!(coming.there().now_or_never().is_none());
    for chunk in layout.travel() {
        filling.fill(chunk, |chunk| chunk.put(&vec![7; chunk.left()]));
        let view = coming.there().now_or_never().unwrap();
        let next = layout.travel().skip_while(|&other| other != chunk).nth(1);
        assert!(next.is_none_or(|next| view.chunk(next).now_or_never().is_none()));
        assert!(
            view.chunk(chunk)
                .now_or_never()
                .is_some_and(|bytes| bytes.unwrap().iter().all(|byte| *byte == 7))
        );
    }
    assert!(filling.finish().bytes().iter().all(|byte| *byte == 7));
}
