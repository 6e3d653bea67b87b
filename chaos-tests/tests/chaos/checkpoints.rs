//! Checkpoints: everything is lost but the folder that they are kept in, at any moment, and the job goes on from the newest with as many
//! workers as there are then. It ends in the state of the plain loop, bit for bit.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use sardana::launch::{Event, LaunchConfig, LaunchError, Launched, OperatorRequest, launch};
use sardana::{CheckpointEvent, Checkpointing, GenerationEvent, JobEvent, Step, Summary, WorkerEvent};
use sardana_chaos_tests::gate::{Closed, Place};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Trial, send};
use tokio::time::{sleep, timeout};

use crate::coordinated::{self, Site};
use crate::trial;

/// What has not happened by then never will.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// From this step on each takes a little longer than the one before, until the test is done with it.
const GATE: u64 = 4;

pub(crate) fn setup(workers: u32) -> Setup {
    Setup {
        steps: 60,
        gate_step: GATE,
        ..Setup::new(workers)
    }
}

/// The trial's job with checkpoints in `folder`, on so many workers.
fn config(trial: &Trial, folder: &Path, workers: u32, every: &str) -> Result<LaunchConfig> {
    let mut config = trial.config()?;
    config.staffing.workers = workers;
    config.checkpoints = Some(Checkpointing::new(folder, every.parse()?));
    Ok(config)
}

/// What happens next.
async fn next(launched: &mut Launched) -> Result<JobEvent> {
    let job_event = async {
        loop {
            match launched.next_event().await {
                Some(Event::Job(event)) => return Ok(event),
                Some(Event::Agent(_)) => {}
                None => bail!("the coordinator has ended"),
            }
        }
    };
    timeout(LIMIT, job_event).await.context("nothing happens")?
}

/// Waits until a checkpoint of `step`, or a later one, is committed. Returns its step.
pub(crate) async fn saved(launched: &mut Launched, step: u64) -> Result<Step> {
    loop {
        if let JobEvent::Checkpoint(CheckpointEvent::Saved { key, .. }) = next(launched).await?
            && key.step.get() >= step
        {
            return Ok(key.step);
        }
    }
}

/// How a job ended, and from which checkpoint it had resumed.
pub(crate) struct Ended {
    summary: Summary,
    pub(crate) resumed: Option<Step>,
    saved: Option<Step>,
    pub(crate) told: Vec<JobEvent>,
}

/// Launches a job in a folder that a job in this very process may still be letting go of.
async fn launch_again(config: LaunchConfig) -> Result<Launched> {
    let launching = async {
        loop {
            match launch(config.clone()).await {
                Err(LaunchError::Checkpoints(error)) if error.to_string().contains("in use") => {
                    sleep(Duration::from_millis(5)).await;
                }
                launched => return Ok(launched?),
            }
        }
    };
    timeout(LIMIT, launching).await.context("the folder is not let go of")?
}

/// Runs a job to its end.
async fn finish(config: LaunchConfig) -> Result<Ended> {
    let (mut resumed, mut saved, mut told) = (None, None, Vec::new());
    let finishing = launch_again(config).await?.finish(|_, event| {
        let Event::Job(event) = event else { return };
        if let JobEvent::Checkpoint(CheckpointEvent::Resumes { key, .. }) = event {
            resumed = Some(key.step);
        }
        if let JobEvent::Checkpoint(CheckpointEvent::Saved { key, .. }) = event {
            saved = Some(key.step);
        }
        told.push(event.clone());
    });
    let summary = timeout(LIMIT, finishing).await.context("the job hangs")??;
    Ok(Ended {
        summary,
        resumed,
        saved,
        told,
    })
}

/// The job's last state is that of the plain loop, each gradient was computed once but for those that were lost, and the last state is
/// kept.
fn demand(trial: &Trial, ended: &Ended) -> Result<()> {
    let (setup, summary) = (&trial.setup, &ended.summary);
    let reference = setup.reference()?;
    ensure!(
        summary.hash == reference.hash,
        "BITS-1: {summary:?}, expected {}",
        reference.hash
    );
    ensure!(summary.results == reference.results, "the results differ: {summary:?}");
    let whole = u64::from(setup.shards) * setup.steps;
    ensure!(summary.computed == whole + summary.recomputed, "{summary:?}");
    let kept = ended.saved.max(ended.resumed);
    ensure!(
        kept == Some(summary.step),
        "the last state is kept: {kept:?}, {:#?}",
        ended.told
    );
    Ok(())
}

/// A job with checkpoints, whose steps take longer and longer until what is left of it is resumed.
pub(crate) struct Job {
    pub(crate) trial: Trial,
    pub(crate) folder: PathBuf,
    pace: Option<Closed>,
}

impl Job {
    pub(crate) fn of(trial: Trial) -> Result<Self> {
        let folder = trial.folder().join("checkpoints");
        let pace = Some(Place::Pace.close(trial.folder())?);
        Ok(Self { trial, folder, pace })
    }

    pub(crate) async fn launch(&self, workers: u32, every: &str) -> Result<Launched> {
        Ok(launch(config(&self.trial, &self.folder, workers, every)?).await?)
    }

    /// It is launched again, and ends as it should. Returns how, and from which checkpoint it has resumed.
    pub(crate) async fn resumes(&mut self, workers: u32, every: &str) -> Result<Ended> {
        self.pace = None;
        let ended = finish(config(&self.trial, &self.folder, workers, every)?).await?;
        demand(&self.trial, &ended)?;
        Ok(ended)
    }

    /// The same, from this step or a later one.
    async fn resumes_at(&mut self, step: Step, workers: u32) -> Result<()> {
        let resumed = self.resumes(workers, "1").await?.resumed;
        ensure!(resumed >= Some(step), "{workers} workers: {resumed:?}, expected {step}");
        Ok(())
    }
}

#[tokio::test]
async fn a_job_that_loses_everything_resumes_with_any_number_of_workers() -> Result<()> {
    for workers in [1, 3, 8] {
        let mut job = Job::of(trial(setup(3))?)?;
        let mut launched = job.launch(3, "1").await?;
        let last = saved(&mut launched, 7).await?;
        // Its workers are killed, and nothing of it is left but the folder.
        drop(launched);
        job.resumes_at(last, workers).await?;
    }
    Ok(())
}

/// The experiment for users of checkpoint-and-restart: the chief is cut off at step 7.
#[tokio::test]
async fn the_chief_is_lost_at_step_seven_and_then_all_are() -> Result<()> {
    let mut job = Job::of(trial(setup(3))?)?;
    let mut launched = job.launch(3, "1").await?;
    let mut chief = None;
    // Survivors go on without waiting for it.
    let mut lost = false;
    loop {
        let event = next(&mut launched).await?;
        if let JobEvent::Generation(GenerationEvent::Forming { members, .. }) = &event {
            chief = chief.or(members.first().copied());
        }
        if let JobEvent::Checkpoint(CheckpointEvent::Saved { key, .. }) = &event
            && key.step.get() >= 7
            && !lost
        {
            let pid = chief.and_then(|chief| launched.pid(chief)).context("the chief runs")?;
            send(pid, Signal::KILL)?;
            lost = true;
        }
        let resumes = matches!(event, JobEvent::Checkpoint(CheckpointEvent::Resumes { .. }));
        ensure!(!resumes, "those who are left have the state");
        if let JobEvent::Generation(GenerationEvent::Resumed { step, .. }) = event
            && lost
            && step.get() > 7
        {
            break;
        }
    }
    // And if all are lost there, all go on from there.
    let last = saved(&mut launched, 8).await?;
    drop(launched);
    job.resumes_at(last, 3).await
}

#[tokio::test]
async fn a_job_that_is_stopped_keeps_its_last_state_and_goes_on_from_it() -> Result<()> {
    let mut job = Job::of(trial(setup(2))?)?;
    // No checkpoint is due for long.
    let launched = job.launch(2, "1000").await?;
    let mut kept = None;
    let finishing = launched.finish(|launched, event| match event {
        Event::Job(JobEvent::Steps(reports)) if reports.iter().any(|report| report.step.get() == 9) => {
            launched.steering().request_stop();
        }
        Event::Job(JobEvent::Checkpoint(CheckpointEvent::Saved { key, .. })) => kept = Some(key.step),
        Event::Job(_) | Event::Agent(_) => {}
    });
    let stopped = timeout(LIMIT, finishing).await.context("the job hangs")??;
    ensure!(
        stopped.step.get() >= 10 && stopped.step.get() < job.trial.setup.steps,
        "{stopped:?}"
    );
    ensure!(kept == Some(stopped.step), "{kept:?}, expected {}", stopped.step);
    let resumed = job.resumes(3, "1000").await?.resumed;
    ensure!(resumed == kept, "{resumed:?}, expected {kept:?}");
    Ok(())
}

#[tokio::test]
async fn where_the_last_workers_leave_no_step_is_lost() -> Result<()> {
    let mut job = Job::of(trial(setup(2))?)?;
    let launched = job.launch(2, "1000").await?;
    let (mut asked, mut kept, mut left) = (false, None, None);
    let finishing = launched.finish(|launched, event| match event {
        Event::Job(JobEvent::Steps(reports)) if !asked && reports.iter().any(|report| report.step.get() >= 9) => {
            asked = true;
            for rank in ["r0", "r1"] {
                let whom = rank.to_owned();
                launched.steering().request(OperatorRequest::Drain { whom });
            }
        }
        Event::Job(JobEvent::Checkpoint(CheckpointEvent::Saved { key, .. })) => kept = Some(key.step),
        Event::Job(JobEvent::Worker(WorkerEvent::Left { step, .. })) => left = left.max(Some(*step)),
        Event::Job(_) | Event::Agent(_) => {}
    });
    let ended = timeout(LIMIT, finishing).await.context("the job hangs")?;
    ensure!(ended.is_err(), "nobody is left to finish it: {ended:?}");
    ensure!(left.is_some() && kept == left, "kept {kept:?}, left at {left:?}");
    let resumed = job.resumes(1, "1000").await?.resumed;
    ensure!(resumed == kept, "{resumed:?}, expected {kept:?}");
    Ok(())
}

#[tokio::test]
async fn another_job_does_not_take_a_folder_for_its_own() -> Result<()> {
    let one = trial(setup(1))?;
    let folder = one.folder().join("checkpoints");
    demand(&one, &finish(config(&one, &folder, 1, "5")?).await?)?;
    // Another batch: the same steps would have other bits.
    let other = trial(Setup { batch: 16, ..setup(1) })?;
    let refused = finish(config(&other, &folder, 1, "5")?).await;
    let words = refused.err().context("it was refused")?.to_string();
    ensure!(words.contains("of another job"), "{words}");
    // And the folder is as it was.
    let again = finish(config(&one, &folder, 2, "5")?).await?;
    ensure!(again.resumed == Some(Step::new(one.setup.steps)), "{:?}", again.resumed);
    demand(&one, &again)
}

/// The coordinator, and the checkpoint actor in its process, end at this point. Workers train on, and the next one finds a whole
/// checkpoint, whatever was under way.
async fn dies_and_comes_back(point: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let checkpoints = format!("checkpoints={}", folder.path().join("kept").display());
    let mut site = Site::with(coordinated::setup(3), Some(format!("{point}@8")), &[&checkpoints]).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(3).await?;
    site.dead().await?;
    site.trains_on(2).await?;
    site.start_again(&[&checkpoints]).await?;
    site.until("adopted g1.1").await?;
    site.ends(pace, host).await?;
    let last = format!("saved {}", site.trial.setup.steps);
    ensure!(site.said(&last), "{:#?}", site.coordinator.said);
    ensure!(
        !site.said("resumes") && !site.said("state lost"),
        "{:#?}",
        site.coordinator.said
    );
    Ok(())
}

/// The same, and the workers end with it: all that is left is the folder.
async fn dies_with_all(point: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let checkpoints = format!("checkpoints={}", folder.path().join("kept").display());
    let mut site = Site::with(coordinated::setup(3), Some(format!("{point}@16")), &[&checkpoints]).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(3).await?;
    site.dead().await?;
    drop(host);
    let last = site.last_saved();
    drop(pace);
    std::fs::remove_dir_all(&site.state)?;
    site.start_again(&[&checkpoints]).await?;
    let host = site.host(2).await?;
    // On a busy machine the first checkpoint may be the one at which it died: then there may be none.
    if last > 0 || point.ends_with("committed") {
        site.resumes(last).await?;
    }
    site.done().await?;
    host.end().await;
    Ok(())
}

/// Where the coordinator's process ends, with the checkpoint actor in it.
pub(crate) const OF_COORDINATORS: &[&str] = &[
    "depot-put",
    "depot-sync",
    "depot-commit",
    "depot-committed",
    "coordinator-save",
    "coordinator-commit",
    "coordinator-committed",
];

/// Where a worker ends while it writes.
pub(crate) const OF_WRITERS: &[&str] = &["saving", "written", "snapshot", "snapshotted"];

/// Where a worker ends while all read.
pub(crate) const OF_READERS: &[&str] = &["restored-share", "lending"];

#[tokio::test]
async fn a_coordinator_that_dies_at_any_point_of_a_checkpoint_is_followed_by_one_that_finds_a_whole_one() -> Result<()> {
    crate::each(OF_COORDINATORS.iter().copied(), dies_and_comes_back).await
}

#[tokio::test]
async fn all_die_at_any_point_of_a_checkpoint_and_what_was_committed_is_resumed_from() -> Result<()> {
    crate::each(OF_COORDINATORS.iter().copied(), dies_with_all).await
}

/// A worker ends at each point of writing and reading: another holder writes, another generation reads.
#[tokio::test]
async fn a_worker_dies_at_any_point_of_a_checkpoint() -> Result<()> {
    crate::each(OF_WRITERS.iter().copied(), async |point| {
        let mut job = Job::of(trial(setup(3))?.faults([format!("{point}@8").as_str()]))?;
        let mut launched = job.launch(3, "1").await?;
        let last = saved(&mut launched, 12).await?;
        ensure!(job.trial.not_fired().is_empty(), "{:?}", job.trial.not_fired());
        drop(launched);
        job.resumes_at(last, 2).await
    })
    .await
}

#[tokio::test]
async fn a_worker_dies_while_all_load_a_checkpoint() -> Result<()> {
    let [restored, lending] = OF_READERS else {
        anyhow::bail!("expected two points, found {OF_READERS:?}");
    };
    // Workers that see the depot's disk need not lend.
    for (point, apart) in [(restored, false), (restored, true), (lending, true)] {
        let mut trial = trial(setup(3))?.faults([format!("{point}@1").as_str()]);
        if apart {
            trial.keep_apart();
        }
        let mut job = Job::of(trial)?;
        let mut launched = job.launch(3, "1").await?;
        let last = saved(&mut launched, 7).await?;
        drop(launched);
        job.resumes_at(last, 3).await.with_context(|| point.to_owned())?;
        ensure!(job.trial.not_fired().is_empty(), "{point}");
    }
    Ok(())
}
