//! What a person sees: a progress bar with lines above it, or only lines where there is no terminal.

use std::cell::{Cell, RefCell};

use console::{Term, style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sardana::operator::count;
use sardana_examples::showing::speed;

/// Without a terminal, progress is a line every so many steps.
const LINE_EVERY: u64 = 100;

/// How far a run is.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) step: u64,
    pub(crate) epoch: u64,
    pub(crate) loss: f64,
    /// In the last seconds.
    pub(crate) samples_per_second: f64,
    pub(crate) generation: String,
    pub(crate) world_size: usize,
}

/// The screen.
#[derive(Debug)]
pub(crate) struct Screen {
    steps: u64,
    terminal: bool,
    bar: RefCell<Option<ProgressBar>>,
    next_line: Cell<u64>,
}

impl Screen {
    pub(crate) fn new(steps: u64) -> Self {
        Self {
            steps,
            terminal: Term::stdout().is_term(),
            bar: RefCell::new(None),
            next_line: Cell::new(LINE_EVERY),
        }
    }

    /// Begins a run.
    pub(crate) fn start(&self, title: &str) {
        self.line("");
        self.line(&style(title).bold().to_string());
        self.next_line.set(LINE_EVERY);
        if self.terminal {
            let bar = ProgressBar::with_draw_target(Some(self.steps), ProgressDrawTarget::stdout());
            let form = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}").expect("the template is valid");
            bar.set_style(form);
            *self.bar.borrow_mut() = Some(bar);
        }
    }

    /// Ends a run.
    pub(crate) fn end(&self) {
        if let Some(bar) = self.bar.borrow_mut().take() {
            // Not as if all steps were done: it may have been lost before.
            bar.abandon();
        }
    }

    /// Shows a line.
    pub(crate) fn line(&self, line: &str) {
        match &*self.bar.borrow() {
            Some(bar) => bar.println(line),
            None => println!("{line}"),
        }
    }

    /// Shows how far the run is.
    pub(crate) fn progress(&self, progress: &Progress) {
        let Progress {
            step,
            epoch,
            loss,
            samples_per_second,
            generation,
            world_size,
        } = progress;
        let workers = count(*world_size, "worker");
        let speed = speed(*samples_per_second);
        let words = format!("epoch {epoch}  loss {loss:.4}{speed}  {generation}  {workers}");
        if let Some(bar) = &*self.bar.borrow() {
            bar.set_position(*step);
            bar.set_message(words);
        } else if *step >= self.next_line.get() {
            self.next_line.set((step / LINE_EVERY + 1) * LINE_EVERY);
            self.line(&format!("step {step:>4} of {}  {words}", self.steps));
        }
    }

    pub(crate) fn good(&self, verdict: &str) {
        self.line(&style(verdict).green().bold().to_string());
    }

    pub(crate) fn bad(&self, verdict: &str) {
        self.line(&style(verdict).red().bold().to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An act whose job is lost at step 7 of 40 is not shown as one that has done all of it.
    #[test]
    fn the_bar_of_an_act_that_ends_early_stays_where_it_was() {
        let bar = ProgressBar::with_draw_target(Some(40), ProgressDrawTarget::hidden());
        let screen = Screen {
            steps: 40,
            terminal: true,
            bar: RefCell::new(Some(bar.clone())),
            next_line: Cell::new(LINE_EVERY),
        };
        screen.progress(&Progress {
            step: 7,
            epoch: 0,
            loss: 0.5,
            samples_per_second: 1.0,
            generation: "g1.1".to_owned(),
            world_size: 2,
        });
        screen.end();
        assert!(bar.is_finished(), "it is drawn no more");
        assert_eq!(bar.position(), 7);
        assert_eq!(bar.length(), Some(40));
    }
}
