//! A process as a member of a group's job: the program's threads on one side, the network's on the other.

use std::sync::mpsc::{RecvError, sync_channel};
use std::thread::{self, JoinHandle};

use sardana_actors::agent::Bundle;
use sardana_actors::group::{self, GroupConfig, GroupEnded, Request};
use sardana_actors::worker::TallyFile;
use sardana_net::environment::Environment;
use sardana_net::trust::RotatingCredentials;
use tokio::sync::mpsc;

use super::{Config, Group, GroupError, MemberError};
use crate::environment;
use crate::worker::{ProcessError, bundle, log_warnings, span_of, tally};

/// A process's membership in a group's job. Dropped, it is gone without a word: the others go on without it, as after its death.
#[derive(Debug)]
pub struct Member {
    /// None once it is to end.
    requests: Option<mpsc::UnboundedSender<Request>>,
    network: Option<JoinHandle<Result<GroupEnded, ProcessError>>>,
    /// How it has ended, until that was told.
    ended: Option<Result<GroupEnded, ProcessError>>,
    /// Where its agent reads that the program knows of a good end.
    tally: Option<TallyFile>,
}

/// Joins the job that an agent has started this process for, or that the join file leads to which `SARDANA_JOIN` names. Once in a process.
/// Blocks while it enrols with a join file, and not until it is welcomed: [`Member::next`] does.
///
/// From then on the process ends when its agent does. Signals are the program's own affair.
///
/// # Errors
/// [`MemberError::NotInvited`] if neither is there; then the program may start itself by [`crate::launch`]. [`MemberError::Ended`] if it cannot
/// join with what is there.
pub fn join(config: &Config) -> Result<Member, MemberError> {
    match bundle()? {
        None => Err(MemberError::NotInvited),
        Some(bundle) => Ok(begin(bundle, config)?),
    }
}

fn begin(bundle: Bundle, config: &Config) -> Result<Member, ProcessError> {
    log_warnings();
    let (links, reach) = environment::links()?;
    let identity = config.identity()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (requests, asked) = mpsc::unbounded_channel();
    let span = span_of(&bundle);
    // No gradient is ever counted, which is known so.
    let tally = tally(&bundle);
    let run = move || {
        let _in_worker = span.entered();
        let config = GroupConfig {
            credentials: RotatingCredentials::new(bundle.credentials, Environment::Host.now()),
            coordinator: bundle.coordinator,
            listen: bundle.listen,
            advertise: bundle.advertise,
            identity,
            links,
            reach,
        };
        runtime.block_on(group::run(config, asked)).map_err(ProcessError::from)
    };
    let network = thread::Builder::new().name("network".to_owned()).spawn(run)?;
    Ok(Member {
        requests: Some(requests),
        network: Some(network),
        ended: None,
        tally,
    })
}

impl Member {
    /// The group of the next generation that this process is in. Blocks until the coordinator has formed one. If the last group is not over yet,
    /// this ends it for all its ranks.
    ///
    /// None if there is nothing more to do: the job is done or was stopped, or this process was asked to leave, and has.
    ///
    /// # Errors
    /// [`MemberError::Ended`] if the coordinator refuses or dismisses this process, or was not found for too long.
    #[expect(clippy::should_implement_trait, reason = "an iterator could not end with an error by `?`")]
    pub fn next(&mut self) -> Result<Option<Group>, MemberError> {
        let (reply, group) = sync_channel(1);
        match self.ask(Request::Next { reply }).and_then(|()| group.recv()) {
            Ok(group) => Ok(Some(group)),
            Err(RecvError) => self.end().map(|_| None),
        }
    }

    /// Says that all work is done, and blocks until all ranks of `group` have said so: then the job is over, and processes that wait for a place are
    /// not needed any more. All ranks call it, as any operation. It begins with [`Group::close`].
    ///
    /// # Errors
    /// See [`GroupError`]. If the generation ends before all ranks have closed their group, or one [leaves](Self::leave) instead of finishing, the job goes
    /// on: ask for the next group, and finish there. A process that dies after it has closed its group no longer holds the end up.
    pub fn finish(&mut self, group: Group) -> Result<(), GroupError> {
        let generation = group.generation();
        group.close()?;
        let (goes_on, heard) = sync_channel(1);
        let asked = self.ask(Request::Finish { generation, goes_on });
        if let Ok(reason) = asked.and_then(|()| heard.recv()) {
            return Err(GroupError::clone(&reason));
        }
        self.wait();
        match &self.ended {
            Some(Ok(_)) => Ok(()),
            // `next` tells which.
            Some(Err(error)) => Err(GroupError::Over {
                generation,
                reason: error.to_string(),
            }),
            None => Err(GroupError::Over {
                generation,
                reason: MemberError::Over.to_string(),
            }),
        }
    }

    /// Leaves the job in good order while the others go on, and blocks until the coordinator has let this process go, or is not there to. Operations under
    /// way on the other ranks end with an error, and so does a [`Self::finish`] there. The agent starts no process in place of this one if it ends
    /// with exit code 0.
    ///
    /// A job whose ranks all leave is not done: it waits for others to come, and `sardana run`, where none comes, fails. The last ranks
    /// [finish](Self::finish).
    ///
    /// # Errors
    /// [`MemberError::Ended`] if its part had failed before.
    pub fn leave(mut self) -> Result<(), MemberError> {
        let reason = "its program leaves".to_owned();
        // One that has ended already cannot.
        let _ = self.ask(Request::Leave { reason });
        self.end().map(|_| ())
    }

    fn ask(&self, request: Request) -> Result<(), RecvError> {
        let requests = self.requests.as_ref().ok_or(RecvError)?;
        requests.send(request).map_err(|_| RecvError)
    }

    /// Waits until the network's thread has ended. The program knows of it from now on: one that does not come so far its agent ends.
    fn wait(&mut self) {
        if let Some(network) = self.network.take() {
            self.ended = Some(network.join().unwrap_or(Err(ProcessError::Panicked)));
        }
        if let (Some(Ok(_)), Some(tally)) = (&self.ended, &mut self.tally) {
            tally.write_over();
        }
    }

    /// How it ends, which is told once if it is an error.
    fn end(&mut self) -> Result<GroupEnded, MemberError> {
        self.wait();
        match self.ended.take() {
            Some(Ok(ended)) => {
                self.ended = Some(Ok(ended));
                Ok(ended)
            }
            Some(Err(error)) => Err(error.into()),
            None => Err(MemberError::Over),
        }
    }
}

impl Drop for Member {
    /// Waits until the others have been told that it is gone, or cannot be.
    fn drop(&mut self) {
        self.requests = None;
        self.wait();
    }
}
