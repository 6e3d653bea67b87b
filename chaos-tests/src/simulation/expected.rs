//! What a campaign must reach: transitions of the machines, messages, commands and events. The transitions were read off long campaigns;
//! what comes less often than once in some ten hours is counted, too, but not required.

use std::collections::BTreeSet;
use std::time::Duration;

use sardana_protocol::member::{Command, NetworkCommand};
use sardana_protocol::membership::{CheckpointEvent, GenerationEvent, JobEvent, WorkerEvent};
use sardana_protocol::messages::{CoordinatorMessage, DepotMessage, DepotOrder, WorkerMessage};
use strum::VariantNames;

use super::coverage::Reached;

/// After so much counted time all that is [`expected`] must have been reached.
pub const COVERED_WITHIN: Duration = Duration::from_secs(200 * 3_600);

/// What messages, commands and events of one kind are called.
struct Names {
    list: &'static str,
    all: &'static [&'static [&'static str]],
    never: &'static [&'static str],
}

impl Names {
    /// All of `all` but what is `never` said: that only wraps others; or it cannot happen in a simulated cluster, or only in one that violates
    /// something. Certificates are renewed by shells, which also tell of GPUs; models of numbers do not fail, and a failed job is a
    /// violation.
    const fn of(list: &'static str, all: &'static [&'static [&'static str]], never: &'static [&'static str]) -> Self {
        Self { list, all, never }
    }
}

const NAMES: [Names; 8] = [
    Names::of("coordinator says", &[CoordinatorMessage::VARIANTS], &["Renewed"]),
    Names::of("depot says", &[DepotMessage::VARIANTS], &["Renew"]),
    Names::of("depots are told", &[DepotOrder::VARIANTS], &["Commit", "Renewed", "JobOver"]),
    Names::of(
        "people are told",
        &[
            JobEvent::VARIANTS,
            WorkerEvent::VARIANTS,
            GenerationEvent::VARIANTS,
            CheckpointEvent::VARIANTS,
        ],
        &[
            "Worker",
            "Generation",
            "Checkpoint",
            "Fenced",
            "NotRecorded",
            "RecordedAgain",
            "Failed",
        ],
    ),
    Names::of("beside a gradient", &[&["one of its piece", "one of another piece"]], &[]),
    Names::of(
        "sums are made by",
        &[&["running sum", "one owner", "all owners", "all ranks"]],
        &[],
    ),
    Names::of(
        "worker does",
        &[Command::VARIANTS, NetworkCommand::VARIANTS],
        &["Network", "EndRestore"],
    ),
    Names::of(
        "worker says",
        &[WorkerMessage::VARIANTS],
        &["Renew", "Failed", "DeviceMemory", "GivenUp"],
    ),
];

/// What a campaign must reach: each transition of each part of the machines, each message, command and event.
#[must_use]
pub fn expected() -> BTreeSet<Reached> {
    let named = NAMES.iter().flat_map(|names| {
        let all = names.all.iter().copied().flatten().copied();
        let reached = all.filter(|name| !names.never.contains(name));
        reached.map(|name| (names.list, name, ""))
    });
    named.chain(TRANSITIONS.iter().copied()).collect()
}

const TRANSITIONS: &[Reached] = &[
    ("joining", "copying", "loading"),
    ("joining", "copying", "none"),
    ("joining", "following", "copying"),
    ("joining", "following", "held"),
    ("joining", "following", "none"),
    ("joining", "held", "following"),
    ("joining", "loading", "following"),
    ("joining", "loading", "none"),
    ("joining", "none", "copying"),
    ("joining", "none", "following"),
    ("membership", "forming", "gathering"),
    ("membership", "forming", "halting"),
    ("membership", "forming", "running"),
    ("membership", "forming", "starting"),
    ("membership", "gathering", "forming"),
    ("membership", "gathering", "halting"),
    ("membership", "gathering", "running"),
    ("membership", "halting", "forming"),
    ("membership", "halting", "gathering"),
    ("membership", "running", "done"),
    ("membership", "running", "gathering"),
    ("membership", "running", "halting"),
    ("membership", "running", "starting"),
    ("membership", "starting", "gathering"),
    ("membership", "starting", "halting"),
    ("membership", "starting", "running"),
    ("next seat", "linked", "linking"),
    ("next seat", "linked", "none"),
    ("next seat", "linking", "linked"),
    ("next seat", "linking", "none"),
    ("next seat", "none", "linked"),
    ("next seat", "none", "linking"),
    ("past", "found", "none"),
    ("past", "possible", "found"),
    ("past", "possible", "none"),
    ("plan", "none", "pausing"),
    ("plan", "none", "prepared"),
    ("plan", "ordered", "none"),
    ("plan", "ordered", "switching"),
    ("plan", "pausing", "none"),
    ("plan", "prepared", "none"),
    ("plan", "prepared", "ordered"),
    ("plan", "switching", "none"),
    ("plan", "switching", "pausing"),
    ("plan", "switching", "prepared"),
    ("saving", "committing", "none"),
    ("saving", "committing", "writing"),
    ("saving", "none", "writing"),
    ("saving", "writing", "committing"),
    ("saving", "writing", "none"),
    ("seat", "broken", "halting"),
    ("seat", "broken", "linked"),
    ("seat", "broken", "none"),
    ("seat", "catching up", "broken"),
    ("seat", "catching up", "halting"),
    ("seat", "catching up", "linked"),
    ("seat", "catching up", "linking"),
    ("seat", "catching up", "none"),
    ("seat", "halting", "none"),
    ("seat", "linked", "broken"),
    ("seat", "linked", "halting"),
    ("seat", "linked", "none"),
    ("seat", "linking", "broken"),
    ("seat", "linking", "linked"),
    ("seat", "linking", "none"),
    ("seat", "none", "catching up"),
    ("seat", "none", "halting"),
    ("seat", "none", "linked"),
    ("seat", "none", "linking"),
    ("snapshot", "asked", "collecting"),
    ("snapshot", "asked", "idle"),
    ("snapshot", "asked", "making room"),
    ("snapshot", "asked", "serving"),
    ("snapshot", "collecting", "idle"),
    ("snapshot", "collecting", "making room"),
    ("snapshot", "collecting", "serving"),
    ("snapshot", "idle", "making room"),
    ("snapshot", "making room", "asked"),
    ("snapshot", "making room", "collecting"),
    ("snapshot", "making room", "idle"),
    ("snapshot", "serving", "collecting"),
    ("snapshot", "serving", "idle"),
    ("snapshot", "serving", "making room"),
    ("update", "applying", "none"),
    ("update", "applying", "summed"),
    ("update", "fetched", "loading"),
    ("update", "loading", "none"),
    ("update", "none", "fetched"),
    ("update", "none", "summed"),
    ("update", "summed", "applying"),
];
