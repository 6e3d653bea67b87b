//! Announced leaves: what an agent does about the notices that its machine's cloud gives.
//!
//! ```text
//!                 a notice calls the workers away
//!     here ───────────────────────────────────────▶ leaving
//!      ▲                                               │ the last has left
//!      │      nothing has stood for a while            ▼
//!      └────────────────────────────────────────────  away
//!                        (also from leaving)
//! ```
//!
//! Workers leave at once, not as late as may be safe: a leave at a boundary loses no work, whenever it is, and a notice that
//! turns out to be withdrawn costs no more than their way back. Only what is announced for far later waits
//! ([`NOTICE_HORIZON`]).
//!
//! Must not know how a cloud is asked: what it announces comes as [`Notice`]s, all that stand, each time.

mod detect;
mod event;
mod notice;
mod policy;
#[cfg(test)]
mod tests;
mod utc;

use std::collections::BTreeMap;

pub use detect::{DETECTION_ORDER, Detected, Probe, detect};
pub use event::{Command, Heed, Observation, Said};
pub use notice::{Approval, Cloud, Notice, Progress, Weight, What};
pub use policy::{Heeded, Pace, Policy};
pub use utc::UtcTime;

use crate::limits::{BLIND_AFTER, MAX_NOTICES, NOTICE_HORIZON, NOTICE_LEAST, NOTICE_MARGIN, NOTICE_STALE};

/// The machine: what stands, and where the workers are.
#[derive(Debug)]
pub struct Notices {
    policy: Policy,
    standing: BTreeMap<String, Standing>,
    workers: Workers,
    /// Looks that failed, in a row.
    failures: u32,
    /// Since when nothing calls the workers away, while they are.
    clear_since: Option<UtcTime>,
}

#[derive(Debug)]
struct Standing {
    notice: Notice,
    since: UtcTime,
    /// What was said of it last.
    heed: Heed,
    approved: bool,
}

/// Where this host's workers are, as far as notices go.
#[derive(Debug, PartialEq, Eq)]
enum Workers {
    Here,
    /// By when, if that is known, and for what.
    Leaving {
        by: Option<UtcTime>,
        what: String,
    },
    Away {
        what: String,
    },
}

impl Notices {
    /// Nothing is known, and the workers are here.
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            standing: BTreeMap::new(),
            workers: Workers::Here,
            failures: 0,
            clear_since: None,
        }
    }

    /// Something was observed at `now`. Each look is answered with one [`Command::Look`], which is last.
    pub fn handle(&mut self, now: UtcTime, observation: Observation) -> Vec<Command> {
        let mut commands = Vec::new();
        match observation {
            Observation::Seen(notices) => {
                if std::mem::take(&mut self.failures) >= BLIND_AFTER {
                    commands.push(Command::Say(Said::Sees));
                }
                self.note(now, notices, &mut commands);
                self.call_away(now, &mut commands);
                self.call_back(now, &mut commands);
                self.approve(&mut commands);
                commands.push(self.next_look(now));
            }
            Observation::Failed { why } => {
                self.failures = self.failures.saturating_add(1);
                if self.failures == BLIND_AFTER {
                    commands.push(Command::Say(Said::Blind { why }));
                }
                // What was far may be near by now. That nothing stands any more must be seen.
                self.weigh(now, &mut commands);
                self.call_away(now, &mut commands);
                let pace = &self.policy.pace;
                commands.push(Command::Look {
                    after: pace.back_off(self.failures),
                    hang: pace.hang,
                });
            }
            Observation::Drained => {
                if let Workers::Leaving { what, .. } = &mut self.workers {
                    let what = std::mem::take(what);
                    self.workers = Workers::Away { what };
                    self.approve(&mut commands);
                }
            }
            Observation::Unapproved { id, why } => {
                if let Some(standing) = self.standing.get_mut(&id) {
                    standing.approved = false;
                }
                commands.push(Command::Say(Said::Unapproved { why }));
            }
        }
        commands
    }

    /// Takes over what stands now, and says what is new, has changed, or is gone.
    fn note(&mut self, now: UtcTime, mut notices: Vec<Notice>, commands: &mut Vec<Command>) {
        notices.truncate(MAX_NOTICES);
        let mut gone = std::mem::take(&mut self.standing);
        for notice in notices {
            // Two under one name are one, else each look would bring news.
            if self.standing.contains_key(&notice.id) {
                continue;
            }
            let old = gone.remove(&notice.id);
            let changed = old.as_ref().is_none_or(|old| old.notice != notice);
            // What has begun is not approved any more, and a new word under an old name may be.
            let approved = old.as_ref().is_some_and(|old| old.approved);
            let since = old.as_ref().map_or(now, |old| old.since);
            let heed = self.policy.heed(&notice, now);
            if changed {
                let words = notice.words(since, now);
                commands.push(Command::Say(Said::Heard { words, heed }));
            }
            let standing = Standing {
                // Said above, unless it only came nearer.
                heed: old.filter(|_| !changed).map_or(heed, |old| old.heed),
                notice,
                since,
                approved,
            };
            self.standing.insert(standing.notice.id.clone(), standing);
        }
        for old in gone.into_values() {
            let what = old.notice.what.to_string();
            commands.push(Command::Say(Said::Gone { what }));
        }
        self.weigh(now, commands);
    }

    /// Says of what stands what has changed by the passing of time alone.
    fn weigh(&mut self, now: UtcTime, commands: &mut Vec<Command>) {
        let policy = &self.policy;
        for standing in self.standing.values_mut() {
            let heed = policy.heed(&standing.notice, now);
            if heed != standing.heed {
                standing.heed = heed;
                let words = standing.notice.words(standing.since, now);
                commands.push(Command::Say(Said::Heard { words, heed }));
            }
        }
    }

    /// Lets the workers leave if something that stands wants it: for the notice that leaves the least time.
    fn call_away(&mut self, now: UtcTime, commands: &mut Vec<Command>) {
        let heeded = || self.standing.values().filter(|standing| standing.heed == Heed::Drains);
        // What has begun, or is past, sets no time by which to be gone.
        let deadline = |standing: &Standing| standing.notice.deadline(standing.since).filter(|deadline| *deadline > now);
        let timed = heeded().filter_map(|standing| Some((deadline(standing)?, standing)));
        let (by, first) = match timed.min_by_key(|(deadline, _)| *deadline) {
            Some((deadline, first)) => (Some(deadline), first),
            None => match heeded().next() {
                Some(first) => (None, first),
                None => return,
            },
        };
        self.clear_since = None;
        let hastens = match &self.workers {
            Workers::Here => true,
            Workers::Leaving { by: old, .. } => by.is_some_and(|by| old.is_none_or(|old| by < old)),
            Workers::Away { .. } => false,
        };
        if !hastens {
            return;
        }
        let left = by.map(|by| by.since(now));
        commands.push(Command::Drain {
            reason: first.notice.words(first.since, now),
            within: left.map(|left| left.saturating_sub(NOTICE_MARGIN).max(NOTICE_LEAST)),
        });
        self.workers = Workers::Leaving {
            by,
            what: first.notice.what.to_string(),
        };
    }

    /// Lets the workers come back once nothing has called them away for a while.
    fn call_back(&mut self, now: UtcTime, commands: &mut Vec<Command>) {
        if self.standing.values().any(|standing| standing.heed == Heed::Drains) {
            return;
        }
        let what = match &mut self.workers {
            Workers::Here => return,
            Workers::Leaving { what, .. } | Workers::Away { what } => what,
        };
        let since = *self.clear_since.get_or_insert(now);
        if now.since(since) >= self.policy.pace.withdrawn_after {
            let reason = format!("withdrawn or over: {}", std::mem::take(what));
            commands.push(Command::Return { reason });
            self.workers = Workers::Here;
            self.clear_since = None;
        }
    }

    /// Tells the cloud that the time it gives is not needed.
    fn approve(&mut self, commands: &mut Vec<Command>) {
        if !matches!(self.workers, Workers::Away { .. }) {
            return;
        }
        for standing in self.standing.values_mut() {
            let wanted = standing.notice.approval == Approval::Wanted && standing.notice.progress == Progress::Announced;
            if wanted && standing.heed == Heed::Drains && !standing.approved {
                standing.approved = true;
                let id = standing.notice.id.clone();
                let what = standing.notice.what.to_string();
                commands.push(Command::Approve { id, what });
            }
        }
    }

    fn next_look(&self, now: UtcTime) -> Command {
        let Pace {
            look_every,
            hang,
            withdrawn_after,
            ..
        } = self.policy.pace;
        let left = self.clear_since.map(|since| withdrawn_after.saturating_sub(now.since(since)));
        Command::Look {
            after: look_every,
            // Soon it is to be seen whether still nothing stands.
            hang: left.map_or(hang, |left| left.min(hang)),
        }
    }
}

/// Whether the moment of a notice is far, near or long past.
fn timely(due: Option<UtcTime>, now: UtcTime) -> Heed {
    match due {
        Some(due) if due > now.after(NOTICE_HORIZON) => Heed::Later,
        Some(due) if now.since(due) > NOTICE_STALE => Heed::Stale,
        Some(_) | None => Heed::Drains,
    }
}
