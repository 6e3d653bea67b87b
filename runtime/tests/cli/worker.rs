//! The worker program of these tests: this very test program, asked to run the one test that becomes a worker.

use std::time::Duration;

use sardana::model::ModelError;
use sardana::worker::serve_if_started_by_agent;
use sardana::{Job, JobSpec};

#[path = "../mistakes/slope.rs"]
#[expect(dead_code, reason = "shared with other tests")]
pub(crate) mod slope;

use slope::Slope;

/// As long as a small model takes: a step of nothing would leave joiners no time to follow.
const PAUSE: Duration = Duration::from_micros(500);

/// A job that does not end by itself.
pub(crate) fn job() -> Job {
    let builder = Job::builder("endless").seed(7).shards(4).data(64, 16);
    builder.steps(1 << 40).build().unwrap()
}

pub(crate) fn build(spec: &JobSpec) -> Result<Slope, ModelError> {
    Ok(Slope {
        pause: PAUSE,
        ..Slope::new(spec)?
    })
}

/// Not a test: a worker, if an agent started it, or `SARDANA_JOIN` names a join file.
#[test]
fn becomes_a_worker() {
    if std::env::var_os(sardana_actors::agent::BUNDLE_VARIABLE).is_some() {
        println!("a worker is here");
    }
    serve_if_started_by_agent(&job(), build);
}
