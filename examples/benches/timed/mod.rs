//! The digits network with a clock: each process that trains says how long it took from its first update to its last, so that starting
//! and ending do not count.

use std::cell::Cell;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use sardana::data::Shard;
use sardana::model::{GradientWriter, Mean, ModelError, SharedState, TensorSpec, Trainable};
use sardana::{JobSpec, Step};
use sardana_examples::digits;

/// Names the folder where a worker writes down what it took.
pub(crate) const FOLDER: &str = "SARDANA_BENCH_FOLDER";

/// Seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Took {
    /// Of the clock on the wall.
    pub(crate) wall: f64,
    /// Of a processor, by the thread that trains: other load on the machine does not disturb it.
    pub(crate) training: f64,
    /// Of a processor, by all threads of the process.
    pub(crate) process: f64,
}

/// Seconds so far.
pub(crate) fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

struct Begun {
    wall: Instant,
    before: Took,
}

impl Begun {
    fn now() -> Self {
        Self {
            wall: Instant::now(),
            before: Took {
                wall: 0.0,
                training: seconds(ClockId::ThreadCPUTime),
                process: seconds(ClockId::ProcessCPUTime),
            },
        }
    }

    fn took(&self) -> Took {
        Took {
            wall: self.wall.elapsed().as_secs_f64(),
            training: seconds(ClockId::ThreadCPUTime) - self.before.training,
            process: seconds(ClockId::ProcessCPUTime) - self.before.process,
        }
    }
}

/// The model.
pub(crate) struct Timed {
    model: digits::Model,
    last: Step,
    begun: Option<Begun>,
    took: Cell<Took>,
}

impl Timed {
    pub(crate) fn new(spec: &JobSpec) -> Result<Self, ModelError> {
        let last = spec.steps.previous().ok_or("a job has steps")?;
        Ok(Self {
            model: digits::model(spec)?,
            last,
            begun: None,
            took: Cell::default(),
        })
    }

    /// What it took, once the last update is made.
    pub(crate) fn took(&self) -> Took {
        self.took.get()
    }
}

impl Trainable for Timed {
    fn gradients(&self) -> Vec<TensorSpec> {
        self.model.gradients()
    }

    fn auxiliary(&self) -> Vec<String> {
        self.model.auxiliary()
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        self.model.gradient(shard, out)
    }

    fn apply(&mut self, step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        self.model.apply(step, mean)?;
        if step == Step::ZERO {
            // A probe comes here as well; the last time counts.
            self.begun = Some(Begun::now());
        }
        if step == self.last {
            let begun = self.begun.as_ref().ok_or("the first update came before the last")?;
            self.took.set(begun.took());
        }
        Ok(())
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        self.model.visit(visitor)
    }

    fn share(&self) -> Option<Box<dyn SharedState>> {
        self.model.share()
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        self.model.load(tensor, bytes)
    }

    /// Nothing that all workers would agree on. What this one took is written down.
    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        if let Some(folder) = std::env::var_os(FOLDER) {
            let Took { wall, training, process } = self.took();
            let name = Path::new(&folder).join(std::process::id().to_string());
            std::fs::write(name, format!("{wall} {training} {process}"))?;
        }
        Ok(Vec::new())
    }
}

/// What the workers that wrote into `folder` took: their mean.
pub(crate) fn mean_of(folder: &Path, workers: u32) -> Result<Took> {
    let (mut sum, mut found) = (Took::default(), 0);
    for entry in std::fs::read_dir(folder)? {
        let text = std::fs::read_to_string(entry?.path())?;
        let took = parse(&text).with_context(|| format!("expected three numbers of seconds, found {text:?}"))?;
        sum.wall += took.wall;
        sum.training += took.training;
        sum.process += took.process;
        found += 1;
    }
    ensure!(found == workers, "expected {workers} workers' times, found {found}");
    let count = f64::from(workers);
    Ok(Took {
        wall: sum.wall / count,
        training: sum.training / count,
        process: sum.process / count,
    })
}

/// How some values are spread, with so many digits.
pub(crate) fn spread(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    let (least, median, most) = (at(0), at(values.len() / 2), at(values.len().saturating_sub(1)));
    format!("min {least:.digits$}, median {median:.digits$}, max {most:.digits$}")
}

/// Three numbers.
pub(crate) fn parse(text: &str) -> Option<Took> {
    let mut numbers = text.split_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(Took {
        wall: next()?,
        training: next()?,
        process: next()?,
    })
}
