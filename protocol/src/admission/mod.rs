//! Which workers may take part: what a hello must match before its worker becomes a member.
//!
//! The first worker of a job sets the job's identity; every later one must have the same. That is what makes BITS-1 more than a
//! hope: a machine whose arithmetic differs is refused before it touches a gradient.

mod devices;
#[cfg(test)]
mod tests;

use crate::data::DataFingerprint;
use crate::job::{Compression, JobIdentity, JobKind, JobSpec, Order};
use crate::limits::{MAX_AUXILIARY, MAX_DEVICE_BYTES, MAX_LIVES_AHEAD, MAX_SHARDS, MAX_STEPS, MAX_TEXT_BYTES, MAX_WORKERS};
use crate::memory::{Demand, DeviceMemory, DeviceTooSmall, TooLittle};
use crate::messages::{Bounds, Call, Senseless, Sensible, WorkerHello};
use crate::state::StateHash;
use crate::words::{Generation, Incarnation, JobId, Step};

/// Why a worker is refused. All of them end the worker: it must be fixed or be started anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It was started for another job: start it with this job's credentials.
    #[error("this is job {expected}, the worker belongs to job {found}: start it with the credentials of this job")]
    OtherJob {
        /// The coordinator's job.
        expected: JobId,
        /// The worker's.
        found: JobId,
    },
    /// Its constants, model, program or machine differ: run the same program with the same settings on every worker.
    #[error("{what} differs from the job's: expected {expected}, found {found}; {remedy}")]
    Differs {
        /// Which part of the identity.
        what: &'static str,
        /// The job's.
        expected: String,
        /// The worker's.
        found: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// It computes on another device than the job's first worker, and what that makes of the first update are other bits.
    #[error(
        "it computes on {found}, the job's first worker on {expected}: its first update gave other bits (expected the state {expected_bits}, found \
         {found_bits}). Of what decides bits {}; make that alike, run it on the device that the others have, with `--device`, or leave it out",
        devices::difference(expected, found)
    )]
    OtherBits {
        /// The device of the job's first worker.
        expected: String,
        /// The worker's.
        found: String,
        /// The state after the probe, by the job's first worker.
        expected_bits: StateHash,
        /// The worker's.
        found_bits: StateHash,
    },
    /// Another process with the same id is connected already, or this is the hello of a connection that its process has given up: each
    /// worker needs credentials of its own.
    #[error("worker {0} is connected already: a worker's credentials serve one process; start the second with its own")]
    Duplicate(crate::words::WorkerId),
    /// It has been welcomed by another coordinator, a later one or a twin: this one is fenced and ends.
    #[error("the worker knows the coordinator {by}, this is {own}: another coordinator leads the job")]
    Fenced {
        /// This coordinator's.
        own: Incarnation,
        /// The highest that the worker knows of.
        by: Incarnation,
    },
    /// It, and workers like it, have too little memory for the job.
    #[error(transparent)]
    TooLittle(#[from] TooLittle),
    /// What it must have of its GPU's memory does not fit there.
    #[error(transparent)]
    DeviceTooSmall(#[from] DeviceTooSmall),
    /// Its hello makes no sense: it was altered or comes from a broken build.
    #[error("its hello says {found}, which cannot be: expected {expected}; start it anew")]
    Senseless {
        /// What a hello may say.
        expected: String,
        /// What it says.
        found: String,
    },
}

/// Whether this life of a coordinator has greeted a worker before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquaintance {
    /// It has.
    Greeted,
    /// It has not.
    None,
}

/// Whether a worker that has not taken part yet has memory for what it would do, and as many as may compute would have, if they are like
/// it: it would be killed for want of memory, and so would its successors. What may fit once others come is not refused.
///
/// # Errors
/// [`TooLittle`] memory.
pub fn has_memory(hello: &WorkerHello, max: u32) -> Result<(), TooLittle> {
    if hello.introduction.generation != Generation::NONE {
        return Ok(());
    }
    let JobSpec { order, shards, .. } = hello.identity.spec;
    let demand = Demand {
        order,
        shards,
        workers: max.min(MAX_WORKERS),
    };
    hello.memory.suffices(demand, hello.shard_capacity)
}

/// Whether a worker that has not taken part yet can have what it must of its GPU's memory: it would fail there, and so would its successors.
///
/// # Errors
/// [`DeviceTooSmall`] if it cannot.
pub fn fits_device(hello: &WorkerHello) -> Result<(), DeviceTooSmall> {
    let newcomer = hello.introduction.generation == Generation::NONE;
    let memory = hello.device_memory.as_ref().filter(|_| newcomer);
    memory.map_or(Ok(()), DeviceMemory::suffices)
}

/// Compares a hello with the job. The `identity` is none until the first worker is admitted.
///
/// # Errors
/// The first [`Refusal`] that applies.
pub fn admit(
    job: JobId,
    identity: Option<&JobIdentity>,
    newest: Generation,
    acquaintance: Acquaintance,
    hello: &WorkerHello,
) -> Result<(), Refusal> {
    if hello.job != job {
        return Err(Refusal::OtherJob {
            expected: job,
            found: hello.job,
        });
    }
    let (own, generation) = (newest.incarnation(), hello.introduction.generation);
    let by = hello.introduction.incarnation.max(generation.incarnation());
    can_be(own, by)?;
    // A number that was never given away here was given away by another coordinator, be it of the same life: a copy of its state was
    // started, or two took over at once. So was a number that a worker has from a life of this number, which has not greeted it.
    let of_a_twin = by == own && by > Incarnation::ZERO && acquaintance == Acquaintance::None;
    if by > own || generation > newest || of_a_twin {
        return Err(Refusal::Fenced { own, by });
    }
    sensible(hello)?;
    let last = hello.introduction.standing.lineage.last;
    if last > newest {
        return Err(Refusal::Senseless {
            expected: format!("a state that sums of generations up to {newest} have led to"),
            found: format!("one of {last}"),
        });
    }
    match identity {
        Some(expected) => same_identity(expected, &hello.identity),
        None => Ok(()),
    }
}

/// Whether a process can know of the coordinator `by`, where this one is `own`: none comes to life so often.
///
/// # Errors
/// [`Refusal::Senseless`] if it cannot. No coordinator is fenced by what it says.
pub fn can_be(own: Incarnation, by: Incarnation) -> Result<(), Refusal> {
    if by.get().saturating_sub(own.get()) <= MAX_LIVES_AHEAD {
        return Ok(());
    }
    Err(Refusal::Senseless {
        expected: format!("a coordinator at most {MAX_LIVES_AHEAD} lives after {own}"),
        found: by.to_string(),
    })
}

/// Whether a hello may take the place of the connection by which its worker is known already, `present`, however alive that looks.
///
/// A process has one connection at a time and counts them, so that a later one shows that it has given up the one before: what is
/// lost in one direction only, one end sees long before the other. A copy of its credentials does not tell the number that it has
/// drawn, and a copy of a hello comes too late.
///
/// # Errors
/// [`Refusal::Duplicate`] if it may not.
pub fn take_over(present: Call, hello: &WorkerHello) -> Result<(), Refusal> {
    if hello.call.process == present.process && hello.call.count > present.count {
        Ok(())
    } else {
        Err(Refusal::Duplicate(hello.worker))
    }
}

fn sensible(hello: &WorkerHello) -> Result<(), Refusal> {
    let spec = &hello.identity.spec;
    let senseless = |expected: &str, found: String| {
        Err(Refusal::Senseless {
            expected: expected.to_owned(),
            found,
        })
    };
    if spec.shards > MAX_SHARDS {
        return senseless(&format!("at most {MAX_SHARDS} shards"), format!("{} shards", spec.shards));
    }
    let of_a_group = (Step::ZERO, Order::Fast, Compression::None);
    if spec.kind() == JobKind::Group && (spec.steps, spec.order, spec.compression) != of_a_group {
        return senseless(
            "a group, which has no shards, without steps, in fast order, not compressed",
            format!(
                "{} steps in {} order{}",
                spec.steps.get(),
                spec.order,
                spec.compression.behind_order()
            ),
        );
    }
    if !spec.compression.is_possible(spec.order) {
        let found = format!("order {}{}", spec.order, spec.compression.behind_order());
        return senseless("gradients that are compressed in fast order only", found);
    }
    if spec.steps.get() > MAX_STEPS {
        return senseless(&format!("a job of at most {MAX_STEPS} steps"), spec.steps.to_string());
    }
    if hello.shard_capacity == 0 {
        return senseless("room for at least one shard", "room for none".to_owned());
    }
    if spec.name.len() > MAX_TEXT_BYTES {
        return senseless(
            &format!("a job name of at most {MAX_TEXT_BYTES} bytes"),
            format!("{} bytes", spec.name.len()),
        );
    }
    if let Err(error) = spec.data.check() {
        return senseless("data with few parts and short names", error.to_string());
    }
    let device = hello.identity.fingerprint.device.len();
    if device > MAX_DEVICE_BYTES {
        return senseless(
            &format!("a device in at most {MAX_DEVICE_BYTES} bytes"),
            format!("{device} bytes"),
        );
    }
    let named = hello.auxiliary.len() <= MAX_AUXILIARY && hello.auxiliary.iter().all(|name| name.len() <= MAX_TEXT_BYTES);
    if !named {
        return senseless(
            &format!("at most {MAX_AUXILIARY} auxiliary sums with names of at most {MAX_TEXT_BYTES} bytes"),
            format!("{} sums", hello.auxiliary.len()),
        );
    }
    let within = Bounds {
        shards: spec.shards,
        steps: spec.steps,
        order: spec.order,
    };
    hello.memory.check(within)?;
    hello.device_memory.as_ref().map_or(Ok(()), |memory| memory.check(within))?;
    hello.introduction.check(within).map_err(Refusal::from)
}

impl From<Senseless> for Refusal {
    fn from(Senseless { expected, found }: Senseless) -> Self {
        Self::Senseless { expected, found }
    }
}

const PROBE: &str = "the probe (one gradient and one update of the initial state)";

/// What must be equal, and what to do where it is not: in the order of [`parts_of`].
const PARTS: [(&str, &str); 18] = {
    const SETTINGS: &str = "give every worker the same settings";
    const BUILD: &str = "run the same build everywhere";
    [
        (
            "what the workers do together (training: sardana::train, group: sardana::group::join)",
            "start the program that the job's other workers run",
        ),
        ("the job's name", SETTINGS),
        ("the seed", SETTINGS),
        ("the number of shards", SETTINGS),
        ("the number of steps", SETTINGS),
        ("the number of samples", "give every worker the same data"),
        (
            "the data",
            "give every worker the same data; `sardana data check` shows what a host has",
        ),
        ("the batch size", SETTINGS),
        ("what becomes of a short last batch", SETTINGS),
        ("the order of addition", SETTINGS),
        ("the compression between workers", SETTINGS),
        ("the model (names, dtypes, shapes)", "give every worker the same model"),
        (
            "what the program says of itself (of a model: loss, optimizer, schedule, held-out data; of a group: its settings)",
            SETTINGS,
        ),
        ("the processor", "use machines with the same vector extensions"),
        ("the set of libraries", BUILD),
        ("the program", BUILD),
        ("the initial state", "make the initial state from the job's seed alone"),
        (PROBE, "this machine computes other bits: leave it out or find out why"),
    ]
};

/// Each part of an identity, as people read it; of the data, where they differ from those of another.
fn parts_of(identity: &JobIdentity, other: &JobIdentity) -> [String; PARTS.len()] {
    let JobIdentity {
        spec,
        state_zero,
        fingerprint: print,
    } = identity;
    [
        spec.kind().to_string(),
        spec.name.clone(),
        spec.seed.to_string(),
        spec.shards.to_string(),
        spec.steps.to_string(),
        spec.samples.to_string(),
        part_that_differs(&spec.data, &other.spec.data),
        spec.batch.to_string(),
        spec.last_batch.to_string(),
        spec.order.to_string(),
        spec.compression.to_string(),
        print.tensors.to_string(),
        print.settings.to_string(),
        print.processor.clone(),
        print.libraries.clone(),
        print.program.to_string(),
        state_zero.to_string(),
        print.probe.to_string(),
    ]
}

/// The first part of `own` data that is not as in the `other`'s.
fn part_that_differs(own: &DataFingerprint, other: &DataFingerprint) -> String {
    match own.difference(other) {
        None => own.hash().to_string(),
        Some((Some(part), _)) => format!("{} with hash {}", part.name, part.hash),
        Some((None, _)) => match own.parts().last() {
            None => "data that the program says nothing about".to_owned(),
            Some(last) => format!("nothing after {}", last.name),
        },
    }
}

/// All but the device, which only says why the probes differ.
fn same_identity(expected: &JobIdentity, found: &JobIdentity) -> Result<(), Refusal> {
    let both = parts_of(expected, found).into_iter().zip(parts_of(found, expected));
    let mut parts = PARTS.into_iter().zip(both);
    let different = parts.find(|(_, (expected, found))| expected != found);
    let Some(((what, remedy), texts)) = different else {
        return Ok(());
    };
    // The probe is compared last: all else is alike.
    let [of_job, own] = [expected, found].map(|identity| &identity.fingerprint);
    if what == PROBE && of_job.device != own.device {
        return Err(Refusal::OtherBits {
            expected: of_job.device.clone(),
            found: own.device.clone(),
            expected_bits: of_job.probe,
            found_bits: own.probe,
        });
    }
    let (expected, found) = texts;
    Err(Refusal::Differs {
        what,
        expected,
        found,
        remedy,
    })
}
