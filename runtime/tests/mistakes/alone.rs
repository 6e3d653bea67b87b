//! The same mistakes in `local`: threads that wait for each other must all end.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use sardana::local::{self, LocalError};
use sardana::model::ModelError;
use sardana::{JobSpec, TrainingError};

use super::loopback::PATIENCE;
use super::slope::{Fault, Slope, job};

/// Trains on three threads, unless that hangs.
fn train(build: impl Fn(&JobSpec) -> Result<Slope, ModelError> + Sync + Send + 'static) -> LocalError {
    let (ended, outcome) = channel();
    thread::spawn(move || {
        // The test may have failed already.
        let _ = ended.send(local::train(job(3).spec(), 3, build));
    });
    outcome.recv_timeout(PATIENCE).expect("training ends").unwrap_err()
}

#[test]
fn one_model_of_several_that_cannot_be_built_ends_all() {
    for last in 0..3 {
        let built = AtomicU32::new(0);
        let error = train(move |spec| match built.fetch_add(1, Ordering::Relaxed) {
            turn if turn == last => Err("out of memory".into()),
            _ => Slope::new(spec),
        });
        assert!(matches!(error, LocalError::Training(TrainingError::Build(_))), "{error}");
        let built = AtomicU32::new(0);
        let error = train(move |spec| match built.fetch_add(1, Ordering::Relaxed) {
            turn if turn == last => panic!("this panic is part of a test"),
            _ => Slope::new(spec),
        });
        assert!(matches!(error, LocalError::Panicked), "{error}");
    }
}

#[test]
fn a_model_that_fails_in_the_middle_ends_all() {
    let cases = [
        (Fault::GradientFails, "the disk is gone"),
        (Fault::GradientPanics, "panicked"),
        (Fault::GradientUnwritten, "at s2"),
        (Fault::SamplesMiscounted, "DATA-1"),
        (Fault::ApplyFails, "no memory"),
        (Fault::EvaluateFails, "no test data"),
    ];
    for (fault, words) in cases {
        let error = train(Slope::faulty(fault)).to_string();
        assert!(error.contains(words), "{fault:?}: {error}");
    }
}

#[test]
fn no_threads_train_nothing() {
    let error = local::train(job(1).spec(), 0, Slope::new).unwrap_err();
    assert!(matches!(error, LocalError::NoWorkers), "{error}");
}
