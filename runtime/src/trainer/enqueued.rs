//! Tests of shards whose gradients are only enqueued where they lie when a model has written them.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use sardana_collectives::gradient::{Computing, GradientWriter, Lowering, Mean, Passing, Resident, ResidentError};
use sardana_protocol::member::Event;
use sardana_protocol::messages::{CoordinatorMessage, Form, MemberAddress};
use sardana_protocol::plan::Visit;
use sardana_protocol::state::Dtype;
use sardana_protocol::words::{Generation, Incarnation, Rank, WorkerId};

use super::*;
use crate::data::Shard;
use crate::model::toys::{Line, line_spec};

/// Memory elsewhere, which holds 0.5 wherever it is asked, and what was done there.
#[derive(Debug, Default)]
struct Far {
    fails_to_add: bool,
    fails_to_compute: bool,
    fails_to_find: bool,
    enqueued: AtomicU32,
    done: Mutex<Vec<String>>,
    driver: Mutex<Option<Arc<StepDriver>>>,
}

/// The first so many of what is enqueued there.
#[derive(Debug)]
struct First(u32, Arc<Far>);

fn unless(fails: bool, reason: &str) -> Result<(), ResidentError> {
    if fails { Err(ResidentError::new(reason)) } else { Ok(()) }
}

impl Far {
    fn note(&self, what: &str, number: u32) {
        let driver = self.driver.lock().unwrap();
        let told = driver.as_ref().map_or(0, |driver| driver.read(Member::tally).total);
        self.done.lock().unwrap().push(format!("{what} {number}, {told} told"));
    }
}

impl Computing for First {
    fn wait(&self) -> Result<(), ResidentError> {
        self.1.note("wait", self.0);
        unless(self.1.fails_to_compute, "its kernel failed")
    }
}

// What is enqueued there needs it longer than a buffer does.
impl Resident for Shared {
    fn computing(&self) -> Option<Box<dyn Computing>> {
        let first = First(self.0.enqueued.load(Ordering::Relaxed), Arc::clone(&self.0));
        Some(Box::new(first))
    }

    fn lower(self: Arc<Self>, lowering: Lowering) {
        lowering.write(|here| here.as_chunks_mut().0.fill(0.5_f64.to_le_bytes()));
    }

    fn adds_with(&self, _: &dyn Resident) -> bool {
        false
    }

    fn pass(self: Arc<Self>, _: &[Arc<dyn Resident>], passing: Passing) {
        drop(passing);
    }

    fn add_zeros(&self, _: Dtype, _: Range<usize>) -> Result<(), ResidentError> {
        self.0.enqueued.fetch_add(1, Ordering::Relaxed);
        unless(self.0.fails_to_add, "zeros are too many")
    }
}

/// The same, as a buffer has it.
#[derive(Debug)]
struct Shared(Arc<Far>);

/// The loss of each shard. Their sum is 1 in their order, and in others 0 or 2.
const LOSSES: [f64; 4] = [1e16, 1.0, -1e16, 1.0];

/// Enqueues its gradients, and finds its loss once they are computed: of all but one of four shards.
struct Queued(Line, Arc<Shared>);

impl Trainable for Queued {
    fn gradients(&self) -> Vec<TensorSpec> {
        self.0.gradients()
    }

    fn auxiliary(&self) -> Vec<String> {
        self.0.auxiliary()
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        let (far, index) = (Arc::clone(&self.1.0), shard.index());
        far.note("enqueue", index + 1);
        far.enqueued.store(index + 1, Ordering::Relaxed);
        out.place(0, Dtype::F64, 2)?.keep(Arc::clone(&self.1) as _);
        out.samples(shard.samples().len() as u64)?;
        let loss = LOSSES[index as usize];
        if index == 1 {
            return Ok(out.auxiliary(0, loss)?);
        }
        out.auxiliary_later(move |sums| {
            far.note("find", index + 1);
            sums[0] = loss;
            unless(far.fails_to_find, "it is lost")
        })?;
        Ok(())
    }

    fn apply(&mut self, step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        assert_eq!(mean.auxiliary(), [1.0], "added in the shards' order");
        assert_eq!(mean.f64(0)?, [0.05; 2]);
        self.1.0.note("apply", step.get() as u32);
        Ok(())
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        self.0.visit(visitor)
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        self.0.load(tensor, bytes)
    }

    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        self.0.evaluate()
    }
}

/// The order to train alone.
fn alone(spec: &JobSpec) -> Event {
    let visits = vec![Visit {
        rank: Rank::new(0),
        shards: ShardRange::new(0, spec.shards),
    }];
    let member = MemberAddress {
        worker: WorkerId::new(0),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
    };
    let generation = Generation::new(Incarnation::new(1), 1);
    let mut forms = Form::all(generation, spec.order, Step::ZERO, vec![member], [visits.clone(), visits]);
    Event::Ordered(CoordinatorMessage::Form(Box::new(forms.remove(0))))
}

/// Trains alone until a step is applied. Says what was done by then.
fn train(far: Far) -> Result<Vec<String>, TrainingError> {
    let (spec, far) = (line_spec(2), Arc::new(far));
    let model = Queued(Line::default(), Arc::new(Shared(Arc::clone(&far))));
    let layout = Arc::new(Layout::new(model.gradients(), 1).unwrap());
    let mut prepared = Prepared {
        facts: prepare(&spec, |_| Ok(Line::default()))?.facts,
        sampler: Sampler::new(&spec)?,
        reserve: BytesMut::new(),
        layout: Arc::clone(&layout),
        model,
    };
    let (driver, _outbox) = StepDriver::new(&spec, layout, None);
    *far.driver.lock().unwrap() = Some(Arc::clone(&driver));
    driver.handle(alone(&spec));
    let mut training = Training::begin(&mut prepared, &driver, Copies::at_once());
    loop {
        let task = match training.beside()? {
            Some(task) => task,
            None => driver.next(),
        };
        let applies = matches!(task, Task::Apply { .. });
        assert!(training.perform(task)?.is_continue());
        if applies {
            return Ok(take(&mut *far.done.lock().unwrap()));
        }
    }
}

#[test]
fn a_gradient_is_enqueued_before_the_one_before_is_waited_for_and_each_is_told_once_it_is_there() {
    let done = train(Far::default()).unwrap();
    assert_eq!(
        done,
        [
            "enqueue 1, 0 told",
            "enqueue 2, 0 told",
            "wait 1, 0 told",
            "find 1, 0 told",
            "enqueue 3, 1 told",
            "wait 2, 1 told",
            "enqueue 4, 2 told",
            "wait 3, 2 told",
            "find 3, 2 told",
            "wait 4, 3 told",
            "find 4, 3 told",
            "apply 0, 4 told",
        ]
    );
}

#[test]
fn what_fails_while_the_next_gradient_is_enqueued_is_a_failure_of_the_model() {
    let fails = |far: Far| train(far).unwrap_err().to_string();
    let found = [
        fails(Far {
            fails_to_compute: true,
            ..Far::default()
        }),
        fails(Far {
            fails_to_find: true,
            ..Far::default()
        }),
    ];
    for (error, reason) in found.iter().zip(["its kernel failed", "it is lost"]) {
        assert!(error.contains("compute a gradient") && error.contains(reason), "{error}");
    }
}

/// Adds an empty shard to one that lies there.
fn add_empty(far: &Arc<Far>) -> Result<(), TrainingError> {
    let layout = Layout::new(Line::default().gradients(), 1).unwrap();
    let mut buffer = GradientBuffer::zeros(&layout);
    let mut writer = buffer.writer(&layout, WriteMode::Store);
    let shared = Arc::new(Shared(Arc::clone(far)));
    writer.place(0, Dtype::F64, 2).unwrap().keep(shared);
    writer.samples(1).unwrap();
    writer.finish().unwrap();
    computing::zero(Step::ZERO, &layout, &mut buffer, WriteMode::Add)
}

#[test]
fn an_empty_shard_counts_once_it_is_computed_where_it_lies() {
    let far = Arc::new(Far::default());
    add_empty(&far).unwrap();
    assert_eq!(*far.done.lock().unwrap(), ["wait 1, 0 told"], "after all was enqueued");
}

#[test]
fn what_fails_where_zeros_are_added_is_a_failure_of_the_model() {
    let fails = |far: Far| add_empty(&Arc::new(far)).unwrap_err().to_string();
    let found = [
        fails(Far {
            fails_to_add: true,
            ..Far::default()
        }),
        fails(Far {
            fails_to_compute: true,
            ..Far::default()
        }),
    ];
    for (error, reason) in found.iter().zip(["zeros are too many", "its kernel failed"]) {
        assert!(error.contains("compute a gradient") && error.ends_with(reason), "{error}");
    }
}
