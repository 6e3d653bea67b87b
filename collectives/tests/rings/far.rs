//! Memory in which gradients may lie that is not a ring's: plain memory here, and late.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sardana_collectives::gradient::{Computing, GradientBuffer, Lowering, Passing, Resident, ResidentError, Sum, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_collectives::limits::LOWERED_BYTES;
use sardana_collectives::reduce;
use sardana_protocol::state::Dtype;
use tokio::task::yield_now;

use crate::dance::{Gradient, Values};

/// Which gradients lie there, by the first of their shards, and what has crossed to here and back.
#[derive(Clone, Debug)]
pub(crate) struct Far {
    pub(crate) keeps: fn(u32) -> bool,
    pub(crate) crossed: Arc<Crossed>,
    /// So many parts pass before it burns.
    pub(crate) lasts: Arc<AtomicU64>,
}

/// Bytes.
#[derive(Debug, Default)]
pub(crate) struct Crossed {
    /// Of gradients.
    pub(crate) lowered: AtomicU64,
    /// Of running sums, both ways.
    pub(crate) down: AtomicU64,
    pub(crate) up: AtomicU64,
    /// Of finished sums, to where those go.
    pub(crate) placed: AtomicU64,
    /// Finished sums that lie there as well.
    pub(crate) stays: AtomicU64,
}

/// One gradient's.
#[derive(Debug)]
pub(crate) struct Memory {
    far: Far,
    layout: Layout,
    bytes: Mutex<Vec<u8>>,
}

impl Far {
    pub(crate) fn new(keeps: fn(u32) -> bool) -> Self {
        Self {
            keeps,
            crossed: Arc::default(),
            lasts: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }

    pub(crate) fn memory(&self, layout: &Layout) -> Arc<Memory> {
        Arc::new(Memory {
            far: self.clone(),
            layout: layout.clone(),
            bytes: Mutex::new(vec![0; layout.bytes()]),
        })
    }
}

/// Requires that a sum's tensors lie there as they are here.
pub(crate) fn compare(there: Arc<dyn Resident>, sum: &Sum, layout: &Layout) {
    let there: Arc<dyn Any + Send + Sync> = there;
    let there = there.downcast::<Memory>().unwrap();
    assert!(there.bytes.lock().unwrap()[..layout.tensors_end()] == sum.bytes()[..layout.tensors_end()]);
    there.far.crossed.stays.fetch_add(1, Ordering::Relaxed);
}

/// The tensors that lie there.
pub(crate) fn tensors(there: &Arc<dyn Resident>, layout: &Layout) -> Vec<u8> {
    let there: Arc<dyn Any + Send + Sync> = Arc::clone(there) as _;
    there.downcast::<Memory>().unwrap().bytes.lock().unwrap()[..layout.tensors_end()].to_vec()
}

/// From now on these tensors lie there.
pub(crate) fn put(there: &Arc<dyn Resident>, tensors: &[u8]) {
    let there: Arc<dyn Any + Send + Sync> = Arc::clone(there) as _;
    there.downcast::<Memory>().unwrap().bytes.lock().unwrap()[..tensors.len()].copy_from_slice(tensors);
}

impl Memory {
    /// Writes a gradient, whose tensors stay there.
    pub(crate) fn keep(
        self: &Arc<Self>,
        gradient: &Gradient,
        layout: &Layout,
        buffer: &mut GradientBuffer,
        mode: WriteMode,
    ) {
        let mut writer = buffer.writer(layout, mode);
        for (index, values) in gradient.tensors.iter().enumerate() {
            let (dtype, bytes): (_, Vec<u8>) = match values {
                Values::F32(values) => (Dtype::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
                Values::F64(values) => (Dtype::F64, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
            };
            let place = writer.place(index, dtype, bytes.len() / dtype.bytes()).unwrap();
            let range = place.bytes().clone();
            let mut own = self.bytes.lock().unwrap();
            match mode {
                WriteMode::Store => own[range].copy_from_slice(&bytes),
                WriteMode::Add => reduce::add(layout, range.clone(), &mut own[range], &bytes[..]),
            }
            drop(own);
            place.keep(Arc::clone(self) as _);
        }
        for (index, value) in gradient.auxiliary.iter().enumerate() {
            writer.auxiliary(index, *value).unwrap();
        }
        writer.samples(gradient.samples).unwrap();
        writer.finish().unwrap();
    }

    /// Later, and not in the order in which it was asked for.
    async fn late(&self, at: usize) {
        for _ in 0..at / 7 % 5 {
            yield_now().await;
        }
    }
}

impl Resident for Memory {
    fn computing(&self) -> Option<Box<dyn Computing>> {
        None
    }

    fn lower(self: Arc<Self>, lowering: Lowering) {
        tokio::spawn(async move {
            let range = lowering.range();
            self.late(range.start).await;
            self.far.crossed.lowered.fetch_add(range.len() as u64, Ordering::Relaxed);
            lowering.write(|here| here.copy_from_slice(&self.bytes.lock().unwrap()[range]));
        });
    }

    fn adds_with(&self, other: &dyn Resident) -> bool {
        let other: &dyn Any = other;
        other.is::<Self>()
    }

    fn another(&self) -> Option<Arc<dyn Resident>> {
        Some(self.far.memory(&self.layout))
    }

    fn pass(self: Arc<Self>, others: &[Arc<dyn Resident>], mut passing: Passing) {
        let others = others.iter().map(|other| {
            let other: Arc<dyn Any + Send + Sync> = Arc::clone(other) as _;
            other.downcast::<Self>().unwrap()
        });
        let all: Vec<Arc<Self>> = [Arc::clone(&self)].into_iter().chain(others).collect();
        tokio::spawn(async move {
            let range = passing.range();
            self.late(range.start / 64 * 3).await;
            if self.far.lasts.fetch_sub(1, Ordering::Relaxed) == 0 {
                return passing.fail(ResidentError::new("it burns"));
            }
            let bytes = range.len() as u64;
            let crossed = &self.far.crossed;
            let up = if passing.begins() { 0 } else { bytes };
            crossed.up.fetch_add(up, Ordering::Relaxed);
            crossed.down.fetch_add(bytes, Ordering::Relaxed);
            let own: Vec<Vec<u8>> = all
                .iter()
                .map(|one| one.bytes.lock().unwrap()[range.clone()].to_vec())
                .collect();
            let (begins, stays) = (passing.begins(), passing.stays());
            // Every other part is left to go from its slot.
            let goes = passing.goes_if(|part| (part.range().start / LOWERED_BYTES).is_multiple_of(2));
            let slot = &mut passing.slot().bytes().unwrap()[..range.len()];
            let running = (!begins).then(|| slot.to_vec());
            let mut terms: Vec<&[u8]> = running.iter().chain(&own).map(Vec::as_slice).collect();
            let mut sum = vec![0; range.len()];
            reduce::sum_into(&self.layout, range.clone(), &mut sum, &mut terms);
            if let Some(stays) = stays {
                let stays: Arc<dyn Any + Send + Sync> = stays;
                stays.downcast::<Self>().unwrap().bytes.lock().unwrap()[range].copy_from_slice(&sum);
            }
            if let Some(goes) = goes {
                crossed.placed.fetch_add(bytes, Ordering::Relaxed);
                goes.write(|here| here.copy_from_slice(&sum));
                // Nothing looks there any more.
                slot.fill(0xff);
            } else {
                slot.copy_from_slice(&sum);
            }
            passing.finish();
        });
    }

    fn add_zeros(&self, _: Dtype, range: std::ops::Range<usize>) -> Result<(), ResidentError> {
        let zeros = vec![0; range.len()];
        reduce::add(
            &self.layout,
            range.clone(),
            &mut self.bytes.lock().unwrap()[range],
            &zeros[..],
        );
        Ok(())
    }
}
