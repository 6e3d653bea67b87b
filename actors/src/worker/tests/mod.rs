//! The worker's shell: rings side by side, and how a worker leaves.

mod leaving;
mod near;
mod refused;
mod restoring;
mod side_by_side;

use sardana_protocol::job::JobSpec;
use sardana_protocol::samples;
use sardana_protocol::words::JobId;

use super::*;
use crate::testing::{self, LOOPBACK, soon, until};

const JOB: JobId = JobId::new([6; 16]);

fn spec() -> JobSpec {
    JobSpec {
        shards: 4,
        ..samples::spec()
    }
}

fn driver() -> (Arc<StepDriver>, Outbox) {
    testing::driver(&spec())
}

fn pieces() -> Arc<StatePieces> {
    Arc::new(StatePieces::new([24]))
}
