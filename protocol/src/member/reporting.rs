//! What a worker says unasked: that it lives, what its steps summed up to, and that it is done.

use super::Member;
use super::command::Command;
use super::event::Heartbeat;
use crate::limits::{MAX_KEPT_REPORTS, MAX_REPORTS};
use crate::messages::{CatchUp, StepReport, WorkerMessage};
use crate::state::StateHash;
use crate::words::Rank;

impl Member {
    /// Keeps the report of an applied step until a coordinator has it, up to a bound.
    pub(super) fn keep_report(&mut self, report: StepReport) {
        self.reports.push_back(report);
        if self.reports.len() > MAX_KEPT_REPORTS {
            self.reports.pop_front();
        }
    }

    pub(super) fn concluded(&mut self, hash: StateHash, results: Vec<(String, f64)>, out: &mut Vec<Command>) {
        if self.concluding == Some(self.step) {
            self.concluded = Some((hash, results));
            self.finished(out);
        }
    }

    /// Says that this worker is done, if it is and has a seat to say it from.
    pub(super) fn finished(&mut self, out: &mut Vec<Command>) {
        let (Some(seat), Some((hash, results))) = (&self.seat, &self.concluded) else {
            return;
        };
        // The others of this generation are further: what was the end no longer is.
        if seat.catching_up != CatchUp::None {
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
            let (generation, step, tally, moved) = (self.promised, self.step, self.tally, self.moved);
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
        // In the order of their steps, as a worker's steps only grow.
        let known = self.reports.partition_point(|report| report.step < self.report_from);
        let news: Vec<StepReport> = self.reports.range(known..).take(MAX_REPORTS).cloned().collect();
        if let Some(last) = news.last() {
            self.report_from = last.step.next();
        }
        news
    }
}
