//! A coordinator that takes a job over with the authority alone, and must find a number above that of every coordinator before it.

use std::sync::Arc;
use std::time::Duration;

use sardana_actors::coordinator::CoordinatorError;
use sardana_net::enrol::Registrar;
use sardana_net::quic::BindError;
use sardana_protocol::membership::JobEvent;
use sardana_protocol::words::Incarnation;
use tokio::time::{Instant, sleep};

use super::{CoordinateConfig, HostingError, Started, begin};
use crate::hosts::state::StateDirectory;

/// How long the coordinator before the next one may take to let go of its address: its connections drain for three probe timeouts each
/// (RFC 9000, 10.2), of a second and more before a round trip is known.
const LET_GO: Duration = Duration::from_secs(30);

/// Between two looks whether it is free.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Starts a coordinator that may know less than the workers do: it learns from them above which incarnation it must be.
pub(super) async fn take_over(
    config: &CoordinateConfig,
    state: &StateDirectory,
    registrar: &Arc<Registrar>,
    known: Incarnation,
) -> Result<Started, HostingError> {
    let mut incarnation = state.next_incarnation(known)?;
    // Since when the last coordinator of this very process may still be letting go of its address.
    let mut ended: Option<Instant> = None;
    loop {
        let mut started = match begin(config, state, registrar, incarnation).await {
            Err(HostingError::Coordinator(CoordinatorError::Bind(BindError::AddressInUse { .. })))
                if ended.is_some_and(|ended| ended.elapsed() < LET_GO) =>
            {
                sleep(LOOK_AGAIN).await;
                continue;
            }
            started => started?,
        };
        tracing::info!(target: "sardana::event::taking_over", address = %started.coordinator.address(), "waiting for the workers, to learn what they know");
        loop {
            let event = started.events.recv().await;
            match claim(event.as_ref()) {
                Claim::Below(by) => {
                    incarnation = state.next_incarnation(by)?;
                    started.coordinator.end().await;
                    ended = Some(Instant::now());
                    break;
                }
                Claim::Open => started.heard.extend(event),
                Claim::Leads => {
                    state.remove_fence()?;
                    started.heard.extend(event);
                    return Ok(started);
                }
                Claim::Over => {
                    started.heard.extend(event);
                    return Ok(started);
                }
            }
        }
    }
}

/// How the claim of a coordinator that takes over stands, as an event shows it.
#[derive(Debug, PartialEq, Eq)]
enum Claim {
    /// A worker or another coordinator knows of a coordinator with this number, which is higher, or the same: this one must begin
    /// again above it.
    Below(Incarnation),
    /// Workers may have come, but perhaps not yet the one that knows most: the last coordinator may have ended before it had greeted all.
    Open,
    /// All workers that it has waited for have come, or it waits no longer: it decides.
    Leads,
    /// It has ended.
    Over,
}

fn claim(event: Option<&JobEvent>) -> Claim {
    match event {
        Some(JobEvent::Fenced { by, .. }) => Claim::Below(*by),
        Some(JobEvent::Generation(_) | JobEvent::Waiting { .. } | JobEvent::StateLost { .. } | JobEvent::Steps(_)) => {
            Claim::Leads
        }
        Some(JobEvent::Done(_) | JobEvent::Failed { .. }) | None => Claim::Over,
        Some(
            JobEvent::Worker(_)
            | JobEvent::Checkpoint(_)
            | JobEvent::Snapshot { .. }
            | JobEvent::NotRecorded { .. }
            | JobEvent::RecordedAgain { .. },
        ) => Claim::Open,
    }
}

#[cfg(test)]
mod tests {
    use sardana_protocol::membership::{GenerationEvent, WorkerEvent};
    use sardana_protocol::words::{Generation, Step, WorkerId};

    use super::*;

    #[test]
    fn it_leads_only_once_all_have_come_and_till_then_begins_again_above_whom_they_know() {
        let own = Incarnation::new(2);
        let joined = WorkerEvent::Joined {
            worker: WorkerId::new(7),
            step: Step::ZERO,
        };
        assert_eq!(claim(Some(&joined.into())), Claim::Open);
        // A second worker was greeted by a coordinator of the number that the first one had led it to.
        let fenced = JobEvent::Fenced { own, by: own };
        assert_eq!(claim(Some(&fenced)), Claim::Below(own));
        let adopted = GenerationEvent::Adopted {
            generation: Generation::new(own, 1),
            members: Vec::new(),
            step: Step::ZERO,
        };
        assert_eq!(claim(Some(&adopted.into())), Claim::Leads);
        assert_eq!(claim(None), Claim::Over);
    }
}
