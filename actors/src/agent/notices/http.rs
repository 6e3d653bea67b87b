//! One request to a metadata service: plain HTTP to one address, within a deadline, with a bounded answer.
//!
//! No proxy is used and no redirection followed: what comes from elsewhere is not of this machine.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::agent::limits::{METADATA_BYTES, METADATA_HEADERS};

/// Where a metadata service is. The default is the link-local address that all three clouds use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataAddress(String);

impl Default for MetadataAddress {
    fn default() -> Self {
        Self("169.254.169.254:80".to_owned())
    }
}

impl fmt::Display for MetadataAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

/// The address of a metadata service is none. Correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected http://HOST or http://HOST:PORT, found {found}")]
pub struct MetadataAddressError {
    found: String,
}

impl FromStr for MetadataAddress {
    type Err = MetadataAddressError;

    fn from_str(text: &str) -> Result<Self, MetadataAddressError> {
        let address = || {
            let uri = Uri::from_str(text).ok()?;
            let plain = uri.scheme_str() == Some("http") && uri.path() == "/" && uri.query().is_none();
            let authority = uri.authority().filter(|_| plain)?;
            // No user, and a port only if it is one.
            let port = match authority.as_str().strip_prefix(authority.host())? {
                "" => 80,
                _port => authority.port_u16()?,
            };
            Some(format!("{}:{port}", authority.host()))
        };
        address()
            .map(Self)
            .ok_or_else(|| MetadataAddressError { found: text.to_owned() })
    }
}

/// Why a look did not show what stands. Look again later.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookError {
    #[error("no connection to the metadata service: {0}")]
    Connect(#[source] std::io::Error),
    #[error("the metadata service did not answer within {0:?}")]
    TimedOut(Duration),
    #[error("the metadata service broke off its answer: {0}")]
    Broken(#[source] hyper::Error),
    #[error("the metadata service's answer has more than {METADATA_BYTES} bytes, or broke off")]
    Body,
    #[error("the metadata service answered {found} to {path}, expected {expected}")]
    Status {
        path: String,
        expected: &'static str,
        found: StatusCode,
    },
    #[error("the metadata service's answer to {path} is none: {why}")]
    Malformed { path: String, why: String },
    #[error("the answer to {path} lacks the header Metadata-Flavor: Google, so it is not GCE's")]
    Unsigned { path: String },
}

impl LookError {
    pub(super) fn status(path: &str, expected: &'static str, found: StatusCode) -> Self {
        Self::Status {
            path: path.to_owned(),
            expected,
            found,
        }
    }
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    /// The body as text, without white space around it.
    pub(super) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.body).ok().map(str::trim)
    }

    /// The value of a header, as text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A request.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    /// With its query.
    pub(super) path: &'a str,
    pub(super) header: (&'static str, &'a str),
    pub(super) body: Bytes,
    pub(super) deadline: Duration,
}

impl MetadataAddress {
    /// Asks once, over a connection of its own.
    pub(super) async fn ask(&self, ask: Ask<'_>) -> Result<Answer, LookError> {
        let deadline = ask.deadline;
        timeout(deadline, self.exchange(ask))
            .await
            .map_err(|_| LookError::TimedOut(deadline))?
    }

    async fn exchange(&self, ask: Ask<'_>) -> Result<Answer, LookError> {
        let request = self.request(&ask)?;
        let stream = TcpStream::connect(&self.0).await.map_err(LookError::Connect)?;
        let mut http = http1::Builder::new();
        http.max_buf_size(METADATA_BYTES).max_headers(METADATA_HEADERS);
        let (mut sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(LookError::Broken)?;
        let _carried = Carried(tokio::spawn(connection).abort_handle());
        let (head, body) = sender.send_request(request).await.map_err(LookError::Broken)?.into_parts();
        let body = Limited::new(body, METADATA_BYTES)
            .collect()
            .await
            .map_err(|_| LookError::Body)?;
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        })
    }

    fn request(&self, ask: &Ask<'_>) -> Result<Request<Full<Bytes>>, LookError> {
        let malformed = |error: &dyn fmt::Display| LookError::Malformed {
            path: ask.path.to_owned(),
            why: error.to_string(),
        };
        let (name, value) = ask.header;
        // A token came from outside.
        let value = HeaderValue::from_str(value).map_err(|error| malformed(&error))?;
        Request::builder()
            .method(&ask.method)
            .uri(ask.path)
            .header(HOST, &self.0)
            .header(name, value)
            .body(Full::new(ask.body.clone()))
            .map_err(|error| malformed(&error))
    }
}

/// The task that moves a connection's bytes; it ends with the request.
#[derive(Debug)]
struct Carried(AbortHandle);

impl Drop for Carried {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A GET.
pub(super) const fn get<'a>(path: &'a str, header: (&'static str, &'a str), deadline: Duration) -> Ask<'a> {
    Ask {
        method: Method::GET,
        path,
        header,
        body: Bytes::new(),
        deadline,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_are_taken() {
        let parsed = |text: &str| text.parse::<MetadataAddress>().map(|address| address.to_string()).ok();
        assert_eq!(parsed("http://127.0.0.1:81").as_deref(), Some("http://127.0.0.1:81"));
        assert_eq!(
            parsed("http://metadata.google.internal").as_deref(),
            Some("http://metadata.google.internal:80")
        );
        assert_eq!(
            parsed("http://[fd00:ec2::254]/").as_deref(),
            Some("http://[fd00:ec2::254]:80")
        );
        for wrong in [
            "",
            "127.0.0.1",
            "https://127.0.0.1",
            "http://",
            "http://a/b",
            "http://a?b",
            "http://a@b",
            "http://a:x",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        assert_eq!(MetadataAddress::default().to_string().parse(), Ok(MetadataAddress::default()));
    }
}
