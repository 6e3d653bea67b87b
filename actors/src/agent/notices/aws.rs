//! AWS: the instance metadata service of EC2, version 2.
//!
//! As documented in the EC2 User Guide, pages "How Instance Metadata Service Version 2 works", "Spot Instance interruption
//! notices" and "EC2 instance rebalance recommendations": a token is asked for with PUT, shown with each request, and holds for
//! at most six hours; a notice is a resource that is there, or 404.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use sardana_protocol::notices::{Notice, Probe, What};
use serde::Deserialize;
use tokio::time::Instant;

use super::http::{Answer, Ask, LookError, MetadataAddress, get};
use super::notice;
use super::words::{iso_time, word};
use crate::agent::limits::{PROBE_DEADLINE, TOKEN_MARGIN, TOKEN_TTL};

const TOKEN_PATH: &str = "/latest/api/token";
const TTL_HEADER: &str = "x-aws-ec2-metadata-token-ttl-seconds";
const TOKEN_HEADER: &str = "x-aws-ec2-metadata-token";
const ACTION: &str = "/latest/meta-data/spot/instance-action";
const REBALANCE: &str = "/latest/meta-data/events/recommendations/rebalance";

#[derive(Debug)]
pub(super) struct Aws {
    address: MetadataAddress,
    /// How long an answer may take.
    within: Duration,
    token: Option<Token>,
}

/// What requests are made with.
#[derive(Debug)]
struct Token {
    value: String,
    renew_at: Instant,
}

/// What `instance-action` says.
#[derive(Debug, Deserialize)]
struct Action {
    action: String,
    #[serde(default)]
    time: String,
}

impl Aws {
    pub(super) const fn new(address: MetadataAddress, within: Duration) -> Self {
        let token = None;
        Self { address, within, token }
    }

    /// Whether `address` gives tokens as AWS does.
    pub(super) async fn probe(address: &MetadataAddress) -> Probe {
        match ask_token(address, PROBE_DEADLINE).await {
            Ok(answer) if Token::of(&answer, Instant::now()).is_some() => Probe::Answers,
            Ok(answer) => super::busy(answer.status),
            Err(_) => Probe::Silent,
        }
    }

    pub(super) async fn look(&mut self) -> Result<Vec<Notice>, LookError> {
        let mut notices = Vec::new();
        if let Some(body) = self.get(ACTION).await? {
            notices.push(interruption(&body)?);
        }
        if self.get(REBALANCE).await?.is_some() {
            // Its time is that of the recommendation, not of anything to come.
            notices.push(notice("rebalance", What::Rebalance));
        }
        Ok(notices)
    }

    /// A resource; none if it is not there.
    async fn get(&mut self, path: &str) -> Result<Option<Bytes>, LookError> {
        let mut answer = self.get_once(path).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            // The token ran out before its time: the service was restarted, say.
            self.token = None;
            answer = self.get_once(path).await?;
        }
        match answer.status {
            StatusCode::OK => Ok(Some(answer.body)),
            StatusCode::NOT_FOUND => Ok(None),
            found => Err(LookError::status(path, "200 or 404", found)),
        }
    }

    async fn get_once(&mut self, path: &str) -> Result<Answer, LookError> {
        let token = self.token().await?;
        let ask = get(path, (TOKEN_HEADER, &token), self.within);
        self.address.ask(ask).await
    }

    async fn token(&mut self) -> Result<String, LookError> {
        let now = Instant::now();
        if let Some(token) = self.token.as_ref().filter(|token| now < token.renew_at) {
            return Ok(token.value.clone());
        }
        let answer = ask_token(&self.address, self.within).await?;
        let none = || LookError::status(TOKEN_PATH, "200 and a token", answer.status);
        let token = Token::of(&answer, now).ok_or_else(none)?;
        Ok(self.token.insert(token).value.clone())
    }
}

async fn ask_token(address: &MetadataAddress, deadline: Duration) -> Result<Answer, LookError> {
    let ttl = TOKEN_TTL.as_secs().to_string();
    let ask = Ask {
        method: Method::PUT,
        path: TOKEN_PATH,
        header: (TTL_HEADER, &ttl),
        body: Bytes::new(),
        deadline,
    };
    address.ask(ask).await
}

impl Token {
    /// None if the answer has none.
    fn of(answer: &Answer, now: Instant) -> Option<Self> {
        const LONGEST: usize = 4_096;
        let text = answer.text().filter(|_| answer.status == StatusCode::OK)?;
        let fits = !text.is_empty() && text.len() <= LONGEST && text.bytes().all(|byte| byte.is_ascii_graphic());
        let granted = answer.header(TTL_HEADER).and_then(|ttl| ttl.parse().ok());
        let ttl = granted.map_or(TOKEN_TTL, Duration::from_secs).min(TOKEN_TTL);
        fits.then(|| Self {
            value: text.to_owned(),
            renew_at: now + ttl.saturating_sub(TOKEN_MARGIN).max(ttl / 2),
        })
    }
}

pub(super) fn interruption(body: &Bytes) -> Result<Notice, LookError> {
    let action: Action = serde_json::from_slice(body).map_err(|error| LookError::Malformed {
        path: ACTION.to_owned(),
        why: error.to_string(),
    })?;
    let what = match action.action.as_str() {
        "terminate" => What::SpotTerminate,
        "stop" => What::SpotStop,
        "hibernate" => What::SpotHibernate,
        other => What::SpotOther(word(other)),
    };
    Ok(Notice {
        due: iso_time(&action.time),
        ..notice("instance-action", what)
    })
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderMap, HeaderValue};

    use super::*;

    fn granted(ttl: Option<&'static str>, token: &'static str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        if let Some(ttl) = ttl {
            headers.insert(TTL_HEADER, HeaderValue::from_static(ttl));
        }
        let answer = Answer {
            status: StatusCode::OK,
            headers,
            body: Bytes::from_static(token.as_bytes()),
        };
        let now = Instant::now();
        Token::of(&answer, now).map(|token| token.renew_at - now)
    }

    #[test]
    fn a_token_is_renewed_before_it_runs_out() {
        let seconds = Duration::from_secs;
        assert_eq!(granted(Some("21600"), "AQ=="), Some(seconds(21_000)));
        assert_eq!(granted(Some("60"), "AQ=="), Some(seconds(30)));
        assert_eq!(granted(Some("0"), "AQ=="), Some(seconds(0)), "used once");
        for odd in [None, Some("x"), Some("99999999999999999999")] {
            assert_eq!(granted(odd, "AQ=="), Some(seconds(21_000)), "{odd:?}");
        }
    }

    #[test]
    fn what_is_no_token_is_none() {
        for wrong in ["", " ", "<html> no", "a\nb"] {
            assert_eq!(granted(None, wrong), None, "{wrong}");
        }
    }
}
