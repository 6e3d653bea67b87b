//! Models that fail: before they join, no other worker notices; afterwards the job ends for all, with the model's own words.

use sardana::model::ModelError;
use sardana::worker::{EXIT_GIVE_UP, ProcessError};
use sardana_actors::worker::WorkerError;

use super::site::Site;
use super::slope::{Fault, Slope, job};

#[test]
fn a_model_that_cannot_be_built_joins_nothing() {
    let mut site = Site::new(1);
    let broken = |_: &sardana::JobSpec| -> Result<Slope, ModelError> { Err("weights.bin: no such file".into()) };
    site.worker(1, job(1), broken).gives_up(&["could not be built: weights.bin"]);
    let panics = |_: &sardana::JobSpec| -> Result<Slope, ModelError> { panic!("this panic is part of a test") };
    let error = site.worker(2, job(1), panics).outcome().unwrap_err();
    assert!(matches!(error, ProcessError::Panicked), "{error}");
    assert_eq!(error.exit_code(), EXIT_GIVE_UP);
    let sound = site.worker(3, job(1), Slope::new);
    let done = site.end().unwrap();
    assert_eq!(sound.state(), done.hash);
}

#[test]
fn a_model_that_fails_in_the_middle_ends_the_job_with_its_words() {
    let cases = [
        (Fault::GradientFails, "failed to compute a gradient at s2: the disk is gone"),
        (Fault::GradientPanics, "panicked"),
        (Fault::GradientUnwritten, "at s2"),
        (Fault::SamplesMiscounted, "DATA-1"),
        (Fault::ApplyFails, "failed to apply an update at s2: no memory"),
        (Fault::EvaluateFails, "failed to evaluate at s5: no test data"),
        (Fault::ResultsEndless, "100000"),
        (Fault::ResultNameEndless, "1048576"),
    ];
    for (fault, words) in cases {
        let mut site = Site::new(2);
        let workers = [1, 2].map(|id| site.worker(id, job(2), Slope::faulty(fault)));
        let reason = site.end().unwrap_err();
        assert!(reason.contains(words), "{fault:?}: {reason}");
        let mut own = 0;
        for worker in workers {
            match worker.outcome() {
                Err(error @ ProcessError::Worker(WorkerError::Model { .. })) => {
                    own += 1;
                    assert!(error.to_string().contains(words), "{fault:?}: {error}");
                    assert_eq!(error.exit_code(), EXIT_GIVE_UP);
                }
                // The other worker failed first.
                Err(ProcessError::Worker(WorkerError::Dismissed { reason })) => assert!(reason.contains(words), "{reason}"),
                other => panic!("{fault:?}: {other:?}"),
            }
        }
        assert!(own > 0, "{fault:?}");
    }
}
