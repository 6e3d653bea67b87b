//! The two processes between which the link is, as the one that starts them has them.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use sardana_net::trust::{Authority, Role};
use sardana_net::wire::{read_frame_blocking, write_frame_blocking};
use sardana_protocol::messages::{LinkKind, MemberAddress};
use sardana_protocol::words::{JobId, WorkerId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::end::{Start, TOLD_BYTES};
use super::traffic::{Seen, Traffic};
use crate::ending::Failure;

/// Two processes with links between them, in both directions.
#[derive(Debug)]
pub(super) struct Pair {
    ends: [Process; 2],
    pub(super) through: LinkKind,
}

/// One of them. It ends when its standard input does.
#[derive(Debug)]
struct Process {
    child: Child,
    into: ChildStdin,
    from: ChildStdout,
}

impl Pair {
    /// Starts both, which make the links as the workers of a job do.
    ///
    /// # Errors
    /// When a process cannot be started, or no link be made.
    pub(super) fn start(environment: &[(OsString, OsString)]) -> Result<Self, Failure> {
        let mut job = [0; 16];
        getrandom::fill(&mut job).map_err(Failure::failed)?;
        let authority = Authority::new(JobId::new(job)).map_err(Failure::failed)?;
        let workers = [1, 2];
        let start = |id| {
            let credentials = authority.issue(Role::Worker, id).map_err(Failure::failed)?;
            let mut process = Process::start(environment)?;
            process.tell(&Start { credentials })?;
            Ok(process)
        };
        let mut ends = [start(workers[0])?, start(workers[1])?];
        let addresses = Self::both::<SocketAddr>(&mut ends)?;
        let members: [MemberAddress; 2] = std::array::from_fn(|index| MemberAddress {
            worker: WorkerId::new(workers[index]),
            address: addresses[index],
        });
        for end in &mut ends {
            end.tell(&members)?;
        }
        let [through, _] = Self::both(&mut ends)?;
        Ok(Self { ends, through })
    }

    fn both<T: DeserializeOwned>([asks, answers]: &mut [Process; 2]) -> Result<[T; 2], Failure> {
        Ok([asks.hear()?, answers.hear()?])
    }

    /// Lets them send this to each other: what the one that asks has seen, and the one that answers.
    ///
    /// # Errors
    /// When one of them ends.
    pub(super) fn carry(&mut self, traffic: Traffic) -> Result<[Seen; 2], Failure> {
        for end in &mut self.ends {
            end.tell(&traffic)?;
        }
        Self::both(&mut self.ends)
    }
}

impl Process {
    fn start(environment: &[(OsString, OsString)]) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let mut command = Command::new(program);
        command.args(["bench", "link-end"]).envs(environment.iter().cloned());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (into, from) = pipes.expect("both were asked for");
        Ok(Self { child, into, from })
    }

    fn tell<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        write_frame_blocking(&mut self.into, value, TOLD_BYTES).map_err(|error| ended(&error))
    }

    fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        match read_frame_blocking(&mut self.from, TOLD_BYTES) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(ended(&"it said nothing more")),
            Err(error) => Err(ended(&error)),
        }
    }
}

fn ended(why: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(format!(
        "a process at an end of the link has ended ({why}); its own words are above"
    ))
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has nothing to lose, and may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
