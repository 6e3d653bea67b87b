//! What agents say of the ends of workers, and how far it is believed. An agent speaks with certainty of children that were certified for it
//! in this life of the coordinator, and of workers on its own host, which it could as well end. Of any other worker, whose agent only an
//! earlier life knew, its word counts once nothing is heard of that worker any more, and is forgotten once the worker shows that it lives.

use std::collections::BTreeMap;
use std::time::Duration;

use sardana_net::log::refused;
use sardana_protocol::limits::HEARTBEAT;
use sardana_protocol::messages::Tally;
use sardana_protocol::words::WorkerId;
use tokio::time::Instant;

use super::actor::State;

/// After so long without a word a worker that is said to have ended has: it speaks three times in this time if it lives.
const SILENT: Duration = HEARTBEAT.saturating_mul(3);

/// A worker that still speaks after this long lives.
const LIVES: Duration = HEARTBEAT.saturating_mul(10);

/// How certain it is that a worker has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Certainty {
    /// Its own agent has seen it.
    Certain,
    /// Some agent says so.
    Said,
}

/// A worker has ended, an agent says.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub(super) agent: u64,
    pub(super) how: String,
    pub(super) tally: Option<Tally>,
    pub(super) restarting: bool,
}

/// What is said of workers that are connected.
#[derive(Debug, Default)]
pub(super) struct Hearsay(BTreeMap<WorkerId, Said>);

#[derive(Debug)]
struct Said {
    report: Report,
    since: Instant,
    /// When the worker last spoke.
    heard: Instant,
}

/// What has become of what was said.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The worker is silent.
    Ended(WorkerId, Report),
    /// It speaks.
    Lives(WorkerId, Report),
}

impl Hearsay {
    /// An agent says that `worker` has ended.
    pub(super) fn hear(&mut self, worker: WorkerId, report: Report, now: Instant) {
        let (since, heard) = (now, now);
        self.0.entry(worker).or_insert(Said { report, since, heard });
    }

    /// The worker speaks.
    pub(super) fn speaks(&mut self, worker: WorkerId, now: Instant) {
        if let Some(said) = self.0.get_mut(&worker) {
            said.heard = now;
        }
    }

    /// What is clear by now. `is_gone`: whether a worker is not connected any more.
    pub(super) fn settle(&mut self, now: Instant, is_gone: impl Fn(WorkerId) -> bool) -> Vec<Outcome> {
        let ended = |worker: WorkerId, said: &Said| is_gone(worker) || now.duration_since(said.heard) >= SILENT;
        let clear = |worker: WorkerId, said: &Said| ended(worker, said) || now.duration_since(said.since) >= LIVES;
        let all: Vec<WorkerId> = self
            .0
            .iter()
            .filter(|(worker, said)| clear(**worker, said))
            .map(|(one, _)| *one)
            .collect();
        let settled = all.into_iter().filter_map(|worker| {
            let said = self.0.remove(&worker)?;
            Some(if ended(worker, &said) {
                Outcome::Ended(worker, said.report)
            } else {
                Outcome::Lives(worker, said.report)
            })
        });
        settled.collect()
    }
}

impl State {
    /// An agent says that a worker has ended.
    pub(super) fn child_exited(&mut self, worker: WorkerId, report: Report) {
        let agent = report.agent;
        if !self.certifying.may_report(agent, worker) {
            refused!(agent = %format_args!("{agent:016x}"), %worker, "an agent reports the end of another one's child");
            return;
        }
        let there = self
            .workers
            .get(&worker)
            .map(|connected| connected.outlet.connection.remote_address().ip());
        let own_host = self.agents.get(&agent).map(|outlet| outlet.connection.remote_address().ip());
        let certain = self.certifying.is_child(agent, worker) || (there.is_some() && there == own_host);
        match (certain, there) {
            (true, _) => self.has_exited(worker, report, Certainty::Certain),
            (false, None) => self.has_exited(worker, report, Certainty::Said),
            (false, Some(_)) => self.hearsay.hear(worker, report, Instant::now()),
        }
    }

    /// Believes what agents say of workers that are silent by now, and nothing of those that speak.
    pub(super) fn settle_hearsay(&mut self) {
        let workers = &self.workers;
        let is_gone = |worker| {
            workers
                .get(&worker)
                .is_none_or(|connected| connected.outlet.connection.close_reason().is_some())
        };
        for outcome in self.hearsay.settle(Instant::now(), is_gone) {
            match outcome {
                Outcome::Ended(worker, report) => self.has_exited(worker, report, Certainty::Said),
                Outcome::Lives(worker, report) => {
                    let agent = report.agent;
                    refused!(agent = %format_args!("{agent:016x}"), %worker, "an agent reports the end of a worker that lives");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: WorkerId = WorkerId::new(5);

    fn said(now: Instant) -> Hearsay {
        let mut hearsay = Hearsay::default();
        let how = "signal 9".to_owned();
        hearsay.hear(
            WORKER,
            Report {
                agent: 1,
                how,
                tally: None,
                restarting: true,
            },
            now,
        );
        hearsay
    }

    #[test]
    fn a_worker_that_is_silent_or_not_connected_any_more_has_ended() {
        let now = Instant::now();
        let mut hearsay = said(now);
        assert!(
            hearsay.settle(now + HEARTBEAT, |_| false).is_empty(),
            "it may be about to speak"
        );
        let settled = hearsay.settle(now + SILENT, |_| false);
        assert!(
            matches!(&settled[..], [Outcome::Ended(WORKER, report)] if report.agent == 1),
            "{settled:?}"
        );
        assert!(hearsay.settle(now + LIVES, |_| true).is_empty(), "once");
        let settled = said(now).settle(now, |worker| worker == WORKER);
        assert!(matches!(&settled[..], [Outcome::Ended(WORKER, _)]), "{settled:?}");
    }

    #[test]
    fn a_worker_that_speaks_lives_whatever_is_said_of_it() {
        let now = Instant::now();
        let mut hearsay = said(now);
        let mut at = now;
        while at < now + LIVES {
            assert!(hearsay.settle(at, |_| false).is_empty());
            at += HEARTBEAT;
            hearsay.speaks(WORKER, at);
        }
        let settled = hearsay.settle(at, |_| false);
        assert!(matches!(&settled[..], [Outcome::Lives(WORKER, _)]), "{settled:?}");
    }
}
