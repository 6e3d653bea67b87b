//! The shortest way to run a job: one call, on this host.

use std::fmt;

use sardana_actors::agent::AgentEvent;
use sardana_protocol::job::JobSpec;
use sardana_protocol::membership::{JobEvent, Summary};

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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| LaunchError::System(error.to_string()))?;
    runtime.block_on(async {
        let config = LaunchConfig {
            checkpoints: job.checkpoints().cloned(),
            ..LaunchConfig::this_program(*job.staffing())?
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
        JobEvent::Steps(reports) => {
            if let Some(last) = reports.last() {
                tracing::debug!(target: "sardana::event::steps", step = %last.step, samples = last.samples, sums = ?last.sums, "applied");
            }
        }
        JobEvent::Snapshot { step, holders } => {
            tracing::debug!(target: "sardana::event::snapshot", %step, holders, "a snapshot is there");
        }
        JobEvent::Done(summary) => {
            tracing::info!(target: "sardana::event::done", step = %summary.step, order = %summary.order, hash = %summary.hash, "the job is done");
        }
        JobEvent::Failed { reason } => {
            tracing::error!(target: "sardana::event::failed", %reason, "the job failed");
        }
        JobEvent::Halting { .. } | JobEvent::Forming { .. } => {}
        JobEvent::Formed { .. }
        | JobEvent::Resumed { .. }
        | JobEvent::Switched { .. }
        | JobEvent::Adopted { .. }
        | JobEvent::Fenced { .. }
        | JobEvent::Waiting { .. }
        | JobEvent::StateLost { .. } => log_membership(event),
        JobEvent::DepotCame { .. }
        | JobEvent::DepotLost { .. }
        | JobEvent::DepotRefused { .. }
        | JobEvent::Saved { .. }
        | JobEvent::NotSaved { .. }
        | JobEvent::Resumes { .. }
        | JobEvent::NotRestored { .. } => log_checkpoints(event),
        JobEvent::NotRecorded { reason } => {
            tracing::error!(target: "sardana::event::not_recorded", %reason, "the job cannot be written down for the coordinator's next life; it is tried again, and training goes on");
        }
        JobEvent::RecordedAgain { after } => {
            tracing::info!(target: "sardana::event::recorded_again", ?after, "the job is written down again");
        }
        JobEvent::Joined { .. }
        | JobEvent::CaughtUp { .. }
        | JobEvent::CoolsDown { .. }
        | JobEvent::JoinsAnew { .. }
        | JobEvent::Held { .. }
        | JobEvent::Leaving { .. }
        | JobEvent::Left { .. }
        | JobEvent::Lost { .. } => log_worker(event),
    }
}

/// What happens to all members together.
fn log_membership(event: &JobEvent) {
    if let JobEvent::Formed {
        generation,
        world_size,
        took,
    } = event
    {
        tracing::info!(target: "sardana::event::formed", %generation, world_size, ?took, "the ring is formed");
    }
    if let JobEvent::Resumed { generation, step, after } = event {
        tracing::info!(target: "sardana::event::resumed", %generation, %step, ?after, "training goes on");
    }
    if let JobEvent::Switched {
        generation,
        members,
        shards,
        step,
    } = event
    {
        tracing::info!(target: "sardana::event::switched", %generation, world_size = members.len(), %step, shards = %list(shards), "a planned generation began at a boundary");
    }
    if let JobEvent::Fenced { own, by } = event {
        tracing::error!(target: "sardana::event::fenced", %own, %by, "another coordinator leads the job; this one ends");
    }
    if let JobEvent::Adopted {
        generation,
        members,
        step,
    } = event
    {
        tracing::info!(target: "sardana::event::adopted", %generation, world_size = members.len(), %step, "workers train on; nobody is disturbed");
    }
    if let JobEvent::Waiting { have, need } = event {
        tracing::warn!(target: "sardana::event::waiting", have, %need, "training waits");
    }
    if let JobEvent::StateLost { reached, from } = event {
        tracing::warn!(target: "sardana::event::state_lost", %reached, %from, "every holder of the state is gone: training starts again");
    }
}

/// These in one line.
fn list<T: fmt::Display>(these: &[T]) -> String {
    let these: Vec<String> = these.iter().map(ToString::to_string).collect();
    these.join(" ")
}

/// What happens to checkpoints, and to those who keep them.
fn log_checkpoints(event: &JobEvent) {
    if let JobEvent::DepotCame { depot, host } = event {
        tracing::info!(target: "sardana::event::depot", %depot, %host, "a checkpoint actor is there");
    }
    if let JobEvent::DepotLost { depot, why } = event {
        tracing::warn!(target: "sardana::event::depot_lost", %depot, %why, "a checkpoint actor is gone");
    }
    if let JobEvent::DepotRefused { depot, step, reason } = event {
        tracing::warn!(target: "sardana::event::depot_refused", %depot, %step, %reason, "a checkpoint actor cannot keep a checkpoint");
    }
    if let JobEvent::Saved {
        key,
        hosts,
        wanted,
        took,
    } = event
    {
        if hosts < wanted {
            tracing::warn!(target: "sardana::event::saved", step = %key.step, hosts, wanted, ?took, "a checkpoint is committed on fewer hosts than asked for");
        } else {
            tracing::info!(target: "sardana::event::saved", step = %key.step, hosts, ?took, "a checkpoint is committed");
        }
    }
    if let JobEvent::NotSaved { step, reason } = event {
        tracing::warn!(target: "sardana::event::not_saved", %step, %reason, "a checkpoint is given up; if training goes on, another is taken soon");
    }
    if let JobEvent::Resumes { key, passed_over } = event {
        for (newer, reason) in passed_over {
            tracing::warn!(target: "sardana::event::passed_over", step = %newer.step, id = %newer.id, %reason, "a newer checkpoint cannot be used");
        }
        tracing::info!(target: "sardana::event::resumes", step = %key.step, id = %key.id, "training resumes from the newest checkpoint that is complete");
    }
    if let JobEvent::NotRestored { key, worker, reason } = event {
        tracing::warn!(target: "sardana::event::not_restored", step = %key.step, %worker, %reason, "a checkpoint could not be loaded");
    }
}

/// What happens to one worker.
fn log_worker(event: &JobEvent) {
    if let JobEvent::Joined { worker, step } = event {
        tracing::info!(target: "sardana::event::joined", %worker, %step, "a worker joined");
    }
    if let JobEvent::CaughtUp { worker, step } = event {
        tracing::info!(target: "sardana::event::caught_up", %worker, %step, "a joiner has the state");
    }
    if let JobEvent::JoinsAnew { worker, reason } = event {
        tracing::warn!(target: "sardana::event::joins_anew", %worker, %reason, "a joiner begins anew");
    }
    if let JobEvent::CoolsDown { worker, wait } = event {
        tracing::warn!(target: "sardana::event::cools_down", %worker, ?wait, "its host's workers were left out again and again: it waits");
    }
    if let JobEvent::Held { worker } = event {
        tracing::warn!(target: "sardana::event::held", %worker, "all wait until this worker has the state");
    }
    if let JobEvent::Leaving { worker, reason } = event {
        tracing::info!(target: "sardana::event::leaving", %worker, %reason, "a worker leaves at the next boundary");
    }
    if let JobEvent::Left { worker, step } = event {
        tracing::info!(target: "sardana::event::left", %worker, %step, "a worker has left");
    }
    if let JobEvent::Lost {
        worker,
        rank,
        cause,
        stage,
    } = event
    {
        tracing::warn!(target: "sardana::event::lost", %worker, rank = rank.map(tracing::field::display), %cause, %stage, "a worker is lost");
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
        AgentEvent::Exhausted | AgentEvent::JobOver => {}
    }
}

/// What an agent's machine was told by its cloud: what makes workers leave, or would not be seen, at `warn`.
fn log_notice(said: &Said) {
    match said {
        Said::Heard { heed: Heed::Drains, .. } | Said::Unapproved { .. } | Said::Blind { .. } => {
            tracing::warn!(target: "sardana::event::notice", "{said}");
        }
        Said::Watching { .. }
        | Said::NoService
        | Said::Heard {
            heed: Heed::Later | Heed::Stale | Heed::Warns,
            ..
        }
        | Said::Gone { .. }
        | Said::Approved { .. }
        | Said::Sees => tracing::info!(target: "sardana::event::notice", "{said}"),
    }
}
