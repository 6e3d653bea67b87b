//! Which workers an operator means: a worker's id or the start of it, a rank, a host, an address.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use sardana_protocol::status::WorkerView;
use sardana_protocol::words::{Rank, WorkerId};

use super::agents::Agents;
use super::words::plain;

/// Most workers that a refusal lists.
const LISTED: usize = 16;

/// Longest name that a refusal repeats.
const REPEATED: usize = 64;

/// The workers that `whom` means, at least one.
///
/// # Errors
/// In words for the operator: when it means no worker, or could mean two things. They list the workers there are.
pub(super) fn select(whom: &str, workers: &[WorkerView], agents: &Agents) -> Result<Vec<WorkerId>, String> {
    let whom = whom.trim();
    let by_kind = [
        ("a rank", by_rank(whom, workers)),
        ("a host", filter(workers, |view| agents.host(view.worker) == Some(whom))),
        ("an address", by_address(whom, workers, agents)),
        ("the start of an id", by_id(whom, workers)),
    ];
    let mut meant = by_kind.into_iter().filter(|(_, found)| !found.is_empty());
    let shown = plain(whom, REPEATED);
    match (meant.next(), meant.next()) {
        (None, _) => Err(format!(
            "expected a worker's id or the start of it, a rank (r2), a host or an address, found `{shown}`, which is none of this \
             job (`sardana status` shows who takes part); there are: {}",
            listed(workers, agents)
        )),
        (Some((kind, found)), None) if kind == "the start of an id" && found.len() > 1 => Err(format!(
            "`{shown}` begins the ids of {} workers: give more of it, or a rank; there are: {}",
            found.len(),
            listed(workers, agents)
        )),
        (Some((_, found)), None) => Ok(found),
        (Some((_, first)), Some((_, second))) if first == second => Ok(first),
        (Some((one, _)), Some((other, _))) => Err(format!(
            "`{shown}` is {one} and {other}: give a worker's whole id; there are: {}",
            listed(workers, agents)
        )),
    }
}

/// The one worker that `whom` means.
///
/// # Errors
/// Like [`select`], and when it means several.
pub(super) fn select_one(whom: &str, workers: &[WorkerView], agents: &Agents) -> Result<WorkerId, String> {
    match select(whom, workers, agents)?.as_slice() {
        [one] => Ok(*one),
        several => Err(format!(
            "expected one worker, found {} with `{}`: give a worker's id or a rank; there are: {}",
            several.len(),
            plain(whom, REPEATED),
            listed(workers, agents)
        )),
    }
}

fn filter(workers: &[WorkerView], is_meant: impl Fn(&WorkerView) -> bool) -> Vec<WorkerId> {
    workers.iter().filter(|view| is_meant(view)).map(|view| view.worker).collect()
}

fn by_rank(whom: &str, workers: &[WorkerView]) -> Vec<WorkerId> {
    let number = whom.strip_prefix('r').and_then(|digits| digits.parse().ok());
    number.map_or_else(Vec::new, |number| {
        filter(workers, |view| view.rank == Some(Rank::new(number)))
    })
}

fn by_address(whom: &str, workers: &[WorkerView], agents: &Agents) -> Vec<WorkerId> {
    if let Ok(address) = whom.parse::<SocketAddr>() {
        let children = agents.at(address);
        filter(workers, |view| view.address == address || children.contains(&view.worker))
    } else if let Ok(ip) = whom.parse::<IpAddr>() {
        filter(workers, |view| view.address.ip() == ip)
    } else {
        Vec::new()
    }
}

fn by_id(whom: &str, workers: &[WorkerView]) -> Vec<WorkerId> {
    let digits = whom.strip_prefix('w').unwrap_or(whom).to_ascii_lowercase();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Vec::new();
    }
    filter(workers, |view| format!("{:016x}", view.worker.get()).starts_with(&digits))
}

fn listed(workers: &[WorkerView], agents: &Agents) -> String {
    if workers.is_empty() {
        return "no workers yet".to_owned();
    }
    let mut list = String::new();
    for view in workers.iter().take(LISTED) {
        let separator = if list.is_empty() { "" } else { ", " };
        let rank = view.rank.map_or_else(|| "no rank".to_owned(), |rank| rank.to_string());
        let host = agents.host(view.worker).unwrap_or("no agent's host");
        // Writing to a text cannot fail.
        let _ = write!(list, "{separator}{} ({rank}, {}, {host})", view.worker, view.address);
    }
    if workers.len() > LISTED {
        let _ = write!(list, ", and {} more: see `sardana status`", workers.len() - LISTED);
    }
    list
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sardana_protocol::messages::AgentHello;
    use sardana_protocol::status::Doing;
    use sardana_protocol::words::{JobId, Step};

    use super::*;

    fn workers() -> Vec<WorkerView> {
        let ids = [0xab00_0000_0000_0001_u64, 0xab11_0000_0000_0002, 0xcafe_0000_0000_0003];
        let view = |(rank, id): (u32, u64)| WorkerView {
            worker: WorkerId::new(id),
            address: SocketAddr::from((
                [10, 0, 0, u8::try_from(rank / 2).unwrap()],
                5_000 + u16::try_from(rank).unwrap(),
            )),
            rank: Some(Rank::new(rank)),
            shards: None,
            pace: None,
            doing: Doing::Training,
            leaving: false,
            step: Step::ZERO,
            computed: 0,
            silent: Duration::ZERO,
        };
        (0..).zip(ids).map(view).collect()
    }

    fn agents() -> Agents {
        let mut agents = Agents::default();
        let views = workers();
        for (agent, host, children) in [(1, "alpha", &views[..2]), (2, "cafe", &views[2..])] {
            let hello = AgentHello {
                job: JobId::new([1; 16]),
                host: host.to_owned(),
                children: children.iter().map(|view| view.worker).collect(),
            };
            agents.came(
                agent,
                hello,
                SocketAddr::from(([10, 0, 0, 9], 6_000 + u16::try_from(agent).unwrap())),
            );
        }
        agents
    }

    /// The places of the workers that `whom` means.
    fn found(whom: &str) -> Result<Vec<usize>, String> {
        let workers = workers();
        let meant = select(whom, &workers, &agents())?;
        Ok(meant
            .into_iter()
            .map(|worker| workers.iter().position(|view| view.worker == worker).unwrap())
            .collect())
    }

    #[test]
    fn every_way_to_name_workers() {
        let cases: [(&str, &[usize]); 10] = [
            ("wab00000000000001", &[0]),
            ("ab00000000000001", &[0]),
            ("wab1", &[1]),
            ("AB1", &[1]),
            ("r2", &[2]),
            (" r0 ", &[0]),
            ("alpha", &[0, 1]),
            ("10.0.0.0", &[0, 1]),
            ("10.0.0.0:5001", &[1]),
            ("10.0.0.9:6001", &[0, 1]),
        ];
        for (whom, expected) in cases {
            assert_eq!(found(whom).as_deref(), Ok(expected), "{whom}");
        }
        assert_eq!(
            found("cafe"),
            Ok(vec![2]),
            "a host and the start of an id, but the same worker"
        );
    }

    #[test]
    fn what_means_nobody_or_too_much_is_refused_with_whom_there_is() {
        for (whom, words) in [
            ("r3", "expected a worker's id"),
            ("beta", "expected a worker's id"),
            ("", "expected a worker's id"),
            ("w", "expected a worker's id"),
            ("wd", "expected a worker's id"),
            ("ab", "begins the ids of 2 workers"),
            ("10.0.0.7", "expected a worker's id"),
        ] {
            let reason = found(whom).unwrap_err();
            assert!(reason.contains(words), "{whom}: {reason}");
            for listed in ["wab00000000000001", "r1", "10.0.0.1:5002", "alpha", "cafe"] {
                assert!(reason.contains(listed), "{whom}: {listed} is missing from {reason}");
            }
        }
        let reason = select("r0", &[], &Agents::default()).unwrap_err();
        assert!(reason.contains("no workers yet"), "{reason}");
        let reason = select_one("alpha", &workers(), &agents()).unwrap_err();
        assert!(reason.contains("expected one worker, found 2"), "{reason}");
    }
}
