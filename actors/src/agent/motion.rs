//! Sees children stand still. The system tells a parent by SIGCHLD that a child has stopped, as by SIGSTOP, has gone on, or has ended; what it
//! does now is looked up without taking anything from the task that waits for its end.

use ractor::ActorRef;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use sardana_protocol::messages::{AgentMessage, Motion};
use sardana_protocol::words::WorkerId;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::actor::{Message, State};
use super::limits::LOOK_AGAIN;

/// Tells the agent when to look at its children, until it is dropped.
#[derive(Debug)]
pub(super) struct Watch(AbortHandle);

impl Watch {
    /// # Errors
    /// When the system lets no process listen for signals.
    pub(super) fn start(agent: &ActorRef<Message>) -> std::io::Result<Self> {
        let mut signals = signal(SignalKind::child())?;
        let agent = agent.clone();
        let watching = tokio::spawn(async move {
            while signals.recv().await.is_some() && agent.cast(Message::LookAtChildren).is_ok() {
                sleep(LOOK_AGAIN).await;
            }
        });
        Ok(Self(watching.abort_handle()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl State {
    /// Some child may have stopped or gone on: the coordinator is told of each that has.
    pub(super) fn look_at_children(&mut self) {
        let processes = self.processes().clone();
        let mut news = Vec::new();
        for (&worker, child) in &mut self.children {
            let motion = processes.get(&worker).map_or(Motion::Runs, |&pid| motion_of(pid));
            if std::mem::replace(&mut child.motion, motion) != motion {
                news.push((worker, motion));
            }
        }
        for (worker, motion) in news {
            self.say_motion(worker, motion);
        }
    }

    /// A coordinator that was away knows of none that stands still.
    pub(super) fn say_who_stands_still(&self) {
        for (&worker, _) in self.children.iter().filter(|(_, child)| child.motion == Motion::Stopped) {
            self.say_motion(worker, Motion::Stopped);
        }
    }

    fn say_motion(&self, worker: WorkerId, motion: Motion) {
        tracing::info!(target: "sardana::event::motion", %worker, %motion, "a worker's process stands still, or goes on");
        // It is said again on the next connection if there is none, where it still stands still then.
        self.reporting.say(AgentMessage::ChildMotion { worker, motion });
    }
}

/// What a child does now. A child that has ended does not stand still.
fn motion_of(pid: u32) -> Motion {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Motion::Runs;
    };
    // Only looks, and not for ends: those are for the task that waits for them.
    let looks = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), looks) {
        Ok(Some(status)) if status.stopped() => Motion::Stopped,
        // Its end was taken already, if there is no such child.
        Ok(Some(_) | None) | Err(_) => Motion::Runs,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::process::{Signal, kill_process};

    use super::*;

    /// Waits until the system has told that a child has changed.
    async fn changes(pid: u32, signals: &mut tokio::signal::unix::Signal, wanted: Motion) {
        while motion_of(pid) != wanted {
            signals.recv().await.expect("signals come as long as the program runs");
        }
    }

    #[tokio::test]
    async fn a_child_is_seen_to_stop_and_to_go_on_and_its_end_is_left_to_who_waits_for_it() {
        let mut signals = signal(SignalKind::child()).unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert_eq!(motion_of(child.id()), Motion::Runs);
        for _ in 0..2 {
            kill_process(pid, Signal::STOP).unwrap();
            changes(child.id(), &mut signals, Motion::Stopped).await;
            assert_eq!(motion_of(child.id()), Motion::Stopped, "looking takes nothing");
            kill_process(pid, Signal::CONT).unwrap();
            changes(child.id(), &mut signals, Motion::Runs).await;
        }
        kill_process(pid, Signal::STOP).unwrap();
        changes(child.id(), &mut signals, Motion::Stopped).await;
        child.kill().unwrap();
        changes(child.id(), &mut signals, Motion::Runs).await;
        assert_eq!(child.wait().unwrap().code(), None, "it was killed");
        assert_eq!(motion_of(child.id()), Motion::Runs, "there is no such child any more");
    }
}
