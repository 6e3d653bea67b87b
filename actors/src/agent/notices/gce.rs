//! GCE: the metadata server of Compute Engine.
//!
//! As documented in the pages "View and query VM metadata", "Query metadata server for maintenance event notices" and "Spot
//! VMs": each request and each answer carries `Metadata-Flavor: Google`; a request may wait for a change of what the last ETag
//! stood for; now and then, for a moment, the answer is 503.

use std::time::Duration;

use hyper::StatusCode;
use sardana_protocol::notices::{Notice, Probe, What};

use super::http::{Answer, LookError, MetadataAddress, get};
use super::notice;
use super::words::word;
use crate::agent::limits::PROBE_DEADLINE;

const FLAVOR: &str = "metadata-flavor";
const GOOGLE: &str = "Google";
const PREEMPTED: &str = "/computeMetadata/v1/instance/preempted";
const MAINTENANCE: &str = "/computeMetadata/v1/instance/maintenance-event";

#[derive(Debug)]
pub(super) struct Gce {
    address: MetadataAddress,
    /// How long an answer may take, beyond the time that it waits for a change.
    within: Duration,
    preempted: Key,
    maintenance: Key,
}

/// One value that is watched.
#[derive(Debug)]
struct Key {
    path: &'static str,
    /// The last value, and what it is called; none before the first answer.
    last: Option<(String, String)>,
}

impl Gce {
    pub(super) const fn new(address: MetadataAddress, within: Duration) -> Self {
        Self {
            address,
            within,
            preempted: Key::new(PREEMPTED),
            maintenance: Key::new(MAINTENANCE),
        }
    }

    /// Whether `address` answers, and signs, as GCE does.
    pub(super) async fn probe(address: &MetadataAddress) -> Probe {
        match address.ask(get(PREEMPTED, (FLAVOR, GOOGLE), PROBE_DEADLINE)).await {
            Ok(answer) if is_signed(&answer) && answer.status == StatusCode::OK => Probe::Answers,
            Ok(answer) => super::busy(answer.status),
            Err(_) => Probe::Silent,
        }
    }

    /// Waits for a change of either value for as long as `hang`, once both are known.
    pub(super) async fn look(&mut self, hang: Duration) -> Result<Vec<Notice>, LookError> {
        let Self {
            address,
            within,
            preempted,
            maintenance,
        } = self;
        if preempted.last.is_none() || maintenance.last.is_none() {
            preempted.ask(address, *within, hang).await?;
            maintenance.ask(address, *within, hang).await?;
        } else {
            // A request that is given up is made again with the same ETag: no change is lost.
            tokio::select! {
                asked = preempted.ask(address, *within, hang) => asked?,
                asked = maintenance.ask(address, *within, hang) => asked?,
            }
        }
        Ok([
            preempted.value().and_then(preemption),
            maintenance.value().and_then(maintained),
        ]
        .into_iter()
        .flatten()
        .collect())
    }
}

impl Key {
    const fn new(path: &'static str) -> Self {
        Self { path, last: None }
    }

    fn value(&self) -> Option<&str> {
        self.last.as_ref().map(|(value, _)| value.as_str())
    }

    /// The value, if none is known; else waits for another one.
    async fn ask(&mut self, address: &MetadataAddress, within: Duration, hang: Duration) -> Result<(), LookError> {
        let path = self.path;
        let (path, deadline) = match &self.last {
            None => (path.to_owned(), within),
            Some((_, etag)) => {
                let seconds = hang.as_secs().max(1);
                let path = format!("{path}?wait_for_change=true&last_etag={etag}&timeout_sec={seconds}");
                (path, within + Duration::from_secs(seconds))
            }
        };
        let answer = address.ask(get(&path, (FLAVOR, GOOGLE), deadline)).await?;
        if answer.status != StatusCode::OK {
            return Err(LookError::status(&path, "200", answer.status));
        }
        if !is_signed(&answer) {
            return Err(LookError::Unsigned { path });
        }
        // With anything else it would be no part of a path.
        let etag = answer.header("etag").filter(|etag| is_plain(etag));
        let (Some(value), Some(etag)) = (answer.text(), etag) else {
            let why = "expected text and an ETag".to_owned();
            return Err(LookError::Malformed { path, why });
        };
        self.last = Some((value.to_owned(), etag.to_owned()));
        Ok(())
    }
}

fn is_plain(etag: &str) -> bool {
    (1..=128).contains(&etag.len())
        && etag
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
}

fn is_signed(answer: &Answer) -> bool {
    answer.header(FLAVOR) == Some(GOOGLE)
}

fn preemption(value: &str) -> Option<Notice> {
    (value == "TRUE").then(|| notice("preempted", What::Preempted))
}

pub(super) fn maintained(value: &str) -> Option<Notice> {
    let what = match value {
        "NONE" | "" => return None,
        "MIGRATE_ON_HOST_MAINTENANCE" => What::HostMigrate,
        // The second is an old name of the first.
        "TERMINATE_ON_HOST_MAINTENANCE" | "SHUTDOWN_ON_HOST_MAINTENANCE" => What::HostTerminate,
        other => What::HostOther(word(other)),
    };
    Some(notice("maintenance-event", what))
}
