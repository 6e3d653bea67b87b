//! The control connection of a group's worker: a task that dials, says hello, and carries messages until it breaks.

use std::sync::{Arc, Mutex, PoisonError};

use sardana_net::control::carry;
use sardana_net::dialler::Welcomed;
use sardana_protocol::member::GroupMember;
use sardana_protocol::messages::{CoordinatorMessage, WorkerHello};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::shell::Message;
use crate::panicked::or_tell;
use crate::worker::limits::LAST_WORDS;
use crate::worker::{Link, Looking};

/// The machine, which a hello asks where this worker is.
pub(super) type Machine = Arc<Mutex<GroupMember>>;

/// The task.
#[derive(Debug)]
pub(super) struct Control(JoinHandle<()>);

impl Control {
    pub(super) fn start(
        link: Link,
        machine: Machine,
        hello: WorkerHello,
        looking: Looking,
        shell: mpsc::UnboundedSender<Message>,
    ) -> Self {
        Self::told_of(shell.clone(), converse(link, machine, hello, looking, shell))
    }

    /// A task that `shell` is told of if it panics: as of any connection that is lost.
    fn told_of(shell: mpsc::UnboundedSender<Message>, task: impl Future<Output = ()> + Send + 'static) -> Self {
        let tell = move || {
            let why = "its task panicked".to_owned();
            let _ = shell.send(Message::ControlLost { why });
        };
        Self(tokio::spawn(or_tell(task, tell)))
    }

    /// Waits until what was said last has arrived. Its queue is closed before.
    pub(super) async fn finish(&mut self) {
        let _ = timeout(LAST_WORDS, &mut self.0).await;
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Joins, then carries messages both ways until the connection breaks.
async fn converse(
    link: Link,
    machine: Machine,
    hello: WorkerHello,
    looking: Looking,
    shell: mpsc::UnboundedSender<Message>,
) {
    sleep(looking.pause()).await;
    let worker = hello.worker;
    let current = || WorkerHello {
        introduction: machine.lock().unwrap_or_else(PoisonError::into_inner).introduction(),
        call: link.next_call(),
        ..hello.clone()
    };
    // The shell is gone only when the worker ends.
    let tell = |message| shell.send(message).is_ok();
    let Welcomed {
        connection,
        streams,
        greeting: (incarnation, _),
        ..
    } = match link.join(current, looking).await {
        Ok(welcomed) => welcomed,
        Err(error) => {
            tell(Message::NotJoined(error));
            return;
        }
    };
    tracing::info!(target: "sardana::event::joined", %worker, coordinator = %connection.remote_address());
    let (say, queue) = mpsc::unbounded_channel();
    // Before anything that the coordinator says.
    if !tell(Message::Joined { incarnation, say }) {
        return;
    }
    let told = |message: CoordinatorMessage, _| tell(Message::Told(message));
    let why = carry(&connection, streams, queue, told, |_| ()).await;
    connection.close(0_u32.into(), b"the worker leaves this connection");
    tell(Message::ControlLost { why });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_control_task_that_panics_is_a_connection_that_is_lost() {
        let (shell, mut inbox) = mpsc::unbounded_channel();
        let _control = Control::told_of(shell, async { panic!("as a test wants it") });
        let told = inbox.recv().await;
        assert!(matches!(told, Some(Message::ControlLost { .. })), "{told:?}");
    }
}
