//! What a job is: the constants that every worker of it shares, and what makes two workers compute the same bits.

mod earlier;

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::Display;

use crate::data::{DataFingerprint, DataHash};
use crate::state::StateHash;
use crate::words::Step;

pub use earlier::{EarlierIdentity, UncompressedIdentity};

/// In which order a step's shard gradients are added.
#[derive(Clone, Copy, Debug, Default, Display, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[strum(serialize_all = "lowercase")]
pub enum Order {
    /// Shard by shard, 0 to K-1: the same bits for every membership (BITS-1).
    #[default]
    Exact,
    /// Ring reduce-scatter and all-gather: the result depends on the membership. Opt-in, and shown as `fast` everywhere.
    Fast,
}

/// As what the f32 of a running or finished sum travel from rank to rank. Opt-in, and only in [`Order::Fast`]: exact order adds f32 that no link
/// has touched. Numbers of other types travel as they are.
#[derive(Clone, Copy, Debug, Default, Display, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[strum(serialize_all = "lowercase")]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// Rounded to bfloat16 at each hop, to the nearest and to even: f32's range, 8 significant bits, half the bytes.
    Bf16,
    /// Rounded to IEEE binary16 at each hop, in the same way: 11 significant bits, half the bytes, and infinite from 65,520 on.
    F16,
}

impl Compression {
    /// What is said of it behind the order's name; nothing where there is none.
    #[must_use]
    pub const fn behind_order(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bf16 => ", compressed to bf16",
            Self::F16 => ", compressed to f16",
        }
    }

    /// Whether gradients that are added in this order may travel so.
    #[must_use]
    pub fn is_possible(self, order: Order) -> bool {
        self == Self::None || order == Order::Fast
    }
}

/// What becomes of the last batch of an epoch where the batch does not divide the number of samples.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[strum(serialize_all = "lowercase")]
pub enum LastBatch {
    /// It has the samples that are left, and each sample counts once an epoch.
    Short,
    /// It is left out, so that all batches are of one size. The samples that an epoch leaves out are others in each.
    Dropped,
}

/// What the workers of a job do together.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, Hash)]
#[strum(serialize_all = "lowercase")]
pub enum JobKind {
    /// They train a model, step by step.
    Training,
    /// They make collective calls of their own: their generations are groups, and nothing is known of what they compute.
    Group,
}

/// The constants of a job. Fixed for its life and equal on every worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobSpec {
    /// What people call it.
    pub name: String,
    /// Keys the data order and every random number.
    pub seed: u64,
    /// K: into how many shards every global batch is cut. 0 of a group, which has no batch: see [`Self::kind`].
    pub shards: u32,
    /// How many updates make the job. 0 of a group.
    pub steps: Step,
    /// How many samples the data set holds.
    pub samples: u64,
    /// How many samples a step's global batch holds (the last batch of an epoch may be shorter).
    pub batch: u64,
    /// What becomes of the last batch of an epoch, if it is short.
    pub last_batch: LastBatch,
    /// In which order gradients are added.
    pub order: Order,
    /// As what their f32 travel between workers.
    pub compression: Compression,
    /// What makes the samples what they are.
    pub data: DataFingerprint,
}

impl JobSpec {
    /// The constants of a group that people call `name`. Its generations have the links of [`Order::Fast`], from each rank to the next.
    #[must_use]
    pub fn group(name: String) -> Self {
        Self {
            name,
            seed: 0,
            shards: 0,
            steps: Step::ZERO,
            samples: 0,
            batch: 0,
            last_batch: LastBatch::Short,
            order: Order::Fast,
            compression: Compression::None,
            data: DataFingerprint::default(),
        }
    }

    /// What its workers do together.
    #[must_use]
    pub const fn kind(&self) -> JobKind {
        kind_of(self.shards)
    }

    /// How many steps an epoch has.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        let batch = self.batch.max(1);
        match self.last_batch {
            LastBatch::Short => self.samples.div_ceil(batch),
            LastBatch::Dropped => self.samples / batch,
        }
    }
}

/// What decides the bits of a worker's arithmetic. Two workers of one job must have equal ones, but for the device: where that is another one, equal
/// probes say that it computes the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Hash of the executable.
    pub program: StateHash,
    /// Hash over the names, dtypes and shapes of the state's and the gradient's tensors, and the names of the auxiliary sums.
    pub tensors: StateHash,
    /// Hash of what else the model says of itself, such as its optimizer and schedule.
    pub settings: StateHash,
    /// Architecture and the vector extensions that numeric libraries choose their kernels by.
    pub processor: String,
    /// Where gradients are computed: `cpu`, or what an accelerator and its driver are, for people, in items with `, ` between them.
    pub device: String,
    /// Versions of the libraries that do arithmetic.
    pub libraries: String,
    /// Hash of the state after one gradient and one apply at state 0: the last word on whether the bits agree.
    pub probe: StateHash,
}

/// A job's identity: what a hello must match. The first worker of a job sets it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobIdentity {
    /// The constants.
    pub spec: JobSpec,
    /// Hash of the state before the first update.
    pub state_zero: StateHash,
    /// What decides the bits.
    pub fingerprint: Fingerprint,
}

/// What is computed, by hash: see [`JobIdentity::task`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Task {
    /// Of the constants, the model's tensors and the state before the first update.
    pub settings: StateHash,
    /// Of the data.
    pub data: DataHash,
}

impl fmt::Display for Task {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, data } = self;
        write!(formatter, "{settings} on data {data}")
    }
}

impl JobIdentity {
    /// Names what is computed, but for the number of steps: a state of a job can be trained on by any job that has the same.
    #[must_use]
    pub fn task(&self) -> Task {
        let spec = &self.spec;
        let addition = format!("{}{}", spec.order, spec.compression.behind_order());
        let settings = digest(
            "sardana job task v1",
            &[&spec.name, &addition, &spec.last_batch.to_string()],
            &[spec.seed, spec.shards.into(), spec.samples, spec.batch],
            &[self.state_zero, self.fingerprint.tensors],
        );
        Task {
            settings,
            data: spec.data.hash(),
        }
    }

    /// Names the program and the machine that compute it: where these are others, the same steps may have other bits. The device is not among
    /// them, since what it makes of a step is: the probe.
    #[must_use]
    pub fn build(&self) -> StateHash {
        let print = &self.fingerprint;
        digest(
            "sardana job build v3",
            &[&print.processor, &print.libraries],
            &[],
            &[print.program, print.probe, print.settings],
        )
    }
}

/// What workers do whose batches are cut into so many shards: where there are none, nothing is trained.
pub(crate) const fn kind_of(shards: u32) -> JobKind {
    if shards == 0 { JobKind::Group } else { JobKind::Training }
}

fn digest(context: &str, texts: &[&str], numbers: &[u64], hashes: &[StateHash]) -> StateHash {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    for text in texts {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    for hash in hashes {
        hasher.update(&hash.bytes());
    }
    StateHash::new(hasher.finalize().into())
}
