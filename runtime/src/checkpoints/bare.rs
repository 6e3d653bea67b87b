//! A manifest that says nothing but how large the state is, for tests and fuzzers.

use sardana_protocol::checkpoint::{DepotId, Manifest, PieceHash, Placing};
use sardana_protocol::data::DataFingerprint;
use sardana_protocol::job::{Compression, Fingerprint, JobIdentity, JobSpec, LastBatch, Order};
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, JobId, Step};

/// The manifest of a state of so many bytes in so many pieces.
pub(super) fn manifest(bytes: u64, pieces: usize) -> Manifest {
    let hash = StateHash::new([0; 32]);
    let text = String::new;
    Manifest {
        run: JobId::new([0; 16]),
        snapshot: SnapshotId {
            generation: Generation::NONE,
            step: Step::ZERO,
        },
        identity: JobIdentity {
            spec: JobSpec {
                name: text(),
                seed: 0,
                shards: 1,
                steps: Step::new(1),
                samples: 1,
                batch: 1,
                last_batch: LastBatch::Short,
                order: Order::Exact,
                compression: Compression::None,
                data: DataFingerprint::default(),
            },
            state_zero: hash,
            fingerprint: Fingerprint {
                program: hash,
                tensors: hash,
                settings: hash,
                processor: text(),
                device: text(),
                libraries: text(),
                probe: hash,
            },
        },
        description: Vec::new(),
        pieces: vec![PieceHash::new([0; 32]); pieces],
        bytes,
        replicas: 1,
        depots: vec![DepotId::new(1)],
        placing: Placing::BY_HAND,
    }
}
