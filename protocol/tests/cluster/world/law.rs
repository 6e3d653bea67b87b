//! What must hold, whatever happens: the invariants, checked against an undisturbed run.

use std::net::{Ipv4Addr, SocketAddr};

use sardana_protocol::job::{Fingerprint, JobIdentity, JobSpec, Order};
use sardana_protocol::limits::KEEP_LEAST;
use sardana_protocol::member::Member;
use sardana_protocol::membership::Summary;
use sardana_protocol::memory::{GradientMemory, SUMS};
use sardana_protocol::messages::{Call, Form, Introduction, WorkerHello};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, JobId, Step, WorkerId};

use crate::model;

const GRADIENT: u64 = 1 << 30;

/// The job and its undisturbed run.
pub(crate) struct Law {
    /// Replays the run; every failure names it.
    pub(crate) seed: u64,
    pub(crate) shards: u32,
    /// What each worker has, which is little in half of the runs.
    pub(crate) memory: GradientMemory,
    steps: Step,
    reference: Vec<u64>,
    newest: Generation,
}

impl Law {
    pub(crate) fn new(seed: u64, shards: u32, steps: u64) -> Self {
        Self {
            seed,
            shards,
            memory: match seed % 2 {
                0 => GradientMemory::unbounded(GRADIENT),
                _ => GradientMemory {
                    gradient: GRADIENT,
                    room: (seed / 2 % 4 + 1 + u64::from(SUMS + KEEP_LEAST)) * GRADIENT,
                },
            },
            steps: Step::new(steps),
            reference: model::reference(shards, steps),
            newest: Generation::NONE,
        }
    }

    /// The undisturbed run's state at a step.
    pub(crate) fn state_at(&self, step: Step) -> u64 {
        self.reference[usize::try_from(step.get()).expect("steps are few")]
    }

    /// A worker's hello, that says this.
    pub(crate) fn hello(&self, worker: WorkerId, introduction: Introduction) -> WorkerHello {
        let hash = StateHash::of(b"x");
        WorkerHello {
            job: JobId::new([1; 16]),
            worker,
            identity: JobIdentity {
                spec: JobSpec {
                    name: "cluster".to_owned(),
                    seed: self.seed,
                    shards: self.shards,
                    steps: self.steps,
                    samples: 100,
                    batch: 10,
                    order: Order::Exact,
                },
                state_zero: hash,
                fingerprint: Fingerprint {
                    program: hash,
                    tensors: hash,
                    processor: String::new(),
                    device: String::new(),
                    libraries: String::new(),
                    probe: hash,
                },
            },
            introduction,
            shard_capacity: self.shards,
            memory: self.memory,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            auxiliary: Vec::new(),
            call: Call {
                process: [1; 16],
                count: 1,
            },
        }
    }

    /// GEN-1.
    pub(crate) fn newer(&mut self, generation: Generation) {
        let (newest, seed) = (self.newest, self.seed);
        assert!(generation > newest, "GEN-1: {generation} after {newest}, seed {seed}");
        self.newest = generation;
    }

    /// GEN-1 for a generation that is adopted: it may have been begun unseen. A coordinator that has forgotten the newest may find
    /// an older one first, if that is whole; those of the newest then say so.
    pub(crate) fn adopted(&mut self, generation: Generation, memory: Memory) {
        let (newest, seed) = (self.newest, self.seed);
        if memory == Memory::Fresh {
            assert!(
                generation >= newest,
                "GEN-1: {generation} adopted after {newest}, seed {seed}"
            );
        }
        self.newest = newest.max(generation);
    }

    /// GEN-2, of an order to one member: the simulator looks at those of all.
    pub(crate) fn well_formed(&self, form: &Form) {
        for part in [&form.first, &form.steady] {
            let checked = part.check(Order::Exact, form.rank, form.world_size, self.shards);
            assert_eq!(checked, Ok(()), "GEN-2: {form:?}");
        }
        assert!(form.steady.shards().len() <= 1, "GEN-2: one segment per worker: {form:?}");
    }

    /// A worker has no more pieces than its memory holds.
    pub(crate) fn holds(&self, worker: WorkerId, member: &Member) {
        let (pieces, most) = (member.introduction().standing.kept, self.memory.pieces());
        let seed = self.seed;
        assert!(
            pieces.len() <= most as usize,
            "{worker} has room for {most} pieces and holds {pieces:?}, seed {seed}"
        );
    }

    /// STEP-2, and BITS-1 after an update.
    pub(crate) fn same_state(&self, step: Step, state: u64) {
        let reference = self.reference[usize::try_from(step.get()).expect("steps are few")];
        assert_eq!(
            state, reference,
            "STEP-2, BITS-1: not the job's state at {step}, seed {}",
            self.seed
        );
    }

    /// DATA-1.
    pub(crate) fn each_shard_once(&self, step: Step, gradients: &[(u32, u64)]) {
        let shards: Vec<u32> = gradients.iter().map(|&(shard, _)| shard).collect();
        let all: Vec<u32> = (0..self.shards).collect();
        assert_eq!(shards, all, "DATA-1: {step}, seed {}", self.seed);
    }

    /// The job ended where it should, with the reference's state.
    pub(crate) fn ended_well(&self, summary: &Summary, end: End, count: Count) {
        let (step, seed) = (summary.step, self.seed);
        match end {
            End::Last => assert_eq!(step, self.steps, "seed {seed}"),
            End::AnyBoundary => assert!(step <= self.steps, "{step} is beyond the end, seed {seed}"),
        }
        let reference = self.reference[usize::try_from(step.get()).expect("steps are few")];
        assert_eq!(summary.hash, hash_of(reference), "BITS-1: at {step}, seed {seed}");
        match count {
            Count::Exact if summary.unknown > 0 => {}
            Count::Exact => {
                let once = u64::from(self.shards) * step.get();
                assert_eq!(summary.computed, once + summary.recomputed, "each shard once, seed {seed}");
            }
            Count::Unknown => {}
        }
    }
}

/// What a coordinator knows of its life before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// All.
    Fresh,
    /// Not the newest, or nothing.
    Stale,
}

/// Where a job may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// At its last step only.
    Last,
    /// An operator asked it to stop.
    AnyBoundary,
}

/// Whether the coordinator can know how many gradients were computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// Every loss told it.
    Exact,
    /// Connections broke or messages were lost.
    Unknown,
}

pub(crate) fn hash_of(state: u64) -> StateHash {
    StateHash::of(&state.to_le_bytes())
}
