//! Metadata services of the three clouds, as far as notices go, on loopback: they answer what those document.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// As documented.
    Fine,
    /// With this status.
    Down(u16),
    /// Never.
    Silent,
    /// With text that means nothing.
    Garbage,
    /// With far too much.
    Huge,
    /// Right, but without its signature.
    Unsigned,
}

/// Which cloud it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Aws,
    Gce,
    Azure,
    /// Another service: it knows none of the paths.
    Other,
}

/// What it would tell.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) mood: Mood,
    /// AWS: resources that are there.
    pub(crate) resources: BTreeMap<&'static str, Value>,
    /// AWS: tokens that hold.
    pub(crate) tokens: Vec<String>,
    /// GCE: values, and their ETags.
    values: BTreeMap<&'static str, (String, u64)>,
    /// Azure.
    pub(crate) events: Vec<Value>,
    /// Azure: events that were approved.
    pub(crate) approved: Vec<String>,
    /// Azure: how many approvals go wrong before one is taken.
    pub(crate) refusals: u32,
    /// All requests, with their queries.
    pub(crate) asked: Vec<String>,
}

/// A service that runs, on a thread of its own.
#[derive(Debug)]
pub(crate) struct FakeCloud {
    address: SocketAddr,
    told: Arc<Mutex<Told>>,
    changed: watch::Sender<u64>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) const ACTION: &str = "/latest/meta-data/spot/instance-action";
pub(crate) const REBALANCE: &str = "/latest/meta-data/events/recommendations/rebalance";
pub(crate) const PREEMPTED: &str = "/computeMetadata/v1/instance/preempted";
pub(crate) const MAINTENANCE: &str = "/computeMetadata/v1/instance/maintenance-event";
/// What Azure calls this machine.
pub(crate) const NAME: &str = "trainer-3";

impl FakeCloud {
    pub(crate) fn start(kind: Kind) -> Self {
        let values = [(PREEMPTED, "FALSE"), (MAINTENANCE, "NONE")];
        let told = Arc::new(Mutex::new(Told {
            mood: Mood::Fine,
            resources: BTreeMap::new(),
            tokens: Vec::new(),
            values: values.map(|(key, value)| (key, (value.to_owned(), 1))).into(),
            events: Vec::new(),
            approved: Vec::new(),
            refusals: 0,
            asked: Vec::new(),
        }));
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let (changed, _) = watch::channel(0);
        let service = Service {
            kind,
            told: Arc::clone(&told),
            changed: changed.clone(),
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    _ = ended => {}
                    () = serve(TcpListener::from_std(listener).unwrap(), service) => {}
                }
            });
        });
        Self {
            address,
            told,
            changed,
            end: Some(end),
            thread: Some(thread),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes what it tells.
    pub(crate) fn set<T>(&self, change: impl FnOnce(&mut Told) -> T) -> T {
        let out = change(&mut lock(&self.told));
        self.changed.send_modify(|count| *count += 1);
        out
    }

    /// AWS: the machine is interrupted `after` so long.
    pub(crate) fn interrupt(&self, action: &str, after: Duration) {
        let body = json!({ "action": action, "time": iso(after) });
        self.set(|told| told.resources.insert(ACTION, body));
    }

    /// GCE: a value changes.
    pub(crate) fn value(&self, key: &'static str, value: &str) {
        self.set(|told| {
            let (old, etag) = told.values.get_mut(key).unwrap();
            value.clone_into(old);
            *etag += 1;
        });
    }

    /// Waits until what was asked is as `enough` wants it.
    pub(crate) async fn until(&self, enough: impl Fn(&Told) -> bool) {
        let mut changed = self.changed.subscribe();
        while !enough(&lock(&self.told)) {
            changed.changed().await.unwrap();
        }
    }
}

impl Drop for FakeCloud {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn later(after: Duration) -> OffsetDateTime {
    OffsetDateTime::from(SystemTime::now() + after)
}

/// So much later, as AWS writes it.
pub(crate) fn iso(after: Duration) -> String {
    let at = later(after);
    let (hour, minute, second) = at.to_hms();
    let month = u8::from(at.month());
    format!("{}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", at.year(), at.day())
}

/// So much later, as Azure writes it.
pub(crate) fn http_date(after: Duration) -> String {
    let at = later(after);
    let (hour, minute, second) = at.to_hms();
    let (weekday, month) = (at.weekday().to_string(), at.month().to_string());
    let (weekday, month) = (&weekday[..3], &month[..3]);
    format!(
        "{weekday}, {:02} {month} {} {hour:02}:{minute:02}:{second:02} GMT",
        at.day(),
        at.year()
    )
}

#[derive(Clone, Debug)]
struct Service {
    kind: Kind,
    told: Arc<Mutex<Told>>,
    changed: watch::Sender<u64>,
}

type Answer = Response<Full<Bytes>>;

async fn serve(listener: TcpListener, service: Service) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service = service.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request| async { Ok::<_, Infallible>(service.answer(request).await) });
            // The client may be gone.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

fn plain(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
}

fn ok(body: impl Into<Bytes>) -> Answer {
    plain(StatusCode::OK, body)
}

fn none(status: StatusCode) -> Answer {
    plain(status, "")
}

fn signed(mut answer: Answer, name: &'static str, value: &str) -> Answer {
    answer.headers_mut().insert(name, value.parse().unwrap());
    answer
}

impl Service {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let what = format!("{} {}", request.method(), request.uri());
        let mood = {
            let mut told = lock(&self.told);
            told.asked.push(what);
            told.mood
        };
        self.changed.send_modify(|count| *count += 1);
        match mood {
            Mood::Down(status) => return none(StatusCode::from_u16(status).unwrap()),
            Mood::Silent => std::future::pending().await,
            Mood::Fine | Mood::Garbage | Mood::Huge | Mood::Unsigned => {}
        }
        if request.headers().contains_key("x-forwarded-for") {
            return none(StatusCode::FORBIDDEN);
        }
        let answer = match self.kind {
            Kind::Aws => self.aws(&request),
            Kind::Gce => self.gce(&request).await,
            Kind::Azure => return self.azure(request).await,
            Kind::Other => none(StatusCode::NOT_FOUND),
        };
        match mood {
            // Tokens stay tokens.
            Mood::Garbage if request.method() == Method::GET => ok("{\"action\": 7"),
            Mood::Huge if request.method() == Method::GET => ok(vec![b' '; 1 << 20]),
            Mood::Fine | Mood::Garbage | Mood::Huge | Mood::Down(_) | Mood::Silent | Mood::Unsigned => answer,
        }
    }

    fn aws(&self, request: &Request<Incoming>) -> Answer {
        const TTL: &str = "x-aws-ec2-metadata-token-ttl-seconds";
        let mut told = lock(&self.told);
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let path = request.uri().path();
        if path == "/latest/api/token" {
            if request.method() != Method::PUT {
                return none(StatusCode::METHOD_NOT_ALLOWED);
            }
            let Some(ttl) = header(TTL).filter(|ttl| ttl.parse().is_ok_and(|ttl: u32| (1..=21_600).contains(&ttl))) else {
                return none(StatusCode::BAD_REQUEST);
            };
            let token = format!("AQAEA{}==", told.asked.len());
            told.tokens.push(token.clone());
            return signed(ok(token), TTL, ttl);
        }
        if request.method() != Method::GET {
            return none(StatusCode::METHOD_NOT_ALLOWED);
        }
        if !header("x-aws-ec2-metadata-token").is_some_and(|token| told.tokens.iter().any(|held| held == token)) {
            return none(StatusCode::UNAUTHORIZED);
        }
        match told.resources.get(path) {
            Some(body) => ok(body.to_string()),
            None => none(StatusCode::NOT_FOUND),
        }
    }

    async fn gce(&self, request: &Request<Incoming>) -> Answer {
        const FLAVOR: &str = "metadata-flavor";
        if request.headers().get(FLAVOR).is_none_or(|flavor| flavor != "Google") {
            return none(StatusCode::FORBIDDEN);
        }
        let query: BTreeMap<&str, &str> = request
            .uri()
            .query()
            .unwrap_or("")
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .collect();
        let seconds = query
            .get("timeout_sec")
            .and_then(|seconds| seconds.parse().ok())
            .unwrap_or(3_600);
        let waiting = async {
            let mut changed = self.changed.subscribe();
            while query.get("wait_for_change") == Some(&"true")
                && self.etag(request).as_deref() == query.get("last_etag").copied()
            {
                changed.changed().await.unwrap();
            }
        };
        // With its time over it tells what did not change.
        let _ = tokio::time::timeout(Duration::from_secs(seconds), waiting).await;
        let told = lock(&self.told);
        let answer = match told.values.get(request.uri().path()) {
            Some((value, etag)) => signed(ok(value.clone()), "etag", &format!("{etag:x}")),
            None => none(StatusCode::NOT_FOUND),
        };
        if told.mood == Mood::Unsigned {
            return answer;
        }
        signed(answer, FLAVOR, "Google")
    }

    fn etag(&self, request: &Request<Incoming>) -> Option<String> {
        let told = lock(&self.told);
        told.values.get(request.uri().path()).map(|(_, etag)| format!("{etag:x}"))
    }

    async fn azure(&self, request: Request<Incoming>) -> Answer {
        if request.headers().get("metadata").is_none_or(|value| value != "true") {
            return none(StatusCode::BAD_REQUEST);
        }
        let (head, body) = request.into_parts();
        let body = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        let mut told = lock(&self.told);
        let answer = match (head.method.as_str(), head.uri.path(), head.uri.query().unwrap_or("")) {
            ("GET", "/metadata/instance/compute/name", "api-version=2021-02-01&format=text") => return ok(NAME),
            ("GET", "/metadata/scheduledevents", "api-version=2020-07-01") => {
                ok(json!({ "DocumentIncarnation": told.asked.len(), "Events": told.events }).to_string())
            }
            ("POST", "/metadata/scheduledevents", "api-version=2020-07-01") => return told.approve(&body),
            ("GET" | "POST", _, _) => none(StatusCode::BAD_REQUEST),
            _ => none(StatusCode::METHOD_NOT_ALLOWED),
        };
        match told.mood {
            Mood::Garbage => ok("{\"Events\": 7"),
            Mood::Huge => ok(vec![b' '; 1 << 20]),
            Mood::Fine | Mood::Down(_) | Mood::Silent | Mood::Unsigned => answer,
        }
    }
}

impl Told {
    fn approve(&mut self, body: &[u8]) -> Answer {
        if self.refusals > 0 {
            self.refusals -= 1;
            return none(StatusCode::INTERNAL_SERVER_ERROR);
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let Some(id) = body["StartRequests"][0]["EventId"].as_str() else {
            return none(StatusCode::BAD_REQUEST);
        };
        if !self.events.iter().any(|event| event["EventId"] == id) {
            return none(StatusCode::BAD_REQUEST);
        }
        self.approved.push(id.to_owned());
        none(StatusCode::OK)
    }
}
