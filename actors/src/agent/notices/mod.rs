//! The watch for notices: asks this machine's cloud, and lets the [machine](sardana_protocol::notices) decide what that means.
//!
//! It is a part of the agent, in this crate, because it is a shell: it receives, calls its machine and does what the machine says; and what
//! the watch says is done by the agent's actor, under whatever program runs the agent. Here is how each cloud is asked, one file for
//! each. Must not know what a notice is worth.

mod aws;
mod azure;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod gce;
mod http;
mod words;

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use sardana_protocol::notices::{
    Approval, Cloud, Command, Detected, Heeded, Notice, Notices, Observation, Pace, Policy, Probe, Progress, Said, UtcTime,
    What, detect,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::sleep;

#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz;
pub use http::{MetadataAddress, MetadataAddressError};

use aws::Aws;
use azure::Azure;
use gce::Gce;
use http::LookError;

/// Which cloud's notices are watched for, and which are heeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticesConfig {
    /// Which cloud's metadata service is asked.
    pub service: Service,
    /// Where its metadata service is.
    pub metadata: MetadataAddress,
    /// Which let the workers leave.
    pub heeded: Heeded,
    /// How often it is asked; as its documentation wants it if none.
    pub pace: Option<Pace>,
}

/// Which cloud's metadata service is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// The cloud that answers, if any does.
    #[default]
    Auto,
    /// This cloud's, also while it does not answer.
    Of(Cloud),
}

/// What a watch wants.
#[derive(Debug)]
pub enum NoticeOrder {
    /// Tell people.
    Say(Said),
    /// Let the workers leave at a boundary. Said again, it means that there is less time.
    Drain {
        /// Which notice.
        reason: String,
        /// How long they may take; none if it is not known.
        within: Option<Duration>,
        /// To be told when they have left.
        drained: oneshot::Sender<()>,
    },
    /// Start as many workers as there were.
    Return {
        /// What is withdrawn.
        reason: String,
    },
}

/// A watch that runs; it ends when this is dropped.
#[derive(Debug)]
pub struct Watch(AbortHandle);

impl Watch {
    /// Starts a watch. What it wants comes through the receiver, whose end says that there is nothing to watch.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn start(config: NoticesConfig) -> (Self, mpsc::UnboundedReceiver<NoticeOrder>) {
        let (orders, receiver) = mpsc::unbounded_channel();
        let task = tokio::spawn(watch(config, orders));
        (Self(task.abort_handle()), receiver)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A metadata service, asked in its own way.
#[derive(Debug)]
enum Source {
    Aws(Aws),
    Gce(Gce),
    Azure(Azure),
}

impl Source {
    const fn new(cloud: Cloud, address: MetadataAddress, within: Duration) -> Self {
        match cloud {
            Cloud::Aws => Self::Aws(Aws::new(address, within)),
            Cloud::Gce => Self::Gce(Gce::new(address, within)),
            Cloud::Azure => Self::Azure(Azure::new(address, within)),
        }
    }

    async fn look(&mut self, hang: Duration) -> Result<Vec<Notice>, LookError> {
        match self {
            Self::Aws(aws) => aws.look().await,
            Self::Gce(gce) => gce.look(hang).await,
            Self::Azure(azure) => azure.look().await,
        }
    }

    async fn approve(&self, id: &str) -> Result<(), LookError> {
        match self {
            Self::Azure(azure) => azure.approve(id).await,
            // They give no notice that could be approved.
            Self::Aws(_) | Self::Gce(_) => Ok(()),
        }
    }
}

/// A notice with which no moment comes.
fn notice(id: &str, what: What) -> Notice {
    Notice {
        id: id.to_owned(),
        what,
        due: None,
        progress: Progress::Announced,
        approval: Approval::None,
    }
}

/// What an answer of another kind than expected says about the service that is there.
fn busy(status: StatusCode) -> Probe {
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        Probe::Busy
    } else {
        Probe::Silent
    }
}

/// Asks in all three ways at once, until a service answers or none can be there.
async fn detected(address: &MetadataAddress) -> Option<Cloud> {
    let mut tries = 0;
    loop {
        tries += 1;
        let (aws, gce, azure) = tokio::join!(Aws::probe(address), Gce::probe(address), Azure::probe(address));
        let answer = |cloud| match cloud {
            Cloud::Aws => aws,
            Cloud::Gce => gce,
            Cloud::Azure => azure,
        };
        match detect(answer, tries) {
            Detected::Cloud(cloud) => return Some(cloud),
            Detected::Again { after } => sleep(after).await,
            Detected::NoCloud => return None,
        }
    }
}

fn now() -> UtcTime {
    UtcTime::of(SystemTime::now())
}

async fn watch(config: NoticesConfig, orders: mpsc::UnboundedSender<NoticeOrder>) {
    let cloud = match config.service {
        Service::Auto => detected(&config.metadata).await,
        Service::Of(cloud) => Some(cloud),
    };
    let said = cloud.map_or(Said::NoService, |cloud| Said::Watching { cloud });
    let listened = orders.send(NoticeOrder::Say(said));
    let (Some(cloud), Ok(())) = (cloud, listened) else { return };
    let policy = Policy {
        heeded: config.heeded,
        pace: config.pace.unwrap_or(Pace::of(cloud)),
    };
    let mut watching = Watching {
        source: Source::new(cloud, config.metadata, policy.pace.answer_within),
        machine: Notices::new(policy),
        orders,
        drained: None,
        next: (Duration::ZERO, policy.pace.hang),
    };
    while watching.observe().await.is_ok() {}
}

struct Watching {
    source: Source,
    machine: Notices,
    orders: mpsc::UnboundedSender<NoticeOrder>,
    /// Hears that the workers have left.
    drained: Option<oneshot::Receiver<()>>,
    /// How much later the next look is, and how long it may wait at the service.
    next: (Duration, Duration),
}

/// The agent does not listen any more.
struct Unheard;

impl Watching {
    /// Waits for one observation, and does all that follows from it.
    async fn observe(&mut self) -> Result<(), Unheard> {
        let (after, hang) = self.next;
        let look = async {
            sleep(after).await;
            self.source.look(hang).await
        };
        let observation = tokio::select! {
            biased;
            // The look that is given up is made again.
            () = left(&mut self.drained) => Observation::Drained,
            seen = look => match seen {
                Ok(notices) => Observation::Seen(notices),
                Err(error) => Observation::Failed { why: error.to_string() },
            },
        };
        let mut commands: VecDeque<Command> = self.machine.handle(now(), observation).into();
        while let Some(command) = commands.pop_front() {
            commands.extend(self.carry_out(command).await?);
        }
        Ok(())
    }

    /// Returns what follows.
    async fn carry_out(&mut self, command: Command) -> Result<Vec<Command>, Unheard> {
        let order = match command {
            Command::Say(said) => NoticeOrder::Say(said),
            Command::Drain { reason, within } => {
                let (drained, left) = oneshot::channel();
                self.drained = Some(left);
                NoticeOrder::Drain { reason, within, drained }
            }
            Command::Return { reason } => {
                self.drained = None;
                NoticeOrder::Return { reason }
            }
            Command::Approve { id, what } => match self.source.approve(&id).await {
                Ok(()) => NoticeOrder::Say(Said::Approved { what }),
                Err(error) => {
                    let why = error.to_string();
                    return Ok(self.machine.handle(now(), Observation::Unapproved { id, why }));
                }
            },
            Command::Look { after, hang } => {
                self.next = (after, hang);
                return Ok(Vec::new());
            }
        };
        self.orders.send(order).map_err(|_| Unheard)?;
        Ok(Vec::new())
    }
}

/// Waits until the workers have left; for ever if none was asked to, or none will say so.
async fn left(drained: &mut Option<oneshot::Receiver<()>>) {
    if let Some(receiver) = drained {
        let said = receiver.await;
        *drained = None;
        if said.is_ok() {
            return;
        }
    }
    std::future::pending().await
}
