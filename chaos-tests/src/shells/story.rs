//! What happened, for people: the job's events, which workers came and went, and how many datagrams were sent meanwhile.

use std::io::Write;
use std::time::Duration;

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
            // The reader may be gone.
            let _ = writeln!(std::io::stdout().lock(), "{line}");
        }
        self.lines.push(line);
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines
    }
}
