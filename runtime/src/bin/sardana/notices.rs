//! The options about announced leaves, and what `sardana run` does about one.

use std::convert::Infallible;

use clap::{Args, ValueEnum};
use sardana::launch::{Event, Steering};
use sardana::notices::{Cloud, Heeded, MetadataAddress, NoticeOrder, NoticesConfig, Service, Watch};
use sardana::{AgentEvent, train};
use tokio::sync::mpsc::UnboundedReceiver;

/// The cloud whose notices are watched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Whose {
    /// Those of the cloud whose metadata service answers at the start; if none does, nothing is asked again.
    Auto,
    /// None.
    None,
    /// Amazon EC2: spot interruptions, rebalance recommendations.
    Aws,
    /// Google Compute Engine: preemptions, host maintenance.
    Gce,
    /// Microsoft Azure: scheduled events. Those that name only this machine are approved once its workers have left.
    Azure,
}

/// Which notices let the workers leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Heed {
    /// Those after which this machine or its memory is gone: interruptions, preemptions, reboots, moves to another host.
    Leaves,
    /// Warnings as well: rebalance recommendations, live migrations, freezes of a few seconds.
    All,
}

/// How notices are heeded.
#[derive(Debug, Args)]
pub(crate) struct Heeding {
    /// Which notices are heeded; the others are only logged. By default not those after which the machine is still there: a job
    /// bears a freeze of seconds, and no other machine would come in the place of one that left only because it might have to.
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Heed::Leaves)]
    heed: Heed,
    /// Where the cloud's metadata service is, if not at its own address: for tests.
    #[arg(long, value_name = "URL", default_value_t, hide_short_help = true)]
    metadata: MetadataAddress,
}

impl Heeding {
    /// None if no notices are watched for.
    pub(crate) fn config(self, whose: Whose) -> Option<NoticesConfig> {
        let service = match whose {
            Whose::None => return None,
            Whose::Auto => Service::Auto,
            Whose::Aws => Service::Of(Cloud::Aws),
            Whose::Gce => Service::Of(Cloud::Gce),
            Whose::Azure => Service::Of(Cloud::Azure),
        };
        Some(NoticesConfig {
            service,
            metadata: self.metadata,
            heeded: match self.heed {
                Heed::Leaves => Heeded::Leaves,
                Heed::All => Heeded::All,
            },
            pace: None,
        })
    }
}

/// A job whose coordinator and workers are all on this machine has no others to go on without them: it ends at a boundary, as by a
/// signal, and tells its result. Never returns.
pub(crate) async fn stop_at(config: Option<NoticesConfig>, steering: &Steering) -> Infallible {
    let (_watch, mut orders) = match config.map(Watch::start) {
        Some((watch, orders)) => (Some(watch), orders),
        None => (None, nothing()),
    };
    while let Some(order) = orders.recv().await {
        match order {
            NoticeOrder::Say(said) => train::log(&Event::Agent(AgentEvent::Notice(said))),
            NoticeOrder::Drain { reason, .. } => {
                tracing::warn!(target: "sardana::event::notice", %reason, "the job ends at the next boundary");
                steering.request_stop();
            }
            NoticeOrder::Return { reason } => {
                tracing::warn!(target: "sardana::event::notice", %reason, "the job ends all the same");
            }
        }
    }
    std::future::pending().await
}

fn nothing() -> UnboundedReceiver<NoticeOrder> {
    tokio::sync::mpsc::unbounded_channel().1
}
