//! Tests of gradients whose tensors lie elsewhere: in plain memory here, from which they come late, in any order, or not at all.

mod unfinished;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use proptest::prelude::*;
use sardana_protocol::words::Step;

use super::*;
use crate::alone::add_up;
use crate::coming::Coming;
use crate::limits::LOWERED_BYTES;
use crate::reduce;
use crate::stores::Stores;

/// Memory elsewhere, and what was asked of it and has not been brought.
#[derive(Debug)]
struct Plain {
    memory: Mutex<Vec<u8>>,
    asked: Mutex<Vec<Lowering>>,
    /// Whether zeros cannot be added.
    burns: AtomicBool,
}

impl Plain {
    fn new(layout: &Layout) -> Arc<Self> {
        Arc::new(Self {
            memory: Mutex::new(vec![0xee; layout.bytes()]),
            asked: Mutex::default(),
            burns: AtomicBool::new(false),
        })
    }

    fn write(&self, place: &TensorPlace<'_, '_>, dtype: Dtype, values: &[u8]) {
        let mut memory = self.memory.lock().unwrap();
        place
            .mode()
            .put_bytes(dtype, Stores::Cached, &mut memory[place.bytes().clone()], values);
    }

    /// Takes one of the parts that were asked for.
    fn take(&self, which: usize) -> Option<Lowering> {
        let mut asked = self.asked.lock().unwrap();
        let count = asked.len();
        (count > 0).then(|| asked.swap_remove(which % count))
    }

    /// Brings one of them.
    fn bring(&self, which: usize) -> bool {
        let Some(lowering) = self.take(which) else { return false };
        let range = lowering.range();
        assert!(range.len() <= LOWERED_BYTES);
        lowering.write(|here| here.copy_from_slice(&self.memory.lock().unwrap()[range]));
        true
    }
}

impl Resident for Plain {
    fn wait_computed(&self) -> Result<(), ResidentError> {
        Ok(())
    }

    fn lower(self: Arc<Self>, lowering: Lowering) {
        self.asked.lock().unwrap().push(lowering);
    }

    fn adds_with(&self, _: &dyn Resident) -> bool {
        false
    }

    fn pass(self: Arc<Self>, _: &[Arc<dyn Resident>], passing: Passing) {
        drop(passing);
    }

    fn add_zeros(&self, dtype: Dtype, range: Range<usize>) -> Result<(), ResidentError> {
        if self.burns.load(Ordering::Relaxed) {
            return Err(ResidentError::new("it burns"));
        }
        reduce::add_zeros(dtype, &mut self.memory.lock().unwrap()[range]);
        Ok(())
    }
}

/// One that brings at once what it is asked for.
#[derive(Debug)]
struct AtOnce(Arc<Plain>);

impl Resident for AtOnce {
    fn wait_computed(&self) -> Result<(), ResidentError> {
        Ok(())
    }

    fn lower(self: Arc<Self>, lowering: Lowering) {
        Arc::clone(&self.0).lower(lowering);
        self.0.bring(0);
    }

    fn adds_with(&self, _: &dyn Resident) -> bool {
        false
    }

    fn pass(self: Arc<Self>, _: &[Arc<dyn Resident>], passing: Passing) {
        drop(passing);
    }

    fn add_zeros(&self, dtype: Dtype, range: Range<usize>) -> Result<(), ResidentError> {
        self.0.add_zeros(dtype, range)
    }
}

/// Some values of a tensor, -0.0 among them.
fn values(layout: &Layout, tensor: usize, shard: usize) -> Vec<u8> {
    let spec = &layout.tensors()[tensor];
    let value = |at: usize| match (at + shard * 7 + tensor) % 11 {
        0 => -0.0,
        number => (number as f64 - 4.7) * 1.3_f64.powi((at % 40) as i32),
    };
    let all = (0..spec.elements().unwrap()).map(value);
    match spec.dtype {
        Dtype::F32 => all.flat_map(|value| (value as f32).to_le_bytes()).collect(),
        Dtype::F64 => all.flat_map(f64::to_le_bytes).collect(),
        Dtype::U64 => unreachable!("gradients have none"),
    }
}

/// Writes a shard: each tensor that `elsewhere` names is kept in `memory`. None is an empty shard.
fn write(
    buffer: &mut GradientBuffer,
    layout: &Layout,
    shard: Option<usize>,
    mode: WriteMode,
    memory: Option<(&Arc<Plain>, &[bool])>,
) {
    let mut writer = buffer.writer(layout, mode);
    let Some(shard) = shard else { return writer.zero().unwrap() };
    for (tensor, spec) in layout.tensors().iter().enumerate() {
        let values = values(layout, tensor, shard);
        let mut place = writer.place(tensor, spec.dtype, spec.elements().unwrap()).unwrap();
        match memory.filter(|(_, elsewhere)| elsewhere[tensor] && place.may_be_kept()) {
            Some((memory, _)) => {
                memory.write(&place, spec.dtype, &values);
                place.keep(Arc::clone(memory) as _);
            }
            None => {
                let half = values.len() / 16 * 8;
                place.write_next(&values[..half]);
                place.write_next(&values[half..]);
            }
        }
    }
    writer.auxiliary(0, shard as f64).unwrap();
    writer.samples(1 + shard as u64).unwrap();
    writer.finish().unwrap();
}

/// Reads all chunks in the order of travel, as many at once as `ahead`, while parts come in the order that `order` draws.
fn read(view: &GradientView, layout: &Layout, memory: &Plain, ahead: usize, order: &[usize]) -> Vec<u8> {
    let (travel, mut order) = (layout.travel().collect::<Vec<_>>(), order.iter().cycle());
    let mut bytes = vec![0xdd; layout.bytes()];
    for wanted in travel.chunks(ahead) {
        let poll = |chunk: &u32| view.chunk(*chunk).now_or_never().map(|bytes| bytes.unwrap().to_vec());
        loop {
            let found: Vec<_> = wanted.iter().map(poll).collect();
            if found.iter().all(Option::is_some) {
                for (chunk, found) in wanted.iter().zip(found.into_iter().flatten()) {
                    bytes[layout.chunk(*chunk)].copy_from_slice(&found);
                }
                break;
            }
            assert!(memory.bring(*order.next().unwrap()), "what is not here was asked for");
        }
    }
    bytes
}

fn layout_of(lengths: &[(usize, bool)]) -> Layout {
    let spec = |(number, &(length, wide)): (usize, &(usize, bool))| {
        let dtype = if wide { Dtype::F64 } else { Dtype::F32 };
        TensorSpec::new(number.to_string(), dtype, &[length])
    };
    Layout::new(lengths.iter().enumerate().map(spec).collect(), 1).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn whatever_lies_elsewhere_a_gradient_has_the_bytes_of_one_that_is_written_here(
        tensors in prop::collection::vec((prop_oneof![0..50_usize, 0..400_000_usize], any::<bool>()), 1..5),
        elsewhere in prop::collection::vec(prop::collection::vec(any::<bool>(), 5), 2),
        shards in prop::collection::vec(prop::option::weighted(0.8, 0..9_usize), 1..4),
        awaited in any::<bool>(),
        ahead in 1..4_usize,
        order in prop::collection::vec(any::<usize>(), 8),
    ) {
        let layout = layout_of(&tensors);
        let (mut plain, mut buffer) = (GradientBuffer::zeros(&layout), GradientBuffer::zeros(&layout));
        let memory = Plain::new(&layout);
        // The second gradient is written where the first one was.
        for (round, elsewhere) in elsewhere.into_iter().enumerate() {
            let mut view = None;
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
                write(&mut buffer, &layout, shard, mode, Some((&memory, &first)));
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
