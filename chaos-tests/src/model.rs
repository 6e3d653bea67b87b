//! A toy model that is cheap and touchy: its gradients depend on the state, the samples and the shard's random numbers, and their
//! magnitudes differ so much that any other order of addition gives other bits.

use std::fs::File;
use std::hint::spin_loop;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sardana::data::Shard;
use sardana::fault::{self, Point};
use sardana::model::{Dtype, GradientWriter, Mean, ModelError, SharedState, Step, TensorSpec, Trainable};

use crate::dice::mix;
use crate::gate::{Place, Trap};
use crate::journal::{Deed, Pen, now_ns};
use crate::setup::Setup;

/// Elements of the f64 tensor.
const WIDE: usize = 96;

/// How strongly a weight pulls itself back; keeps the state bounded.
const PULL: f32 = 1.0 / 16.0;

/// How long the last step but one takes; the step before it an eighth of that, and so on with the third power of the distance, as long as
/// that is more than [`Place::Pace`] gives it anyway. Nothing is waited for as long as that.
const PACE: Duration = Duration::from_secs(300);

/// What only a worker process does.
#[derive(Debug)]
struct Instruments {
    pen: Pen,
    folder: std::path::PathBuf,
    gate_step: u64,
    last_step: u64,
    /// The step that was paced last.
    paced: AtomicU64,
    work: Duration,
    rest: Duration,
    /// Held by the process that is slower than the others, as long as it lives.
    _slower: Option<File>,
}

/// The model: two parameters, their momenta, a counter, and what is only carried along.
#[derive(Debug)]
pub struct Touchy {
    weights: Vec<f32>,
    momentum: Vec<f32>,
    wide: Vec<f64>,
    wide_momentum: Vec<f64>,
    updates: u64,
    ballast: Arc<Vec<u8>>,
    outlives_updates: bool,
    instruments: Option<Instruments>,
}

impl Touchy {
    /// The model in state 0, for a plain loop.
    #[must_use]
    pub fn plain(setup: &Setup) -> Self {
        let start = |index: usize| wild_f32(mix(index as u64)) / 128.0;
        let ballast = (0..setup.ballast / 8).flat_map(|index| mix(index as u64).to_le_bytes());
        Self {
            weights: (0..setup.elements).map(start).collect(),
            momentum: vec![0.0; setup.elements],
            wide: (0..WIDE).map(|index| f64::from(start(index))).collect(),
            wide_momentum: vec![0.0; WIDE],
            updates: 0,
            ballast: Arc::new(ballast.collect()),
            outlives_updates: setup.outlives_updates,
            instruments: None,
        }
    }

    /// The same model in a worker process: it keeps a journal in `folder`, waits at gates, and takes its time.
    ///
    /// # Errors
    /// When the journal or a gate cannot be opened.
    pub fn in_worker(setup: &Setup, folder: &Path) -> Result<Self, ModelError> {
        Place::Door.pass(folder)?;
        let lock = if setup.slower > 1 { take_lock(folder)? } else { None };
        let times = if lock.is_some() { setup.slower } else { 1 };
        Ok(Self {
            instruments: Some(Instruments {
                pen: Pen::new(folder)?,
                folder: folder.to_owned(),
                gate_step: setup.gate_step,
                last_step: setup.steps.saturating_sub(1),
                paced: AtomicU64::new(u64::MAX),
                work: Duration::from_micros(setup.work_us) * times,
                rest: Duration::from_micros(setup.rest_us) * times,
                _slower: lock,
            }),
            ..Self::plain(setup)
        })
    }

    fn shared(&self) -> Shared {
        let small = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        let wide = |values: &[f64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        Shared {
            specs: self.specs(),
            bytes: [
                small(&self.weights),
                small(&self.momentum),
                wide(&self.wide),
                wide(&self.wide_momentum),
                self.updates.to_le_bytes().to_vec(),
            ],
            ballast: Arc::clone(&self.ballast),
            outlives_updates: self.outlives_updates,
        }
    }

    fn specs(&self) -> [TensorSpec; 6] {
        let elements = self.weights.len();
        [
            TensorSpec::new("weights", Dtype::F32, &[elements]),
            TensorSpec::new("momentum", Dtype::F32, &[elements]),
            TensorSpec::new("wide", Dtype::F64, &[WIDE]),
            TensorSpec::new("wide_momentum", Dtype::F64, &[WIDE]),
            TensorSpec::new("updates", Dtype::U64, &[1]),
            TensorSpec::new("ballast", Dtype::U64, &[self.ballast.len() / 8]),
        ]
    }

    fn digest(&self) -> u64 {
        let bits = self.momentum.iter().map(|value| u64::from(value.to_bits()));
        bits.chain(self.wide.iter().map(|value| value.to_bits()))
            .fold(self.updates, |digest, bits| {
                (digest.rotate_left(5) ^ bits).wrapping_mul(0x100_0000_01b3)
            })
    }
}

/// The lock that makes a process slower; none if another process has it.
fn take_lock(folder: &Path) -> Result<Option<File>, ModelError> {
    let file = File::create(folder.join("slower"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(std::io::Error::from(error).into()),
    }
}

/// The state at a boundary: copies of what is small.
struct Shared {
    specs: [TensorSpec; 6],
    bytes: [Vec<u8>; 5],
    ballast: Arc<Vec<u8>>,
    outlives_updates: bool,
}

impl SharedState for Shared {
    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        let bytes = self.bytes.iter().map(Vec::as_slice).chain([self.ballast.as_slice()]);
        self.specs.iter().zip(bytes).for_each(|(spec, bytes)| visitor(spec, bytes));
        Ok(())
    }

    fn outlives_updates(&self) -> bool {
        self.outlives_updates
    }
}

/// The values that these bytes are, as `read` reads each.
fn fill<T, const N: usize>(values: &mut [T], bytes: &[u8], read: fn([u8; N]) -> T) {
    let (chunks, _) = bytes.as_chunks();
    values.iter_mut().zip(chunks).for_each(|(value, bytes)| *value = read(*bytes));
}

/// A number of a random sign and magnitude, from 2⁻⁸ to 2⁸.
fn wild_f32(bits: u64) -> f32 {
    let sign = (bits >> 63) as u32;
    let exponent = 127 - 8 + ((bits >> 59) & 15) as u32;
    let mantissa = ((bits >> 30) & 0x7f_ffff) as u32;
    f32::from_bits(sign << 31 | exponent << 23 | mantissa)
}

impl Trainable for Touchy {
    fn gradients(&self) -> Vec<TensorSpec> {
        let [weights, _, wide, ..] = self.specs();
        vec![weights, wide]
    }

    fn auxiliary(&self) -> Vec<String> {
        vec!["loss".to_owned(), "noise".to_owned()]
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        let begin = now_ns();
        let until = Instant::now();
        let step = shard.step();
        let mut random = shard.random(0);
        let (mut gradient, mut wide) = (vec![0.0_f32; self.weights.len()], vec![0.0_f64; WIDE]);
        let (mut loss, mut noise) = (0.0, 0.0);
        for &sample in shard.samples() {
            let jitter = random.uniform_f64();
            let base = mix(sample ^ self.updates << 40 ^ jitter.to_bits());
            for (index, (slope, weight)) in (0_u64..).zip(gradient.iter_mut().zip(&self.weights)) {
                let bits = (base ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                *slope += wild_f32(bits) - weight * PULL;
            }
            for (index, (slope, weight)) in wide.iter_mut().zip(&self.wide).enumerate() {
                *slope += f64::from(wild_f32(mix(base ^ index as u64))) * jitter - weight * f64::from(PULL);
            }
            loss += f64::from(wild_f32(base)) + self.wide[0];
            noise += jitter;
        }
        fault::reached(Point::InGradient, step);
        if let Some(instruments) = &self.instruments {
            instruments.linger(until, step)?;
        }
        out.write_f32(0, &gradient)?;
        out.write_f64(1, &wide)?;
        out.auxiliary(0, loss)?;
        out.auxiliary(1, noise)?;
        out.samples(shard.samples().len() as u64)?;
        if let Some(instruments) = &self.instruments {
            let shard = shard.index();
            instruments.pen.write(Deed::Gradient { shard }, step.get(), begin)?;
        }
        Ok(())
    }

    fn apply(&mut self, step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        let begin = now_ns();
        let (slopes, wide_slopes) = (mean.f32(0)?, mean.f64(1)?);
        let half = self.weights.len() / 2;
        let update = |(weight, (momentum, slope)): (&mut f32, (&mut f32, &f32))| {
            *momentum = 0.5 * *momentum + slope;
            *weight = 0.5 * *weight - *momentum;
        };
        let small = self.weights.iter_mut().zip(self.momentum.iter_mut().zip(&slopes));
        for (index, element) in small.enumerate() {
            if index == half {
                fault::reached(Point::InApply, step);
            }
            update(element);
        }
        let wide = self.wide.iter_mut().zip(self.wide_momentum.iter_mut().zip(&wide_slopes));
        for (weight, (momentum, slope)) in wide {
            *momentum = 0.5 * *momentum + slope;
            *weight = 0.5 * *weight - *momentum;
        }
        self.updates += 1;
        if let Some(instruments) = &self.instruments {
            let digest = self.digest();
            instruments.pen.write(Deed::Update { digest }, step.get(), begin)?;
        }
        Ok(())
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        self.shared().visit(visitor)
    }

    fn share(&self) -> Option<Box<dyn SharedState>> {
        Some(Box::new(self.shared()))
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        let small = |values: &mut [f32]| fill(values, bytes, f32::from_le_bytes);
        let wide = |values: &mut [f64]| fill(values, bytes, f64::from_le_bytes);
        match tensor.name.as_str() {
            "weights" => small(&mut self.weights),
            "momentum" => small(&mut self.momentum),
            "wide" => wide(&mut self.wide),
            "wide_momentum" => wide(&mut self.wide_momentum),
            "updates" => self.updates = u64::from_le_bytes(bytes.try_into()?),
            "ballast" => {
                let begin = now_ns();
                Arc::make_mut(&mut self.ballast).copy_from_slice(bytes);
                if let Some(instruments) = self.instruments.as_ref().filter(|_| !bytes.is_empty()) {
                    instruments.pen.write(Deed::Load, 0, begin)?;
                }
            }
            other => return Err(format!("no tensor {other}").into()),
        }
        Ok(())
    }

    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        let size = self.weights.iter().map(|weight| f64::from(weight.abs())).sum::<f64>();
        Ok(vec![("size".to_owned(), size)])
    }
}

impl Instruments {
    /// Makes a gradient that began at `since` take its time.
    fn linger(&self, since: Instant, step: Step) -> Result<(), ModelError> {
        while since.elapsed() < self.work {
            spin_loop();
        }
        thread::sleep(self.rest);
        if step.get() >= self.gate_step {
            Trap::pass(&self.folder);
            Place::Step.pass(&self.folder)?;
        }
        if step.get() >= self.gate_step.saturating_add(2) {
            Place::Late.pass(&self.folder)?;
        }
        if step.get() >= self.gate_step {
            self.keep_pace(step.get())?;
        }
        Ok(())
    }

    /// Makes a step take a millisecond longer than the one before, and far longer near the last one, while [`Place::Pace`] is closed.
    fn keep_pace(&self, step: u64) -> Result<(), ModelError> {
        if step >= self.last_step {
            Place::Pace.pass(&self.folder)?;
        } else if self.paced.swap(step, Ordering::Relaxed) != step {
            let left = u32::try_from(self.last_step - step).unwrap_or(u32::MAX);
            let grown = Duration::from_millis(step - self.gate_step);
            Place::Pace.pass_within(&self.folder, grown.max(PACE / left.saturating_pow(3)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sardana::data::Sampler;
    use sardana::model::{GradientBuffer, Layout, Sum, WriteMode, probe, state_hash};
    use sardana::reference;

    use super::*;
    use crate::journal::{Journal, PROBE_GRADIENTS, PROBE_UPDATES};

    #[test]
    fn the_model_keeps_its_promises_and_the_probe_is_as_long_as_the_journal_thinks() {
        let setup = Setup::new(1);
        let folder = tempfile::tempdir().unwrap();
        let mut model = Touchy::in_worker(&setup, folder.path()).unwrap();
        let job = setup.job().unwrap();
        probe(&mut model, &Sampler::new(job.spec()).unwrap()).unwrap();
        let text = std::fs::read_to_string(folder.path().join("journal")).unwrap();
        assert_eq!(text.lines().count(), PROBE_GRADIENTS + PROBE_UPDATES);
        assert_eq!(Journal::read(folder.path()).unwrap().lines, []);
        reference::train(job.spec(), &mut model).unwrap();
        let journal = Journal::read(folder.path()).unwrap();
        assert_eq!(journal.gradients(), (8 * 12, 8 * 12));
        assert_eq!(journal.updates().count(), 12);
    }

    #[test]
    fn another_order_of_addition_shows() {
        let setup = Setup::new(1);
        let job = setup.job().unwrap();
        let sampler = Sampler::new(job.spec()).unwrap();
        let state_after = |order: [u32; 8]| {
            let mut model = Touchy::plain(&setup);
            let layout = Layout::new(model.gradients(), 2).unwrap();
            let mut buffer = GradientBuffer::zeros(&layout);
            for (place, index) in order.into_iter().enumerate() {
                let mode = if place == 0 { WriteMode::Store } else { WriteMode::Add };
                let mut writer = buffer.writer(&layout, mode);
                model.gradient(&sampler.shard(Step::ZERO, index), &mut writer).unwrap();
                writer.finish().unwrap();
            }
            model
                .apply(Step::ZERO, &Sum::from_buffer(Step::ZERO, buffer).mean(&layout))
                .unwrap();
            state_hash(&model, Step::new(1)).unwrap()
        };
        let right = state_after([0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(right, state_after([0, 1, 2, 3, 4, 5, 6, 7]));
        assert_ne!(right, state_after([0, 1, 2, 3, 4, 5, 7, 6]));
        assert_ne!(right, state_after([7, 6, 5, 4, 3, 2, 1, 0]));
    }

    #[test]
    fn the_state_stays_bounded() {
        let setup = Setup {
            steps: 500,
            ..Setup::new(1)
        };
        let mut model = Touchy::plain(&setup);
        reference::train(setup.job().unwrap().spec(), &mut model).unwrap();
        assert!(model.weights.iter().all(|weight| weight.is_finite() && weight.abs() < 1e4));
    }
}
