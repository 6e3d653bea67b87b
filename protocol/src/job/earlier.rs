//! What a job is, as releases wrote it that knew less to say of it: what they have left on disks is still read.

use serde::{Deserialize, Serialize};

use super::{Compression, Fingerprint, JobIdentity, JobSpec, LastBatch, Order};
use crate::data::DataFingerprint;
use crate::state::StateHash;
use crate::words::Step;

/// An identity of which all f32 travel as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncompressedIdentity {
    spec: UncompressedSpec,
    state_zero: StateHash,
    fingerprint: Fingerprint,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UncompressedSpec {
    name: String,
    seed: u64,
    shards: u32,
    steps: Step,
    samples: u64,
    batch: u64,
    last_batch: LastBatch,
    order: Order,
    data: DataFingerprint,
}

impl UncompressedIdentity {
    /// `identity` in this form; none if it says something which could not be said then.
    #[must_use]
    pub fn of(identity: &JobIdentity) -> Option<Self> {
        let JobIdentity {
            spec,
            state_zero,
            fingerprint,
        } = identity.clone();
        let earlier = Self {
            spec: UncompressedSpec {
                name: spec.name,
                seed: spec.seed,
                shards: spec.shards,
                steps: spec.steps,
                samples: spec.samples,
                batch: spec.batch,
                last_batch: spec.last_batch,
                order: spec.order,
                data: spec.data,
            },
            state_zero,
            fingerprint,
        };
        (JobIdentity::from(earlier.clone()) == *identity).then_some(earlier)
    }
}

impl From<UncompressedIdentity> for JobIdentity {
    fn from(earlier: UncompressedIdentity) -> Self {
        let UncompressedIdentity {
            spec,
            state_zero,
            fingerprint,
        } = earlier;
        Self {
            spec: JobSpec {
                name: spec.name,
                seed: spec.seed,
                shards: spec.shards,
                steps: spec.steps,
                samples: spec.samples,
                batch: spec.batch,
                last_batch: spec.last_batch,
                order: spec.order,
                compression: Compression::None,
                data: spec.data,
            },
            state_zero,
            fingerprint,
        }
    }
}

/// An identity of which only the number of samples was told of its data, and all f32 travel as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierIdentity {
    spec: EarlierSpec,
    state_zero: StateHash,
    fingerprint: EarlierFingerprint,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct EarlierSpec {
    name: String,
    seed: u64,
    shards: u32,
    steps: Step,
    samples: u64,
    batch: u64,
    order: Order,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct EarlierFingerprint {
    program: StateHash,
    tensors: StateHash,
    processor: String,
    device: String,
    libraries: String,
    probe: StateHash,
}

/// Of a model that says nothing of itself.
fn no_settings() -> StateHash {
    StateHash::of(b"")
}

impl EarlierIdentity {
    /// `identity` in this form; none if that says something which could not be said then.
    #[must_use]
    pub fn of(identity: &JobIdentity) -> Option<Self> {
        let JobIdentity {
            spec,
            state_zero,
            fingerprint: print,
        } = identity.clone();
        let earlier = Self {
            spec: EarlierSpec {
                name: spec.name,
                seed: spec.seed,
                shards: spec.shards,
                steps: spec.steps,
                samples: spec.samples,
                batch: spec.batch,
                order: spec.order,
            },
            state_zero,
            fingerprint: EarlierFingerprint {
                program: print.program,
                tensors: print.tensors,
                processor: print.processor,
                device: print.device,
                libraries: print.libraries,
                probe: print.probe,
            },
        };
        (JobIdentity::from(earlier.clone()) == *identity).then_some(earlier)
    }
}

impl From<EarlierIdentity> for JobIdentity {
    fn from(earlier: EarlierIdentity) -> Self {
        let EarlierIdentity {
            spec,
            state_zero,
            fingerprint: print,
        } = earlier;
        Self {
            spec: JobSpec {
                name: spec.name,
                seed: spec.seed,
                shards: spec.shards,
                steps: spec.steps,
                samples: spec.samples,
                batch: spec.batch,
                last_batch: LastBatch::Short,
                order: spec.order,
                compression: Compression::None,
                data: DataFingerprint::default(),
            },
            state_zero,
            fingerprint: Fingerprint {
                program: print.program,
                tensors: print.tensors,
                settings: no_settings(),
                processor: print.processor,
                device: print.device,
                libraries: print.libraries,
                probe: print.probe,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn only_what_could_be_said_then_has_an_earlier_form() {
        let mut identity = samples::identity();
        assert_eq!(EarlierIdentity::of(&identity), None, "its settings are those of some model");
        identity.fingerprint.settings = no_settings();
        let earlier = EarlierIdentity::of(&identity).unwrap();
        assert_eq!(JobIdentity::from(earlier), identity);
        identity.spec.last_batch = LastBatch::Dropped;
        assert_eq!(EarlierIdentity::of(&identity), None);
        let earlier = UncompressedIdentity::of(&identity).unwrap();
        assert_eq!(JobIdentity::from(earlier), identity);
        let task = identity.task();
        (identity.spec.order, identity.spec.compression) = (Order::Fast, Compression::Bf16);
        assert_eq!(UncompressedIdentity::of(&identity), None);
        assert_ne!(identity.task(), task);
        let of = |compression| {
            let mut other = identity.clone();
            other.spec.compression = compression;
            other.task()
        };
        assert_ne!(of(Compression::None), of(Compression::Bf16));
        assert_ne!(of(Compression::F16), of(Compression::Bf16));
    }
}
