//! What a worker says unasked: that it lives, what its steps summed up to, and that it is done.

use std::collections::VecDeque;

use super::Member;
use super::command::Command;
use super::event::Heartbeat;
use crate::limits::{MAX_KEPT_REPORTS, MAX_REPORTS};
use crate::messages::{CatchUp, StepReport, WorkerMessage};
use crate::state::StateHash;
use crate::words::{Rank, Step};

/// Where a job ends, as far as a worker knows, and what it found there.
#[derive(Debug, Clone, Default)]
pub(super) struct Ending {
    /// Where a trailer has told the job to stop.
    pub(super) stop_at: Option<Step>,
    /// The step that the trainer was asked to conclude.
    pub(super) concluding: Option<Step>,
    /// What it found there: the final state's hash, and the evaluation.
    pub(super) concluded: Option<(StateHash, Vec<(String, f64)>)>,
}

/// What steps summed up to, for the coordinator.
#[derive(Debug, Clone, Default)]
pub(super) struct Reports {
    /// Of the last steps, oldest first.
    kept: VecDeque<StepReport>,
    /// The first step whose report the coordinator lacks.
    pub(super) from: Step,
}

impl Member {
    /// Keeps the report of an applied step until a coordinator has it, up to a bound.
    pub(super) fn keep_report(&mut self, report: StepReport) {
        self.reports.kept.push_back(report);
        if self.reports.kept.len() > MAX_KEPT_REPORTS {
            self.reports.kept.pop_front();
        }
    }

    /// What a state summed up to from `step` on is not what led to the one that was loaded in its place.
    pub(super) fn forget_reports_from(&mut self, step: Step) {
        self.reports.kept.retain(|report| report.step < step);
    }

    pub(super) fn concluded(&mut self, hash: StateHash, results: Vec<(String, f64)>, out: &mut Vec<Command>) {
        if self.ending.concluding == Some(self.step) {
            self.ending.concluded = Some((hash, results));
            self.finished(out);
        }
    }

    /// Says that this worker is done, if it is and has a seat to say it from.
    pub(super) fn finished(&mut self, out: &mut Vec<Command>) {
        let (Some(seat), Some((hash, results))) = (&self.seat, &self.ending.concluded) else {
            return;
        };
        // What was the end may be none any more: the others of this generation are further, or the coordinator knows of no stop.
        if seat.catching_up != CatchUp::None || !self.is_over() {
            return;
        }
        let finished = WorkerMessage::Finished {
            generation: seat.form.generation,
            step: self.step,
            hash: *hash,
            results: results.clone(),
            tally: self.tally,
        };
        self.beat(Heartbeat::NotDue, out);
        out.push(Command::Send(finished));
    }

    pub(super) fn leave(&mut self, reason: String, out: &mut Vec<Command>) {
        out.push(Command::Send(WorkerMessage::Leave { reason: reason.clone() }));
        self.leaving = Some(reason);
    }

    pub(super) fn beat(&mut self, heartbeat: Heartbeat, out: &mut Vec<Command>) {
        // Said again: the coordinator may be another one by now.
        if let (Heartbeat::Due(_), Some(reason)) = (heartbeat, &self.leaving) {
            out.push(Command::Send(WorkerMessage::Leave { reason: reason.clone() }));
        }
        if let Heartbeat::Due(_) = heartbeat {
            self.say_caught_up(out);
        }
        if let (Heartbeat::Due(_), Some(seat)) = (heartbeat, &self.seat) {
            seat.say_broken(out);
            self.say_unrestored(out);
        }
        let chief = self.seat.as_ref().is_some_and(|seat| seat.form.rank == Rank::ZERO);
        let (mut due, mut pace) = match heartbeat {
            Heartbeat::Due(pace) => (true, pace),
            Heartbeat::NotDue => (false, None),
        };
        loop {
            let reports = if chief { self.take_reports() } else { Vec::new() };
            if reports.is_empty() && !due {
                return;
            }
            due = false;
            let (generation, step, tally, moved) = (self.promise.generation, self.step, self.tally, self.moved);
            out.push(Command::Send(WorkerMessage::Progress {
                generation,
                step,
                tally,
                moved,
                pace: pace.take(),
                reports,
            }));
        }
    }

    /// The next reports that the coordinator lacks.
    fn take_reports(&mut self) -> Vec<StepReport> {
        // In the order of their steps, as those are forgotten that another state takes the place of.
        let known = self.reports.kept.partition_point(|report| report.step < self.reports.from);
        let news: Vec<StepReport> = self.reports.kept.range(known..).take(MAX_REPORTS).cloned().collect();
        if let Some(last) = news.last() {
            self.reports.from = last.step.next();
        }
        news
    }
}
