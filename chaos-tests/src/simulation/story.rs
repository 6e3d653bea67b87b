//! What happened, event by event: told to people, or only summed up in one number that two equal runs share.

use std::io::Write;
use std::time::Duration;

use super::calendar::Happening;
use super::model::mix;

/// Whether a run tells what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// Nothing.
    No,
    /// Nothing, but all of it goes into the digest.
    Digest,
    /// Everything from this event on.
    From(u64),
}

/// The story of a run.
#[derive(Debug)]
pub(crate) struct Story {
    telling: Telling,
    pub(crate) events: u64,
    pub(crate) digest: u64,
}

impl Story {
    pub(crate) fn new(telling: Telling) -> Self {
        Self {
            telling,
            events: 0,
            digest: 0,
        }
    }

    /// Something is about to happen.
    pub(crate) fn hear(&mut self, now: Duration, what: &Happening) {
        self.events += 1;
        match self.telling {
            Telling::No => {}
            Telling::Digest => self.fold(now, &format!("{what:?}")),
            Telling::From(first) if self.events >= first && !is_routine(what) => {
                let line = format!("#{} {:.6} s {what:?}", self.events, now.as_secs_f64());
                self.say(&line);
            }
            Telling::From(_) => {}
        }
    }

    /// Something follows from it.
    pub(crate) fn tell(&mut self, now: Duration, what: impl FnOnce() -> String) {
        match self.telling {
            Telling::No => {}
            Telling::Digest => self.fold(now, &what()),
            Telling::From(first) if self.events + 1 >= first => {
                let line = format!("#{} {:.6} s   {}", self.events, now.as_secs_f64(), what());
                self.say(&line);
            }
            Telling::From(_) => {}
        }
    }

    /// Until the reader is gone.
    fn say(&mut self, line: &str) {
        if writeln!(std::io::stdout(), "{line}").is_err() {
            self.telling = Telling::No;
        }
    }

    fn fold(&mut self, now: Duration, text: &str) {
        let time = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        self.digest = text
            .bytes()
            .fold(mix(self.digest, time), |digest, byte| mix(digest, u64::from(byte)));
    }
}

/// What happens all the time and is left out of a story.
fn is_routine(what: &Happening) -> bool {
    matches!(
        what,
        Happening::Tick { .. } | Happening::Beat { .. } | Happening::Link { .. } | Happening::Transferred { .. }
    )
}
