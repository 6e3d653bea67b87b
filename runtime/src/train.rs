//! The shortest way to run a job: one call, on this host.

use sardana_actors::agent::AgentEvent;
use sardana_protocol::job::JobSpec;
use sardana_protocol::membership::{CheckpointEvent, GenerationEvent, JobEvent, Summary, WorkerEvent};
use sardana_protocol::words::few;

use crate::device::DeviceChoice;
use crate::job::Job;
use crate::launch::{Event, LaunchConfig, LaunchError, launch};
use crate::model::{ModelError, Trainable};
use crate::notices::{Heed, Said};
use crate::worker::serve_if_started_by_agent;

/// Trains the job in worker processes of this very program, and returns how it ended. The program is started again for each worker,
/// with its own arguments; there this call takes part in the training and never returns. So call it early, and give `build` all
/// that the model needs: it is called in each worker, on the thread that
/// called this, which trains.
///
/// Each worker gets a GPU of its own if there are any, unless the job's [`device`](crate::job::JobBuilder::device) or
/// [`crate::device::DEVICE_VARIABLE`] says otherwise.
///
/// Events are logged through `tracing`; for anything else use [`crate::launch`].
///
/// # Errors
/// When the job fails, or no worker is left.
pub fn train<M, F>(job: &Job, build: F) -> Result<Summary, LaunchError>
where
    M: Trainable,
    F: FnOnce(&JobSpec) -> Result<M, ModelError>,
{
    serve_if_started_by_agent(job, build);
    run(job)
}

fn run(job: &Job) -> Result<Summary, LaunchError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| LaunchError::System(error.to_string()))?;
    let device = job.device().map_or_else(|| DeviceChoice::said(None), Ok)?;
    runtime.block_on(async {
        let config = LaunchConfig {
            checkpoints: job.checkpoints().cloned(),
            ..LaunchConfig::this_program(*job.staffing())?.on(device)?
        };
        let launched = launch(config).await?;
        launched.finish(|_, event| log(event)).await
    })
}

/// Logs an event: what people wait for at `info`, losses at `warn`.
pub fn log(event: &Event) {
    match event {
        Event::Job(event) => log_job(event),
        Event::Agent(event) => log_agent(event),
    }
}

fn log_job(event: &JobEvent) {
    match event {
        JobEvent::Worker(event) => log_worker(event),
        JobEvent::Generation(event) => log_generation(event),
        JobEvent::Checkpoint(event) => log_checkpoint(event),
        JobEvent::Steps(reports) => {
            if let Some(last) = reports.last() {
                tracing::debug!(target: "sardana::event::steps", step = %last.step, samples = last.samples, sums = ?last.sums, "applied");
            }
        }
        JobEvent::Snapshot { step, holders } => {
            tracing::debug!(target: "sardana::event::snapshot", %step, holders, "a snapshot is there");
        }
        JobEvent::Waiting { have, need } => {
            tracing::warn!(target: "sardana::event::waiting", have, %need, "training waits");
        }
        JobEvent::StateLost { reached, from } => {
            tracing::warn!(target: "sardana::event::state_lost", %reached, %from, "every holder of the state is gone: training starts again");
        }
        JobEvent::Fenced { own, by } => {
            tracing::error!(target: "sardana::event::fenced", %own, %by, "another coordinator leads the job; this one ends");
        }
        JobEvent::NotRecorded { reason } => {
            tracing::error!(target: "sardana::event::not_recorded", %reason, "the job cannot be written down for the coordinator's next life; it is tried again, and training goes on");
        }
        JobEvent::RecordedAgain { after } => {
            tracing::info!(target: "sardana::event::recorded_again", ?after, "the job is written down again");
        }
        JobEvent::Done(summary) => {
            tracing::info!(target: "sardana::event::done", step = %summary.step, order = %summary.order, compression = %summary.compression, hash = %summary.hash, "the job is done");
        }
        JobEvent::Failed { reason } => {
            tracing::error!(target: "sardana::event::failed", %reason, "the job failed");
        }
    }
}

fn log_worker(event: &WorkerEvent) {
    match event {
        WorkerEvent::Joined { worker, step } => {
            tracing::info!(target: "sardana::event::joined", %worker, %step, "a worker joined");
        }
        WorkerEvent::CaughtUp { worker, step } => {
            tracing::info!(target: "sardana::event::caught_up", %worker, %step, "a joiner has the state");
        }
        WorkerEvent::JoinsAnew { worker, reason } => {
            tracing::warn!(target: "sardana::event::joins_anew", %worker, %reason, "a joiner begins anew");
        }
        WorkerEvent::SharesNoMemory { worker } => {
            tracing::warn!(target: "sardana::event::shares_no_memory", %worker, "{event}");
        }
        WorkerEvent::CoolsDown { worker, wait } => {
            tracing::warn!(target: "sardana::event::cools_down", %worker, ?wait, "its host's workers were left out again and again: it waits");
        }
        WorkerEvent::Held { worker } => {
            tracing::warn!(target: "sardana::event::held", %worker, "all wait until this worker has the state");
        }
        WorkerEvent::Leaving { worker, reason } => {
            tracing::info!(target: "sardana::event::leaving", %worker, %reason, "a worker leaves at the next boundary");
        }
        WorkerEvent::Left { worker, step } => {
            tracing::info!(target: "sardana::event::left", %worker, %step, "a worker has left");
        }
        WorkerEvent::Lost {
            worker,
            rank,
            cause,
            stage,
        } => {
            tracing::warn!(target: "sardana::event::lost", %worker, rank = rank.map(tracing::field::display), %cause, %stage, "a worker is lost");
        }
    }
}

fn log_generation(event: &GenerationEvent) {
    match event {
        GenerationEvent::Formed {
            generation,
            world_size,
            took,
        } => {
            tracing::info!(target: "sardana::event::formed", %generation, world_size, ?took, "the ring is formed");
        }
        GenerationEvent::Resumed { generation, step, after } => {
            tracing::info!(target: "sardana::event::resumed", %generation, %step, ?after, "training goes on");
        }
        GenerationEvent::Switched {
            generation,
            members,
            shards,
            step,
        } => {
            tracing::info!(target: "sardana::event::switched", %generation, world_size = members.len(), %step, shards = %few(shards, " "), "a planned generation began at a boundary");
        }
        GenerationEvent::Adopted {
            generation,
            members,
            step,
        } => {
            tracing::info!(target: "sardana::event::adopted", %generation, world_size = members.len(), %step, "workers train on undisturbed");
        }
        // What comes of them is told as well.
        GenerationEvent::Halting { .. } | GenerationEvent::Forming { .. } => {}
    }
}

fn log_checkpoint(event: &CheckpointEvent) {
    match event {
        CheckpointEvent::DepotCame { depot, host } => {
            tracing::info!(target: "sardana::event::depot", %depot, %host, "a checkpoint actor is there");
        }
        CheckpointEvent::DepotLost { depot, why } => {
            tracing::warn!(target: "sardana::event::depot_lost", %depot, %why, "a checkpoint actor is gone");
        }
        CheckpointEvent::DepotRefused { depot, step, reason } => {
            tracing::warn!(target: "sardana::event::depot_refused", %depot, %step, %reason, "a checkpoint actor cannot keep a checkpoint");
        }
        CheckpointEvent::Saved {
            key,
            hosts,
            wanted,
            took,
        } if hosts < wanted => {
            tracing::warn!(target: "sardana::event::saved", step = %key.step, hosts, wanted, ?took, "a checkpoint is committed on fewer hosts than asked for");
        }
        CheckpointEvent::Saved { key, hosts, took, .. } => {
            tracing::info!(target: "sardana::event::saved", step = %key.step, hosts, ?took, "a checkpoint is committed");
        }
        CheckpointEvent::NotSaved { step, reason } => {
            tracing::warn!(target: "sardana::event::not_saved", %step, %reason, "a checkpoint is given up; if training goes on, another is taken soon");
        }
        CheckpointEvent::Resumes { key, passed_over } => {
            for (newer, reason) in passed_over {
                tracing::warn!(target: "sardana::event::passed_over", step = %newer.step, id = %newer.id, %reason, "a newer checkpoint cannot be used");
            }
            tracing::info!(target: "sardana::event::resumes", step = %key.step, id = %key.id, "training resumes from the newest checkpoint that is complete");
        }
        CheckpointEvent::NotRestored { key, worker, reason } => {
            tracing::warn!(target: "sardana::event::not_restored", step = %key.step, %worker, %reason, "a checkpoint could not be loaded");
        }
    }
}

fn log_agent(event: &AgentEvent) {
    match event {
        AgentEvent::Started { worker, pid } => {
            tracing::info!(target: "sardana::event::started", %worker, pid, "a worker process was started");
        }
        AgentEvent::Ended { worker, how } => {
            tracing::info!(target: "sardana::event::ended", %worker, %how, "a worker process ended");
        }
        AgentEvent::NotStarted { reason } => {
            tracing::error!(target: "sardana::event::not_started", %reason, "a worker process could not be started");
        }
        AgentEvent::Short { left } => {
            tracing::warn!(target: "sardana::event::short", left, "none is started in its place");
        }
        AgentEvent::Grown { left } => {
            tracing::info!(target: "sardana::event::grown", left, "more workers are started");
        }
        AgentEvent::Notice(said) => log_notice(said),
        AgentEvent::Away => {
            tracing::warn!(target: "sardana::event::away", "all workers here have left; the agent stays, in case the notice is withdrawn");
        }
        AgentEvent::Back { left, reason } => {
            tracing::info!(target: "sardana::event::back", left, %reason, "workers are started again");
        }
        AgentEvent::NoDepot { reason } => {
            tracing::error!(target: "sardana::event::no_depot", %reason, "no checkpoints are kept on this host");
        }
        AgentEvent::Drained => {
            tracing::info!(target: "sardana::event::drained", "all workers here have ended well, and none is started in their place");
        }
        AgentEvent::Exhausted | AgentEvent::JobOver => {}
    }
}

/// What an agent's machine was told by its cloud: what makes workers leave, or would not be seen, at `warn`.
fn log_notice(said: &Said) {
    let must_be_seen = matches!(
        said,
        Said::Heard { heed: Heed::Drains, .. } | Said::Unapproved { .. } | Said::Blind { .. }
    );
    if must_be_seen {
        tracing::warn!(target: "sardana::event::notice", "{said}");
    } else {
        tracing::info!(target: "sardana::event::notice", "{said}");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};
    use std::sync::Arc;

    use sardana_protocol::words::{Generation, Incarnation, ShardRange, Step, WorkerId};

    use super::*;

    /// What is logged of an event.
    fn logged(event: impl Into<JobEvent>) -> String {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(Arc::clone(&file));
        tracing::subscriber::with_default(subscriber.finish(), || log(&Event::Job(event.into())));
        let (mut file, mut text) = (&*file, String::new());
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn what_is_logged_of_a_thousand_workers_is_a_short_line() {
        let (generation, step) = (Generation::new(Incarnation::new(1), 2), Step::new(9));
        let line = logged(GenerationEvent::Switched {
            generation,
            members: (0..1_024).map(WorkerId::new).collect(),
            shards: (0..1_024).map(ShardRange::one).collect(),
            step,
        });
        assert!(
            line.contains("world_size=1024") && line.contains("shards=0..1 1..2 "),
            "{line}"
        );
        assert!(line.contains(" and 1016 more") && line.len() < 300, "{line}");
        let line = logged(GenerationEvent::Adopted {
            generation,
            members: (0..1_024).map(WorkerId::new).collect(),
            step,
        });
        assert!(line.contains("world_size=1024") && line.len() < 300, "{line}");
    }
}
