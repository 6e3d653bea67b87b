//! The coordinator's machine, one story per test: events in, commands out, both written in words.

mod endings;
mod generations;
mod losses;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::{Arrival, Command, Config, Event, JobEvent, Loss, Membership};
use crate::messages::{CatchUp, CoordinatorMessage, Form, Standing, StepReport, Tally, WorkerMessage};
use crate::state::StateHash;
use crate::words::{Generation, Incarnation, Step, WorkerId};

/// A coordinator and its clock.
struct Job {
    membership: Membership,
    now: Duration,
}

/// Two workers are expected, one is enough; four shards, ten steps.
fn config() -> Config {
    Config {
        min: 1,
        expected: 2,
        max: 8,
        shards: 4,
        steps: Step::new(10),
        order: crate::job::Order::Exact,
    }
}

fn w(worker: u64) -> WorkerId {
    WorkerId::new(worker)
}

fn g(count: u64) -> Generation {
    Generation::new(Incarnation::new(1), count)
}

fn s(step: u64) -> Step {
    Step::new(step)
}

/// The tally of a worker that has computed two shards a step, up to `step`.
fn tally(step: u64) -> Tally {
    Tally {
        total: step.saturating_mul(2),
        step: s(step),
        this_step: 0,
        previous_step: if step > 0 { 2 } else { 0 },
    }
}

fn standing(step: u64) -> Standing {
    Standing {
        step: s(step),
        kept: vec![],
        sum: s(step).previous(),
        stop_at: None,
        tally: tally(step),
    }
}

/// The hash of the state at `step`.
fn hash(step: u64) -> StateHash {
    StateHash::of(&step.to_le_bytes())
}

fn finished(count: u64, step: u64, hash: StateHash) -> WorkerMessage {
    WorkerMessage::Finished {
        generation: g(count),
        step: s(step),
        hash,
        results: vec![],
        tally: tally(step),
    }
}

impl Job {
    fn new(config: Config) -> Self {
        Self {
            membership: Membership::new(config, Incarnation::new(1), Duration::ZERO),
            now: Duration::ZERO,
        }
    }

    /// A job whose workers 1 to `workers` train in g1, at step 0.
    fn training(workers: u64, config: Config) -> Self {
        let mut job = Self::new(Config {
            expected: u32::try_from(workers).expect("a few"),
            ..config
        });
        for worker in 1..=workers {
            job.arrives(worker, 0);
        }
        for worker in 1..=workers {
            job.ready(worker, 1);
        }
        job
    }

    fn event(&mut self, event: Event) -> Vec<Command> {
        self.membership.handle(self.now, event)
    }

    fn arrives(&mut self, worker: u64, step: u64) -> Vec<String> {
        words(&self.arrival(worker, standing(step)))
    }

    fn arrival(&mut self, worker: u64, standing: Standing) -> Vec<Command> {
        self.event(Event::Arrived(Box::new(Arrival {
            worker: w(worker),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            capacity: 4,
            training: false,
            standing,
        })))
    }

    fn says(&mut self, worker: u64, message: WorkerMessage) -> Vec<String> {
        words(&self.event(Event::Said {
            worker: w(worker),
            message,
        }))
    }

    fn ready(&mut self, worker: u64, count: u64) -> Vec<String> {
        self.says(worker, WorkerMessage::Ready { generation: g(count) })
    }

    fn halted(&mut self, worker: u64, count: u64, step: u64) -> Vec<String> {
        let (generation, standing) = (g(count), standing(step));
        self.says(worker, WorkerMessage::Halted { generation, standing })
    }

    /// A worker says that it has applied the updates up to `step`, and reports these steps.
    fn progress(&mut self, worker: u64, count: u64, step: u64, reports: &[u64]) -> Vec<String> {
        let report = |&step| StepReport {
            step: s(step),
            samples: 16,
            sums: vec![],
        };
        let message = WorkerMessage::Progress {
            generation: g(count),
            step: s(step),
            tally: tally(step),
            reports: reports.iter().map(report).collect(),
        };
        self.says(worker, message)
    }

    fn link_broken(&mut self, worker: u64, count: u64, peer: u64) -> Vec<String> {
        let (generation, peer) = (g(count), w(peer));
        self.says(worker, WorkerMessage::LinkBroken { generation, peer })
    }

    /// Its agent saw it end at `step`.
    fn dies(&mut self, worker: u64, step: u64) -> Vec<String> {
        let cause = Loss::Exited {
            how: "signal 9".to_owned(),
            tally: Some(tally(step)),
        };
        self.loses(worker, cause)
    }

    fn is_cut_off(&mut self, worker: u64) -> Vec<String> {
        self.loses(worker, Loss::ConnectionLost { why: "reset".to_owned() })
    }

    fn loses(&mut self, worker: u64, cause: Loss) -> Vec<String> {
        words(&self.event(Event::Lost {
            worker: w(worker),
            cause,
        }))
    }

    fn passes(&mut self, time: Duration) -> Vec<String> {
        self.now += time;
        words(&self.event(Event::Tick))
    }
}

/// The forms among these commands, with the worker that each goes to.
fn forms(commands: &[Command]) -> Vec<(u64, Form)> {
    let form = |command: &Command| {
        let Command::Send {
            worker,
            message: CoordinatorMessage::Form(form),
        } = command
        else {
            return None;
        };
        Some((worker.get(), form.as_ref().clone()))
    };
    commands.iter().filter_map(form).collect()
}

/// Commands in words that are short enough to compare.
fn words(commands: &[Command]) -> Vec<String> {
    let words = |command: &Command| match command {
        Command::Send { worker, message } => format!("to w{}: {}", worker.get(), message_words(message)),
        Command::Tell(event) => event_words(event),
    };
    commands.iter().map(words).collect()
}

fn message_words(message: &CoordinatorMessage) -> String {
    match message {
        CoordinatorMessage::Halt { generation } => format!("halt {generation}"),
        CoordinatorMessage::Form(form) => {
            let catch_up = match form.catch_up {
                CatchUp::None => String::new(),
                CatchUp::Sum { from } => format!(", sum from {from}"),
                CatchUp::State { from } => format!(", state from {from}"),
            };
            format!("form {} {} at {}{catch_up}", form.generation, form.rank, form.step)
        }
        CoordinatorMessage::CloseWith { generation, trailer } => format!("close {generation} with {trailer:?}"),
        CoordinatorMessage::Complete { step, .. } => format!("complete {step}"),
        CoordinatorMessage::Dismiss { .. } => "dismiss".to_owned(),
    }
}

fn event_words(event: &JobEvent) -> String {
    match event {
        JobEvent::Joined { worker, step } => format!("joined w{} at {step}", worker.get()),
        JobEvent::Lost {
            worker, cause, stage, ..
        } => format!("lost w{} while {stage}: {cause}", worker.get()),
        JobEvent::Halting { generation } => format!("halting for {generation}"),
        JobEvent::Forming {
            generation,
            members,
            step,
            ..
        } => {
            let members: Vec<u64> = members.iter().map(|member| member.get()).collect();
            format!("forming {generation} of {members:?} at {step}")
        }
        JobEvent::Formed { generation, .. } => format!("formed {generation}"),
        JobEvent::Resumed { generation, step, .. } => format!("resumed {generation} with {step}"),
        JobEvent::Steps(reports) => {
            let steps: Vec<Step> = reports.iter().map(|report| report.step).collect();
            format!("steps {steps:?}")
        }
        JobEvent::Waiting { have, need } => format!("waiting: {have} here, needs {need}"),
        JobEvent::StateLost { reached, from } => format!("state lost: {reached} reached, again from {from}"),
        JobEvent::Done(summary) => format!("done at {} with {:?}", summary.step, summary.hash),
        JobEvent::Failed { reason } => format!("failed: {reason}"),
    }
}
