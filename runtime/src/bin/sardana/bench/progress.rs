//! What a bench is at, on a terminal; elsewhere nothing.

use std::borrow::Cow;
use std::time::Duration;

use indicatif::ProgressBar;

/// A line that says what is under way. It goes when this does.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new() -> Self {
        let spinner = ProgressBar::new_spinner();
        spinner.enable_steady_tick(Duration::from_millis(200));
        Self(spinner)
    }

    /// From now on it is this.
    pub(super) fn say(&self, what: impl Into<Cow<'static, str>>) {
        self.0.set_message(what);
    }

    /// Prints a line that stays.
    pub(super) fn print(&self, line: &str) {
        self.0.suspend(|| println!("{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
