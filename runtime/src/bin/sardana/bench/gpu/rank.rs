//! A rank of NCCL: a process with a GPU of its own, which does what it is told, and says how long that took. It ends with its input, or is killed.

use std::io::{self, BufRead, IsTerminal, Write};
use std::thread;
use std::time::Instant;

use sardana_cuda::device::{Device, DeviceTensor, Moment, Stream};
use sardana_cuda::nccl::{Communicator, Id, NcclError, Readiness};
use serde::{Deserialize, Serialize};

use crate::ending::Failure;

/// What is summed is on this stream, as in a job.
const ON: Stream = Stream::Copies;

/// Elements of a sum. Each rank adds a 1 to each.
const ELEMENTS: usize = 1 << 16;

/// What a rank is told, a line each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Told {
    /// The first thing: the number of its GPU.
    Use(usize),
    /// To make an id. It is rank 0.
    MakeId,
    /// To come to a communicator.
    Join { id: Vec<u8>, rank: usize, ranks: usize },
    /// To have a sum enqueued.
    BeginSum,
    /// To wait for it.
    EndSum,
    /// To end its communicator at once.
    Abort,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Said {
    Ready,
    Id {
        id: Vec<u8>,
        seconds: f64,
    },
    Joined {
        seconds: f64,
    },
    Begun,
    /// An element of the sum.
    Summed(f32),
    /// And whether the GPU was still waiting in a sum.
    Aborted {
        seconds: f64,
        hung: bool,
    },
    Failed(String),
}

/// Is one rank, until its input ends.
pub(in crate::bench) fn carry_out() -> Result<(), Failure> {
    if io::stdin().is_terminal() {
        return Err(Failure::Usage("this is what `sardana bench gpu` starts".to_owned()));
    }
    let mut lines = io::stdin().lock().lines();
    let mut hear = || -> Result<Option<Told>, Failure> {
        let line = lines.next().transpose().map_err(Failure::failed)?;
        line.map(|line| serde_json::from_str(&line))
            .transpose()
            .map_err(Failure::failed)
    };
    let Some(Told::Use(ordinal)) = hear()? else { return Ok(()) };
    let mut rank = match Device::open(ordinal) {
        Ok(device) => Rank {
            device,
            group: None,
            begun: None,
        },
        Err(error) => return say(&Said::Failed(error.to_string())),
    };
    say(&Said::Ready)?;
    while let Some(told) = hear()? {
        let said = rank.obey(told);
        say(&said.unwrap_or_else(|error| Said::Failed(error.to_string())))?;
    }
    Ok(())
}

fn say(said: &Said) -> Result<(), Failure> {
    let line = serde_json::to_string(said).map_err(Failure::failed)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Failure::failed)
}

struct Rank {
    device: Device,
    group: Option<Communicator>,
    /// A sum that is enqueued, and when it is done. It is let go after its communicator.
    begun: Option<(DeviceTensor<f32>, Moment)>,
}

impl Rank {
    fn obey(&mut self, told: Told) -> Result<Said, NcclError> {
        match told {
            Told::Use(_) => Ok(Said::Ready),
            Told::MakeId => {
                let began = Instant::now();
                let id = Id::new()?.to_bytes().to_vec();
                let seconds = began.elapsed().as_secs_f64();
                Ok(Said::Id { id, seconds })
            }
            Told::Join { id, rank, ranks } => self.join(&id, rank, ranks),
            Told::BeginSum => self.begin_sum(),
            Told::EndSum => {
                let (tensor, _) = self.begun.take().ok_or(NcclError::Ended)?;
                Ok(Said::Summed(tensor.to_vec()?[ELEMENTS - 1]))
            }
            Told::Abort => self.abort(),
        }
    }

    fn join(&mut self, id: &[u8], rank: usize, ranks: usize) -> Result<Said, NcclError> {
        let id = id.try_into().map_err(|_| NcclError::Input {
            expected: "an id of 128 bytes".to_owned(),
            found: format!("{} bytes", id.len()),
        })?;
        let began = Instant::now();
        let group = Communicator::begin(&self.device, Id::from_bytes(id), rank, ranks)?;
        while group.poll()? != Readiness::Ready {
            thread::yield_now();
        }
        let seconds = began.elapsed().as_secs_f64();
        self.group = Some(group);
        Ok(Said::Joined { seconds })
    }

    fn begin_sum(&mut self) -> Result<Said, NcclError> {
        let group = self.group.as_ref().ok_or(NcclError::Ended)?;
        let ones = DeviceTensor::from_slice(&self.device, ON, &vec![1.0; ELEMENTS])?;
        let mut summing = group.all_reduce(ON, ones)?;
        let tensor = loop {
            match summing.poll()? {
                Some(tensor) => break tensor,
                None => thread::yield_now(),
            }
        };
        self.begun = Some((tensor, self.device.record(ON)?));
        Ok(Said::Begun)
    }

    fn abort(&mut self) -> Result<Said, NcclError> {
        let group = self.group.take().ok_or(NcclError::Ended)?;
        let come = self.begun.as_ref().map(|(_, end)| self.device.has_come(end));
        let hung = !come.unwrap_or(Ok(true))?;
        let began = Instant::now();
        group.abort()?;
        let seconds = began.elapsed().as_secs_f64();
        // What waited there comes to an end.
        self.device.synchronize()?;
        self.begun = None;
        Ok(Said::Aborted { seconds, hung })
    }
}
