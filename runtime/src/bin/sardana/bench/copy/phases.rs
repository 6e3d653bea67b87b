//! The three things that are measured, one after the other: a join, kills, and a restore. Must not know how it is told.

use std::path::Path;

use sardana::launch::{Event, LaunchConfig, OperatorRequest};
use sardana::{AgentEvent, CheckpointEvent, GenerationEvent, JobEvent, WorkerEvent, WorkerId};

use super::course::{Course, members_of};
use super::diary::{Diary, now};
use crate::bench::times::quantile;
use crate::ending::Failure;

/// Steps before each thing that is done to the job: what they take is what a step takes.
const STEADY: u64 = 50;

/// Steps before anything counts: after them every worker has trained.
const WARM_UP: u64 = 3;

/// Steps between a worker's part in training and the next kill.
const BETWEEN: u64 = 25;

/// Nanoseconds of a moment after a switch in which its cost shows.
const AFTERMATH: u64 = 1_000_000_000;

/// Seconds that each part of a worker's way into the job takes, one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Way {
    /// From the start of the process to its hello.
    pub(super) hello: f64,
    /// From the hello to a snapshot that is copied and hashed.
    pub(super) snapshot: f64,
    /// From the snapshot to the state, copied and compared.
    pub(super) copied: f64,
    /// From there until the model has loaded it, and it is compared once more, and no step is missing.
    pub(super) caught_up: f64,
    /// From there until it computes gradients.
    pub(super) takes_part: f64,
}

impl Way {
    /// What each part is called, and how long it takes.
    pub(super) fn parts(self) -> [(&'static str, f64); 5] {
        [
            ("process start to hello", self.hello),
            ("hello to snapshot", self.snapshot),
            (COPIED, self.copied),
            ("copied to loaded and caught up", self.caught_up),
            ("caught up to taking part", self.takes_part),
        ]
    }

    /// From the hello until all of the state is there.
    pub(super) fn to_copied(self) -> f64 {
        self.snapshot + self.copied
    }

    /// From the start of the process until it computes gradients.
    pub(super) fn whole(self) -> f64 {
        self.parts().into_iter().map(|(_, seconds)| seconds).sum()
    }
}

/// The part in which the state moves.
pub(super) const COPIED: &str = "snapshot to copied and compared";

/// Seconds, of one join.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Join {
    /// Steps before it: median, 99th percentile, longest.
    pub(super) before: [f64; 3],
    /// The median of steps with one more worker.
    pub(super) after: f64,
    pub(super) way: Way,
    /// The others' longest step while the process starts, while it copies and catches up, and from then on.
    pub(super) longest: [f64; 3],
    /// Seconds that all processes had of processors, from the request until the newcomer computes gradients.
    pub(super) processor: f64,
    /// What was out of the ordinary.
    pub(super) remarks: Vec<String>,
}

/// When what happened, in nanoseconds since 1970; 0 if it has not.
#[derive(Debug, Default)]
struct Moments {
    steady: u64,
    asked: u64,
    started: u64,
    joined: u64,
    snapshot: u64,
    caught_up: u64,
    switched: u64,
    newcomer: Option<(WorkerId, u32)>,
    remarks: Vec<String>,
}

impl Moments {
    fn see(&mut self, event: &Event) {
        let is_newcomer = |worker: &WorkerId| self.newcomer.is_some_and(|(newcomer, _)| newcomer == *worker);
        match event {
            Event::Agent(AgentEvent::Started { worker, pid }) => {
                self.newcomer = Some((*worker, *pid));
                self.started = now();
            }
            Event::Job(JobEvent::Worker(WorkerEvent::Joined { worker, .. })) if is_newcomer(worker) => self.joined = now(),
            Event::Job(JobEvent::Snapshot { .. }) if self.joined != 0 => self.snapshot = now(),
            Event::Job(JobEvent::Worker(WorkerEvent::CaughtUp { worker, .. })) if is_newcomer(worker) => {
                self.caught_up = now();
            }
            Event::Job(told)
                if self.switched == 0 && members_of(told).is_some_and(|members| members.iter().any(is_newcomer)) =>
            {
                self.takes_part(now());
            }
            Event::Job(
                told @ (JobEvent::Worker(
                    WorkerEvent::JoinsAnew { .. } | WorkerEvent::Held { .. } | WorkerEvent::Lost { .. },
                )
                | JobEvent::Generation(GenerationEvent::Halting { .. })),
            ) => self.remarks.push(format!("{told:?}")),
            Event::Job(_) | Event::Agent(_) => {}
        }
    }

    /// As a rule at a switch, and all else was before. Where a join takes too long the others are halted for it, and it has the state from them then.
    fn takes_part(&mut self, at: u64) {
        self.switched = at;
        for before in [&mut self.snapshot, &mut self.caught_up] {
            if *before == 0 {
                *before = at;
            }
        }
    }

    /// The way of the worker that was started.
    fn way(&self, folder: &Path) -> Result<Way, Failure> {
        // It has loaded a state since its probe: it takes part. This process may have heard of its hello later than it loaded.
        let load = Diary::read(folder, self.newcomer()?)
            .map_err(Failure::failed)?
            .last_load(self.started);
        let (there, _) = load.ok_or_else(|| Failure::Failed("the newcomer loaded no state".to_owned()))?;
        Ok(Way {
            hello: between(self.started, self.joined),
            snapshot: between(self.joined, self.snapshot),
            copied: between(self.snapshot, there),
            caught_up: between(there, self.caught_up),
            takes_part: between(self.caught_up, self.switched),
        })
    }

    fn newcomer(&self) -> Result<u32, Failure> {
        let started = self.newcomer.map(|(_, pid)| pid);
        started.ok_or_else(|| Failure::Failed("no worker was started".to_owned()))
    }

    fn join(self, folder: &Path, pids: &[u32]) -> Result<Join, Failure> {
        let newcomer = self.newcomer()?;
        let others = pids.iter().filter(|&&pid| pid != newcomer);
        let others: Vec<Diary> = others
            .map(|&pid| Diary::read(folder, pid).map_err(Failure::failed))
            .collect::<Result<_, _>>()?;
        let own = Diary::read(folder, newcomer).map_err(Failure::failed)?;
        let idle = || Failure::Failed("a worker did nothing after the newcomer took part".to_owned());
        let processors = others
            .iter()
            .chain([&own])
            .map(|diary| diary.processor(self.asked, self.switched));
        let steps = |from, to| -> Vec<f64> { others.iter().flat_map(|diary| diary.steps(from, to)).collect() };
        let longest = |from, to| steps(from, to).into_iter().fold(f64::NAN, f64::max);
        let mut before = steps(self.steady, self.asked);
        Ok(Join {
            before: [0.5, 0.99, 1.0].map(|share| quantile(&mut before, share)),
            after: quantile(&mut steps(self.switched, u64::MAX), 0.5),
            way: self.way(folder)?,
            longest: [
                longest(self.asked, self.joined),
                longest(self.joined, self.caught_up),
                longest(self.caught_up, self.switched + AFTERMATH),
            ],
            processor: processors.sum::<Option<f64>>().ok_or_else(idle)?,
            remarks: self.remarks,
        })
    }
}

/// Seconds. What is over before this process has seen it begin took next to nothing.
fn between(from: u64, to: u64) -> f64 {
    to.saturating_sub(from).max(1) as f64 / 1e9
}

/// One more worker than `workers` joins the job.
pub(super) async fn join(course: &mut Course, workers: u32, folder: &Path) -> Result<Join, Failure> {
    course.steps(WARM_UP, |_| {}).await?;
    let mut moments = Moments {
        steady: now(),
        ..Moments::default()
    };
    course.steps(STEADY, |_| {}).await?;
    moments.asked = now();
    let more = OperatorRequest::Scale { workers: workers + 1 };
    course.launched().steering().request(more);
    while moments.switched == 0 {
        moments.see(&course.next().await?);
    }
    course.steps(STEADY, |event| moments.see(event)).await?;
    moments.join(folder, &course.pids)
}

/// Seconds of several kills.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Kills {
    /// From SIGKILL to the others' next update.
    pub(super) resumed: Vec<f64>,
    /// From SIGKILL until another worker computes the shards of the one that was killed.
    pub(super) replaced: Vec<f64>,
    /// From SIGKILL to the start of that worker's process.
    pub(super) started: Vec<f64>,
    /// That worker's way from there on.
    pub(super) ways: Vec<Way>,
}

/// Kills members in turn, each once all of the `workers` take part.
pub(super) async fn kill(course: &mut Course, kills: usize, workers: u32, folder: &Path) -> Result<Kills, Failure> {
    let mut measured = Kills::default();
    course.steps(BETWEEN, |_| {}).await?;
    for kill in 0..kills {
        let victim = course.members.get(kill % workers as usize).copied();
        let victim = victim.ok_or_else(|| Failure::Failed("a worker ended by itself".to_owned()))?;
        let (killed, mut moments) = (now(), Moments::default());
        course.kill(victim)?;
        let mut resumed = None;
        while resumed.is_none() || moments.switched == 0 {
            let event = course.next().await?;
            if let Event::Job(JobEvent::Generation(GenerationEvent::Resumed { .. })) = event {
                resumed.get_or_insert_with(|| between(killed, now()));
            }
            moments.see(&event);
        }
        // All write down what they did before it is read.
        course.steps(BETWEEN, |event| moments.see(event)).await?;
        measured.resumed.extend(resumed);
        measured.replaced.push(between(killed, moments.switched));
        measured.started.push(between(killed, moments.started));
        measured.ways.push(moments.way(folder)?);
    }
    Ok(measured)
}

/// A save of the last state.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Save {
    /// Seconds from the request to stop to the last byte on the disk, attempts that were given up among them.
    pub(super) seconds: f64,
    /// What was out of the ordinary.
    pub(super) remarks: Vec<String>,
}

/// Ends the job, which saves its last state.
pub(super) async fn save(course: Course) -> Result<Save, Failure> {
    let (begin, mut saved, mut remarks) = (now(), None, Vec::new());
    course
        .stop(|event| match event {
            Event::Job(JobEvent::Checkpoint(CheckpointEvent::Saved { .. })) => saved = Some(now()),
            Event::Job(JobEvent::Checkpoint(
                trouble @ (CheckpointEvent::NotSaved { .. } | CheckpointEvent::DepotRefused { .. }),
            )) => remarks.push(trouble.to_string()),
            Event::Job(_) | Event::Agent(_) => {}
        })
        .await?;
    let lost = || Failure::Failed(format!("the last state was not saved: {}", remarks.join("; ")));
    let seconds = saved.ok_or_else(lost)?.saturating_sub(begin).max(1) as f64 / 1e9;
    Ok(Save { seconds, remarks })
}

/// A checkpoint that is read by all workers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Restore {
    /// Seconds from its choice until each worker has all bytes of it, and has compared them.
    pub(super) seconds: f64,
    /// Seconds that their processes had of processors, from their start until they have loaded it.
    pub(super) processor: f64,
}

/// Starts the job again, which resumes from its checkpoint.
pub(super) async fn restore(config: LaunchConfig, folder: &Path) -> Result<Restore, Failure> {
    let mut course = Course::begin(config).await?;
    let mut chosen = None;
    loop {
        match course.next().await? {
            Event::Job(JobEvent::Checkpoint(CheckpointEvent::Resumes { .. })) => chosen = Some(now()),
            Event::Job(JobEvent::Steps(_)) => break,
            Event::Job(_) | Event::Agent(_) => {}
        }
    }
    let anew = || Failure::Failed("the job began anew, although there is a checkpoint".to_owned());
    let chosen = chosen.ok_or_else(anew)?;
    let (mut there, mut processor) = (0, 0.0);
    for &pid in &course.pids {
        let diary = Diary::read(folder, pid).map_err(Failure::failed)?;
        let (loads, loaded) = diary
            .last_load(chosen)
            .ok_or_else(|| Failure::Failed("a worker loaded no state".to_owned()))?;
        there = there.max(loads);
        processor += diary.processor(0, loaded).unwrap_or_default();
    }
    // Its workers end with it.
    drop(course);
    Ok(Restore {
        seconds: between(chosen, there),
        processor,
    })
}
