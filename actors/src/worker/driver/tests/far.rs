//! A worker that is alone and whose gradients lie elsewhere: no thread waits for them with the lock, and a sum that is kept does not hold memory there.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use sardana_collectives::gradient::{Computing, Lowering, Passing, Resident, ResidentError};
use sardana_protocol::member::Command;
use sardana_protocol::state::Dtype;

use super::*;

/// Three numbers, whatever was written. It looks at the driver as it is asked for them.
#[derive(Debug)]
struct Far {
    driver: Arc<StepDriver>,
    burns: bool,
    /// How often it was asked for them with the lock, and without.
    asked: [AtomicUsize; 2],
}

impl Resident for Far {
    fn computing(&self) -> Option<Box<dyn Computing>> {
        None
    }

    fn lower(self: Arc<Self>, lowering: Lowering) {
        let is_free = self.driver.inner.try_lock().is_ok();
        self.asked[usize::from(is_free)].fetch_add(1, Ordering::Relaxed);
        if self.burns {
            return lowering.fail(ResidentError::new("it burns"));
        }
        lowering.write(|here| here.as_chunks_mut().0.copy_from_slice(&[2.5_f64.to_le_bytes(); 3]));
    }

    fn adds_with(&self, _: &dyn Resident) -> bool {
        false
    }

    fn pass(self: Arc<Self>, _: &[Arc<dyn Resident>], passing: Passing) {
        drop(passing);
    }

    fn add_zeros(&self, _: Dtype, _: Range<usize>) -> Result<(), ResidentError> {
        Ok(())
    }
}

/// A worker that trains alone, and where its gradients lie.
fn alone(burns: bool) -> (Arc<StepDriver>, Outbox, Arc<Far>) {
    let (driver, outbox) = driver(10, Order::Exact);
    driver.handle(form(1, 0, &[SHARDS], 0));
    let far = Arc::new(Far {
        driver: Arc::clone(&driver),
        burns,
        asked: [const { AtomicUsize::new(0) }; 2],
    });
    (driver, outbox, far)
}

/// Computes a step of gradients that stay elsewhere.
fn leave(driver: &StepDriver, far: &Arc<Far>) {
    for _ in 0..SHARDS {
        let Task::Gradient {
            step,
            piece,
            shard,
            mut buffer,
            mode,
        } = driver.next()
        else {
            panic!("a step begins with gradients");
        };
        let mut writer = buffer.writer(driver.layout(), mode);
        writer.place(0, Dtype::F64, 3).unwrap().keep(Arc::clone(far) as _);
        writer.samples(1).unwrap();
        writer.finish().unwrap();
        driver.computed(Gradient {
            step,
            piece,
            shard,
            buffer: Some(buffer),
        });
    }
}

fn asked(far: &Far) -> [usize; 2] {
    [0, 1].map(|free| far.asked[free].load(Ordering::Relaxed))
}

#[test]
fn alone_what_lies_elsewhere_is_waited_for_by_the_training_thread_without_the_lock() {
    let (driver, _outbox, far) = alone(false);
    leave(&driver, &far);
    assert_eq!(asked(&far), [0, 0], "others may have the lock by now");
    let sum = apply(&driver, driver.next());
    assert_eq!(asked(&far), [0, 1]);
    assert_eq!(sum.sum().mean(driver.layout()).f64(0).unwrap(), [2.5 / 4.0; 3]);
}

#[test]
fn alone_what_does_not_come_ends_the_worker_with_the_reason() {
    let (driver, mut outbox, far) = alone(true);
    leave(&driver, &far);
    assert!(matches!(driver.next(), Task::End));
    let mut found = None;
    while let Ok(command) = outbox.commands.try_recv() {
        if let ActorCommand::Fail { mismatch, .. } = command {
            found = Some(mismatch.to_string());
        }
    }
    assert!(found.is_some_and(|reason| reason.ends_with("it burns")));
}

#[test]
fn a_state_that_is_accepted_while_gradients_are_added_up_takes_their_place() {
    let (driver, _outbox, far) = alone(false);
    leave(&driver, &far);
    let alone = driver.lock().alone().unwrap();
    assert!(driver.lock().alone().is_none(), "they are added up once");
    let sum = alone.add_up(driver.layout()).unwrap();
    let state = SavedState {
        bytes: Bytes::new(),
        shares: Vec::new(),
        compared_here: false,
    };
    driver.execute_with(
        Command::Accept {
            trailer: Trailer::Continue,
        },
        Some(arrival::Payload::State(state)),
    );
    let mut inner = driver.lock();
    inner.added_up(Ok(sum));
    assert!(inner.accepted.take_state().is_ok());
}

#[test]
fn a_sum_that_is_kept_lets_go_of_its_memory_elsewhere_once_the_next_one_is_applied() {
    let (driver, _outbox, far) = alone(false);
    let held = || Arc::strong_count(&far) > 1;
    leave(&driver, &far);
    drop(apply(&driver, driver.next()));
    driver.execute(Command::KeepSum { step: Step::ZERO });
    assert!(held(), "it is the newest");
    for _ in 0..SHARDS {
        compute(&driver, driver.next());
    }
    drop(apply(&driver, driver.next()));
    let kept = driver.sum_of(testing::sum(0)).unwrap();
    assert_eq!(kept.sum().mean(driver.layout()).f64(0).unwrap(), [2.5 / 4.0; 3]);
    assert!(!held());
}
