//! What happened, for people: the job's events, who came and went, and how many datagrams were sent meanwhile.

use std::io::Write;
use std::time::Duration;

use sardana::{JobEvent, StepReport};

/// Whether a run tells what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// Nothing.
    No,
    /// All of it, on standard output.
    All,
}

/// The story of a run: told, and kept, so that two runs can be compared by it.
#[derive(Debug)]
pub(super) struct Story {
    telling: Telling,
    lines: Vec<String>,
}

impl Story {
    pub(super) const fn new(telling: Telling) -> Self {
        Self {
            telling,
            lines: Vec::new(),
        }
    }

    pub(super) fn tell(&mut self, at: Duration, datagrams: u64, what: &str) {
        let line = format!("{:9.3} s {datagrams:7} datagrams  {what}", at.as_secs_f64());
        if self.telling == Telling::All {
            // Whoever reads may be gone.
            let _ = writeln!(std::io::stdout().lock(), "{line}");
        }
        self.lines.push(line);
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines
    }
}

/// What the coordinator said, without the figures of each step.
pub(super) fn words(event: &JobEvent) -> String {
    match event {
        JobEvent::Steps(reports) => {
            let steps = |report: Option<&StepReport>| report.map_or(0, |report| report.step.get());
            format!("steps {} to {}", steps(reports.first()), steps(reports.last()))
        }
        JobEvent::Done(summary) => format!("done at {} with {}", summary.step, summary.hash),
        JobEvent::Joined { .. }
        | JobEvent::Adopted { .. }
        | JobEvent::Fenced { .. }
        | JobEvent::Lost { .. }
        | JobEvent::Leaving { .. }
        | JobEvent::Left { .. }
        | JobEvent::Snapshot { .. }
        | JobEvent::CaughtUp { .. }
        | JobEvent::CoolsDown { .. }
        | JobEvent::JoinsAnew { .. }
        | JobEvent::Held { .. }
        | JobEvent::Switched { .. }
        | JobEvent::Halting { .. }
        | JobEvent::Forming { .. }
        | JobEvent::Formed { .. }
        | JobEvent::Resumed { .. }
        | JobEvent::Waiting { .. }
        | JobEvent::StateLost { .. }
        | JobEvent::DepotCame { .. }
        | JobEvent::DepotLost { .. }
        | JobEvent::DepotRefused { .. }
        | JobEvent::Saved { .. }
        | JobEvent::NotSaved { .. }
        | JobEvent::Resumes { .. }
        | JobEvent::NotRecorded { .. }
        | JobEvent::RecordedAgain { .. }
        | JobEvent::NotRestored { .. }
        | JobEvent::Failed { .. } => format!("{event:?}"),
    }
}

/// What an event is called.
pub(super) const fn name(event: &JobEvent) -> &'static str {
    match event {
        JobEvent::Joined { .. } => "joined",
        JobEvent::Adopted { .. } => "adopted",
        JobEvent::Fenced { .. } => "fenced",
        JobEvent::Lost { .. } => "lost",
        JobEvent::Leaving { .. } => "leaving",
        JobEvent::Left { .. } => "left",
        JobEvent::Snapshot { .. } => "snapshot",
        JobEvent::CaughtUp { .. } => "caught up",
        JobEvent::CoolsDown { .. } => "cools down",
        JobEvent::JoinsAnew { .. } => "joins anew",
        JobEvent::Held { .. } => "held",
        JobEvent::Switched { .. } => "switched",
        JobEvent::Halting { .. } => "halting",
        JobEvent::Forming { .. } => "forming",
        JobEvent::Formed { .. } => "formed",
        JobEvent::Resumed { .. } => "resumed",
        JobEvent::Steps(_) => "steps",
        JobEvent::Waiting { .. } => "waiting",
        JobEvent::StateLost { .. } => "state lost",
        JobEvent::DepotCame { .. } => "depot came",
        JobEvent::DepotLost { .. } => "depot lost",
        JobEvent::DepotRefused { .. } => "depot refused",
        JobEvent::Saved { .. } => "saved",
        JobEvent::NotSaved { .. } => "not saved",
        JobEvent::Resumes { .. } => "resumes",
        JobEvent::NotRestored { .. } => "not restored",
        JobEvent::NotRecorded { .. } => "not recorded",
        JobEvent::RecordedAgain { .. } => "recorded again",
        JobEvent::Done(_) => "done",
        JobEvent::Failed { .. } => "failed",
    }
}
