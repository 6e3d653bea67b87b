//! The job that is measured: what every worker of it computes, what its workers and depots are called, and what has been kept of it.

use sardana_protocol::checkpoint::{Condition, DepotId, Head, ManifestId, ManifestKey, Placing};
use sardana_protocol::data::DataFingerprint;
use sardana_protocol::job::{Compression, Fingerprint, JobIdentity, JobSpec, LastBatch, Order};
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Incarnation, JobId, Step, WorkerId};

pub(crate) const JOB: JobId = JobId::new([3; 16]);
const DEPOTS: u64 = 4;

/// Of a job with so many shards.
pub(crate) fn identity(shards: u32) -> JobIdentity {
    let hash = StateHash::new([7; 32]);
    JobIdentity {
        spec: spec(shards),
        state_zero: hash,
        fingerprint: Fingerprint {
            program: hash,
            tensors: hash,
            settings: hash,
            processor: "x86_64".to_owned(),
            device: "cpu".to_owned(),
            libraries: String::new(),
            probe: hash,
        },
    }
}

pub(crate) fn spec(shards: u32) -> JobSpec {
    JobSpec {
        name: "scale".to_owned(),
        seed: 1,
        shards,
        steps: Step::new(1_000_000),
        samples: 1 << 20,
        batch: 1 << 13,
        last_batch: LastBatch::Short,
        order: Order::Exact,
        compression: Compression::None,
        data: DataFingerprint::default(),
    }
}

pub(crate) fn worker_id(number: u32) -> WorkerId {
    WorkerId::new((u64::from(number) + 1) << 40 | 0x5a5a)
}

pub(crate) fn depot_ids() -> Vec<DepotId> {
    (1..=DEPOTS).map(DepotId::new).collect()
}

/// So many checkpoints of this job, each ten steps after the one before.
pub(crate) fn kept_heads(kept: u32, shards: u32) -> Vec<Head> {
    (1..=kept).map(|step| head(u64::from(step) * 10, shards)).collect()
}

/// A checkpoint of this job that all depots keep.
fn head(step: u64, shards: u32) -> Head {
    let step = Step::new(step);
    Head {
        key: ManifestKey {
            step,
            id: ManifestId::of(&step.get().to_le_bytes()),
        },
        run: JOB,
        snapshot: SnapshotId {
            generation: Generation::new(Incarnation::new(1), 1),
            step,
        },
        task: identity(shards).task(),
        build: identity(shards).build(),
        replicas: 2,
        depots: depot_ids(),
        placing: Placing {
            incarnation: Incarnation::new(1),
            number: u32::try_from(step.get()).unwrap_or(u32::MAX),
        },
        condition: Condition::Whole,
    }
}
