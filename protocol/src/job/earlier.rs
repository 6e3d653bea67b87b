//! What a job is, as releases wrote it that knew nothing of its data but their number: what they have left on disks is still read.

use serde::{Deserialize, Serialize};

use super::{Fingerprint, JobIdentity, JobSpec, LastBatch, Order};
use crate::data::DataFingerprint;
use crate::state::StateHash;
use crate::words::Step;

/// An identity in its earlier form.
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
    /// The earlier form of `identity`; none if that says something which could not be said then.
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
    }
}
