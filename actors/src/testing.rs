//! What tests of several rooms use, those outside too.

use std::sync::Arc;

use sardana_collectives::layout::Layout;
use sardana_protocol::job::JobSpec;
use sardana_protocol::lineage::WantedSum;
use sardana_protocol::messages::StepReport;
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Generation, ShardRange, Step};

use crate::worker::{Gradient, KeptSum, Outbox, StepDriver, Task};

#[path = "../tests/strangers/bystanders.rs"]
pub(crate) mod bystanders;
#[path = "../tests/strangers/raw.rs"]
#[expect(dead_code, reason = "shared with the tests outside")]
pub(crate) mod raw;

pub(crate) use raw::{LOOPBACK, PATIENCE, soon, until};

/// The step driver of a model of three numbers.
pub(crate) fn driver(job: &JobSpec) -> (Arc<StepDriver>, Outbox) {
    let layout = Layout::new(vec![TensorSpec::new("w", Dtype::F64, &[3])], 0).unwrap();
    StepDriver::new(job, Arc::new(layout), None)
}

/// A step's sum, of which there is one in exact order.
pub(crate) const fn sum(step: u64) -> WantedSum {
    WantedSum {
        step: Step::new(step),
        before: Generation::NONE,
    }
}

/// Writes the shard's number into its gradient, as a model would, and hands it back. Returns where it was written.
pub(crate) fn compute(driver: &StepDriver, task: Task) -> (ShardRange, u32, usize) {
    let Task::Gradient {
        step,
        piece,
        shard,
        mut buffer,
        mode,
    } = task
    else {
        panic!("expected a gradient, found {task:?}");
    };
    let mut writer = buffer.writer(driver.layout(), mode);
    writer.write_f64(0, &[f64::from(shard), step.get() as f64, 1.0]).unwrap();
    writer.samples(1).unwrap();
    writer.finish().unwrap();
    let place = buffer.bytes().as_ptr() as usize;
    driver.computed(Gradient {
        step,
        piece,
        shard,
        buffer: Some(buffer),
    });
    (piece, shard, place)
}

/// The update is made. Returns what was applied.
pub(crate) fn apply(driver: &StepDriver, task: Task) -> KeptSum {
    let Task::Apply { sum } = task else {
        panic!("expected an update, found {task:?}");
    };
    driver.applied(StepReport {
        step: sum.sum().step(),
        samples: 4,
        sums: vec![],
    });
    sum
}
