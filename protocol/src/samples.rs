//! Values for tests, here and of all who use these words. A test changes what it is about; the rest is alike everywhere.

use std::net::{Ipv4Addr, SocketAddr};

use crate::checkpoint::{DepotId, Manifest, PieceHash, Placing};
use crate::data::{DataFingerprint, DataHash};
use crate::job::{Compression, Fingerprint, JobIdentity, JobSpec, LastBatch, Order, Task};
use crate::limits::PIECE_BYTES;
use crate::lineage::Lineage;
use crate::memory::GradientMemory;
use crate::messages::{Call, Introduction, Standing, Tally, WorkerHello};
use crate::snapshot::SnapshotId;
use crate::state::StateHash;
use crate::words::{Generation, Incarnation, JobId, Step, WorkerId};

/// A job of ten steps.
pub fn spec() -> JobSpec {
    JobSpec {
        name: "test".to_owned(),
        seed: 1,
        shards: 8,
        steps: Step::new(10),
        samples: 64,
        batch: 16,
        last_batch: LastBatch::Short,
        order: Order::Exact,
        compression: Compression::None,
        data: DataFingerprint::default(),
    }
}

/// Of a job by this number.
pub fn task(number: u8) -> Task {
    Task {
        settings: StateHash::new([number; 32]),
        data: DataHash::new([0; 32]),
    }
}

/// Of that job.
pub fn identity() -> JobIdentity {
    let hash = StateHash::of(b"x");
    JobIdentity {
        spec: spec(),
        state_zero: hash,
        fingerprint: Fingerprint {
            program: hash,
            tensors: hash,
            settings: hash,
            processor: "x".to_owned(),
            device: "cpu".to_owned(),
            libraries: "l".to_owned(),
            probe: hash,
        },
    }
}

/// Of a worker that has had no update yet and holds nothing.
pub fn introduction() -> Introduction {
    Introduction {
        generation: Generation::NONE,
        incarnation: Incarnation::ZERO,
        seat: None,
        training: false,
        standing: Standing {
            step: Step::ZERO,
            lineage: Lineage::default(),
            kept: vec![],
            sum: None,
            stop_at: None,
            tally: Tally::default(),
        },
    }
}

/// The first words of such a worker, a process of its own.
pub fn hello(job: JobId, worker: WorkerId) -> WorkerHello {
    let identity = identity();
    WorkerHello {
        job,
        worker,
        shard_capacity: identity.spec.shards,
        identity,
        introduction: introduction(),
        memory: GradientMemory::unbounded(64 << 20),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        auxiliary: vec!["loss".to_owned()],
        call: Call {
            process: [worker.get() as u8; 16],
            count: 0,
        },
        device_memory: None,
        host_hash: None,
    }
}

/// Of a state of nine pieces on two depots.
pub fn manifest(run: JobId) -> Manifest {
    Manifest {
        run,
        snapshot: SnapshotId {
            generation: Generation::new(Incarnation::new(1), 1),
            step: Step::new(5),
        },
        identity: identity(),
        description: vec![PieceHash::of(b"names")],
        pieces: (0_u8..9).map(|piece| PieceHash::of(&[piece])).collect(),
        bytes: 9 * PIECE_BYTES as u64,
        replicas: 2,
        depots: [1, 2].map(DepotId::new).to_vec(),
        placing: Placing {
            incarnation: Incarnation::new(1),
            number: 1,
        },
    }
}
