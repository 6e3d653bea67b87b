//! Plain memory that stands for that of a device, and gradients that are written there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;

use super::*;
use crate::limits::LOWERED_BYTES;
use crate::reduce;
use crate::stores::Stores;

/// Memory elsewhere, and what was asked of it and has not been brought.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) memory: Mutex<Vec<u8>>,
    pub(super) asked: Mutex<Vec<Lowering>>,
    /// Whether zeros cannot be added.
    pub(super) burns: AtomicBool,
}

impl Plain {
    pub(super) fn new(layout: &Layout) -> Arc<Self> {
        Arc::new(Self {
            memory: Mutex::new(vec![0xee; layout.bytes()]),
            asked: Mutex::default(),
            burns: AtomicBool::new(false),
        })
    }

    pub(super) fn write(&self, place: &TensorPlace<'_, '_>, dtype: Dtype, values: &[u8]) {
        let mut memory = self.memory.lock().unwrap();
        place
            .mode()
            .put_bytes(dtype, Stores::Cached, &mut memory[place.bytes().clone()], values);
    }

    /// Takes one of the parts that were asked for.
    pub(super) fn take(&self, which: usize) -> Option<Lowering> {
        let mut asked = self.asked.lock().unwrap();
        let count = asked.len();
        (count > 0).then(|| asked.swap_remove(which % count))
    }

    /// Brings one of them.
    pub(super) fn bring(&self, which: usize) -> bool {
        let Some(lowering) = self.take(which) else { return false };
        let range = lowering.range();
        assert!(range.len() <= LOWERED_BYTES);
        lowering.write(|here| here.copy_from_slice(&self.memory.lock().unwrap()[range]));
        true
    }
}

impl Resident for Plain {
    fn computing(&self) -> Option<Box<dyn Computing>> {
        None
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
pub(super) struct AtOnce(pub(super) Arc<Plain>);

impl Resident for AtOnce {
    fn computing(&self) -> Option<Box<dyn Computing>> {
        None
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
pub(super) fn values(layout: &Layout, tensor: usize, shard: usize) -> Vec<u8> {
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
pub(super) fn write(
    buffer: &mut GradientBuffer,
    layout: &Layout,
    shard: Option<usize>,
    mode: WriteMode,
    memory: Option<(&Arc<Plain>, &[bool])>,
) {
    let Some(shard) = shard else {
        return buffer.writer(layout, mode).zero().unwrap();
    };
    let mut writer = begun(buffer, layout, shard, mode, memory);
    writer.auxiliary(0, shard as f64).unwrap();
    writer.finish().unwrap();
}

/// The same shard, whose sum comes once it is settled.
pub(super) fn enqueue(
    buffer: &mut GradientBuffer,
    layout: &Layout,
    shard: usize,
    mode: WriteMode,
    memory: (&Arc<Plain>, &[bool]),
) -> Enqueued {
    let mut writer = begun(buffer, layout, shard, mode, Some(memory));
    let find = move |sums: &mut [f64]| {
        sums[0] = shard as f64;
        Ok::<_, ResidentError>(())
    };
    writer.auxiliary_later(find).unwrap();
    writer.enqueue().unwrap()
}

/// A writer that lacks its auxiliary sum alone.
fn begun<'a>(
    buffer: &'a mut GradientBuffer,
    layout: &'a Layout,
    shard: usize,
    mode: WriteMode,
    memory: Option<(&Arc<Plain>, &[bool])>,
) -> GradientWriter<'a> {
    let mut writer = buffer.writer(layout, mode);
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
    writer.samples(1 + shard as u64).unwrap();
    writer
}

/// Reads all chunks in the order of travel, as many at once as `ahead`, while parts come in the order that `order` draws.
pub(super) fn read(view: &GradientView, layout: &Layout, memory: &Plain, ahead: usize, order: &[usize]) -> Vec<u8> {
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

pub(super) fn layout_of(lengths: &[(usize, bool)]) -> Layout {
    let spec = |(number, &(length, wide)): (usize, &(usize, bool))| {
        let dtype = if wide { Dtype::F64 } else { Dtype::F32 };
        TensorSpec::new(number.to_string(), dtype, &[length])
    };
    Layout::new(lengths.iter().enumerate().map(spec).collect(), 1).unwrap()
}
