//! Azure: scheduled events, a part of its instance metadata service.
//!
//! As documented in the pages "Azure Metadata Service: Scheduled Events for Linux VMs" and "Azure Instance Metadata Service":
//! each request carries `Metadata: true`; the first request about events may take two minutes; events are about all machines of a
//! group; an event that is approved may come before its time, on every machine that it names. So an event that names other machines is
//! not approved: they may need the time.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use sardana_protocol::limits::MAX_NOTICES;
use sardana_protocol::notices::{Approval, Notice, Probe, Progress, What};
use serde::Deserialize;

use super::http::{Answer, Ask, LookError, MetadataAddress, get};
use super::words::{http_time, word};
use crate::agent::limits::{FIRST_EVENTS_DEADLINE, PROBE_DEADLINE};

const METADATA: (&str, &str) = ("metadata", "true");
const NAME: &str = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
const EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";

#[derive(Debug)]
pub(super) struct Azure {
    address: MetadataAddress,
    /// How long an answer may take.
    within: Duration,
    /// What the cloud calls this machine; none before it was asked.
    name: Option<String>,
    /// How long the next answer about events may take.
    deadline: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    event_id: String,
    event_type: String,
    resources: Vec<String>,
    event_status: String,
    #[serde(default)]
    not_before: Option<String>,
    #[serde(default)]
    duration_in_seconds: Option<i64>,
}

impl Azure {
    pub(super) const fn new(address: MetadataAddress, within: Duration) -> Self {
        Self {
            address,
            within,
            name: None,
            deadline: FIRST_EVENTS_DEADLINE,
        }
    }

    /// Whether `address` names this machine, as Azure does.
    pub(super) async fn probe(address: &MetadataAddress) -> Probe {
        match address.ask(get(NAME, METADATA, PROBE_DEADLINE)).await {
            Ok(answer) if name(&answer).is_some() => Probe::Answers,
            Ok(answer) => super::busy(answer.status),
            Err(_) => Probe::Silent,
        }
    }

    pub(super) async fn look(&mut self) -> Result<Vec<Notice>, LookError> {
        let name = match &self.name {
            Some(name) => name,
            None => {
                let answer = self.address.ask(get(NAME, METADATA, self.within)).await?;
                let name = name(&answer).ok_or_else(|| LookError::status(NAME, "200 and a name", answer.status))?;
                self.name.insert(name)
            }
        };
        let answer = self.address.ask(get(EVENTS, METADATA, self.deadline)).await?;
        if answer.status != StatusCode::OK {
            return Err(LookError::status(EVENTS, "200", answer.status));
        }
        let notices = document(&answer.body, name)?;
        self.deadline = self.within;
        Ok(notices)
    }

    /// Lets an event begin before its time.
    pub(super) async fn approve(&self, id: &str) -> Result<(), LookError> {
        let requests = serde_json::json!({ "StartRequests": [{ "EventId": id }] });
        let ask = Ask {
            method: Method::POST,
            path: EVENTS,
            header: METADATA,
            body: Bytes::from(requests.to_string()),
            deadline: self.within,
        };
        match self.address.ask(ask).await?.status {
            StatusCode::OK => Ok(()),
            found => Err(LookError::status(EVENTS, "200", found)),
        }
    }
}

/// What is announced of the machine called `name`.
pub(super) fn document(body: &[u8], name: &str) -> Result<Vec<Notice>, LookError> {
    let document: Document = serde_json::from_slice(body).map_err(|error| LookError::Malformed {
        path: EVENTS.to_owned(),
        why: error.to_string(),
    })?;
    let mine = document.events.into_iter().filter(|event| event.names(name));
    Ok(mine.take(MAX_NOTICES).map(Event::notice).collect())
}

fn name(answer: &Answer) -> Option<String> {
    const LONGEST: usize = 256;
    let fits = |name: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=LONGEST).contains(&name.len()) && name.bytes().all(plain)
    };
    let text = answer.text().filter(|_| answer.status == StatusCode::OK);
    text.filter(fits).map(str::to_owned)
}

impl Event {
    fn names(&self, machine: &str) -> bool {
        self.resources.iter().any(|resource| resource.eq_ignore_ascii_case(machine))
    }

    fn notice(self) -> Notice {
        // -1 stands for a time that is not known.
        let pause = self.duration_in_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let what = match self.event_type.as_str() {
            "Preempt" => What::Preempt,
            "Terminate" => What::Terminate,
            "Reboot" => What::Reboot,
            "Redeploy" => What::Redeploy,
            "Freeze" => What::Freeze(pause.map(Duration::from_secs)),
            other => What::EventOther(word(other)),
        };
        Notice {
            id: self.event_id,
            what,
            due: self.not_before.as_deref().and_then(http_time),
            progress: match self.event_status.as_str() {
                "Started" => Progress::Started,
                _scheduled => Progress::Announced,
            },
            approval: match self.resources.len() {
                1 => Approval::Wanted,
                _several => Approval::None,
            },
        }
    }
}
