//! What is logged of processes that are turned away, of those that stand still, and of those that share GPUs.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// What operators of a log filter for.
const TARGETS: [&str; 4] = [
    "sardana::event::refused",
    "sardana::event::scarce",
    "sardana::event::motion",
    "sardana::event::sharing",
];

/// Nothing in these tests takes long; whatever has not been logged by then never will.
const PATIENCE: Duration = Duration::from_secs(20);

/// The lines of one test: its coordinator lives on the thread of the test.
pub(crate) struct Log {
    lines: Arc<Lines>,
    _until: DefaultGuard,
}

#[derive(Default)]
struct Lines {
    said: Mutex<Vec<String>>,
    more: Notify,
}

impl Log {
    pub(crate) fn new() -> Self {
        let lines = Arc::new(Lines::default());
        let subscriber = tracing_subscriber::registry().with(Keeps(Arc::clone(&lines)));
        Self {
            lines,
            _until: tracing::subscriber::set_default(subscriber),
        }
    }

    /// Waits for a refusal with all these words, and takes it out.
    pub(crate) async fn refused(&self, words: &[&str]) {
        self.says(words).await;
    }

    /// Waits for a line with all these words, and takes it out.
    pub(crate) async fn says(&self, words: &[&str]) {
        let waiting = async {
            while !self.take(words) {
                self.lines.more.notified().await;
            }
        };
        if timeout(PATIENCE, waiting).await.is_err() {
            panic!("{words:?} is missing from {:#?}", self.lines.said.lock().unwrap());
        }
    }

    fn take(&self, words: &[&str]) -> bool {
        let mut said = self.lines.said.lock().unwrap();
        let found = said.iter().position(|line| words.iter().all(|word| line.contains(word)));
        found.map(|found| said.remove(found)).is_some()
    }

    /// That no other process was turned away.
    pub(crate) fn nothing_more(&self) {
        let said = self.lines.said.lock().unwrap();
        assert!(said.is_empty(), "{said:#?}");
    }
}

/// Keeps what is said, each as one line that ends with the spans that it was said in.
struct Keeps(Arc<Lines>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Keeps {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut line = Line(format!("in {} ", attributes.metadata().name()));
        attributes.record(&mut line);
        context.span(id).expect("it is new").extensions_mut().insert(line);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if TARGETS.contains(&event.metadata().target()) {
            let mut line = Line(String::new());
            event.record(&mut line);
            for span in context.event_scope(event).into_iter().flatten() {
                line.0.push_str(&span.extensions().get::<Line>().expect("each has one").0);
            }
            self.0.said.lock().unwrap().push(line.0);
            self.0.more.notify_one();
        }
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}
