//! What is logged, and how.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How a log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Human,
    /// One JSON object per line.
    Json,
}

/// What sled says is no news: it takes every new catalogue for one that has lost its configuration.
const QUIET: &str = "sled::config=error";

/// From now on the log goes to standard error. `RUST_LOG` says what is in it, or else `level`.
pub(crate) fn start(format: LogFormat, level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    // A user who names it, or wants nothing at all, has what they want.
    let named = std::env::var(EnvFilter::DEFAULT_ENV).is_ok_and(|wanted| wanted.contains("sled") || wanted == "off");
    let quiet = QUIET.parse().ok().filter(|_| !named);
    let filter = quiet.into_iter().fold(filter, EnvFilter::add_directive);
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Nothing can be said where standard error is full, and it is no reason to panic.
        .log_internal_errors(false);
    match format {
        LogFormat::Human => log.with_ansi(ansi()).init(),
        LogFormat::Json => log.json().init(),
    }
}

fn ansi() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}
