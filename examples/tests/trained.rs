//! What the examples learn, and BITS-1 for each: threads and workers do not reach the state.

use std::path::Path;

use sardana::device::DeviceChoice;
use sardana::fit::{Fit, Network};
use sardana::model::{ModelError, Trainable};
use sardana::{JobSpec, Step, local, reference};
use sardana_examples::{chars, cifar, diabetes, mnist};

fn short(job: sardana::job::JobBuilder, steps: u64) -> JobSpec {
    let mut spec = job.build().expect("the job is valid").spec().clone();
    spec.steps = Step::new(steps);
    spec
}

/// However many workers compute, the final state is that of the plain loop.
fn ends_in_one_state<M: Trainable>(
    spec: &JobSpec,
    workers: &[u32],
    build: impl Fn(&JobSpec) -> Result<M, ModelError> + Sync,
) {
    let mut model = build(spec).expect("the model is built");
    let expected = reference::train(spec, &mut model).expect("the plain loop ends");
    for &workers in workers {
        let found = local::train(spec, workers, &build).expect("threads train it");
        assert_eq!(found.hash, expected.hash, "BITS-1, {workers} workers");
        assert_eq!(
            (found.reports, found.results),
            (expected.reports.clone(), expected.results.clone())
        );
    }
}

fn result<N: Network>(spec: &JobSpec, mut model: Fit<N>, name: &str) -> f64 {
    let results = reference::train(spec, &mut model).expect("the plain loop ends").results;
    let found = results.iter().find(|(found, _)| found == name);
    found.expect("it is among the results").1
}

#[test]
fn mnist_ends_in_one_state() {
    let mut spec = short(mnist::Data::from_digits().unwrap().job(1).unwrap(), 2);
    spec.batch = 16;
    ends_in_one_state(&spec, &[3], |spec| mnist::Data::from_digits()?.cnn(spec, DeviceChoice::Cpu));
}

#[test]
fn the_convolutional_network_has_as_many_parameters_as_elsewhere() {
    let data = mnist::Data::from_digits().unwrap();
    let spec = short(data.job(1).unwrap(), 1);
    assert_eq!(
        data.cnn(&spec, DeviceChoice::Cpu).unwrap().network().trained_values(),
        1_199_882
    );
}

#[test]
fn a_residual_network_ends_in_one_state_and_learns() {
    let mut spec = short(cifar::Data::made(160).unwrap().job(1).unwrap(), 2);
    spec.batch = 32;
    let build = |spec: &JobSpec| cifar::Data::made(160)?.model(spec, 8, 4, DeviceChoice::Cpu);
    ends_in_one_state(&spec, &[2, 3], build);
    spec.steps = Step::new(20);
    let reports = reference::train(&spec, &mut build(&spec).unwrap()).unwrap().reports;
    let loss = |step: usize| reports[step].sums[0] / reports[step].samples as f64;
    assert!(loss(19) < 0.8 * loss(0), "from {} to {}", loss(0), loss(19));
}

#[test]
fn resnet_20_has_as_many_parameters_as_in_its_paper() {
    let data = cifar::Data::made(160).unwrap();
    let spec = short(data.job(1).unwrap(), 1);
    // 0.27 million.
    assert_eq!(
        data.model(&spec, 20, 16, DeviceChoice::Cpu)
            .unwrap()
            .network()
            .trained_values(),
        269_722
    );
}

#[test]
fn a_transformer_ends_in_one_state_and_learns() {
    let text = chars::Text::built_in().unwrap();
    let mut spec = short(text.job(1).unwrap(), 2);
    spec.batch = 8;
    ends_in_one_state(&spec, &[3], |spec| chars::Text::built_in()?.model(spec, DeviceChoice::Cpu));
    spec.steps = Step::new(16);
    let reports = reference::train(&spec, &mut text.model(&spec, DeviceChoice::Cpu).unwrap())
        .unwrap()
        .reports;
    let loss = |step: usize| reports[step].sums[0] / reports[step].samples as f64;
    // ln 256 = 5.5 at first; letters' own frequencies are learned at once. The text is this repository's, and changes.
    assert!(loss(0) > 5.4 && loss(15) < 5.1, "from {} to {}", loss(0), loss(15));
}

/// 2004.51869 in closed form.
#[test]
fn a_linear_layer_finds_least_squares() {
    let spec = diabetes::Patients::built_in()
        .unwrap()
        .job()
        .unwrap()
        .build()
        .unwrap()
        .spec()
        .clone();
    let error = result(
        &spec,
        diabetes::Patients::built_in()
            .unwrap()
            .model(&spec, DeviceChoice::Cpu)
            .unwrap(),
        "loss",
    );
    assert!((error - 2_004.518_69).abs() < 0.05, "{error}");
    ends_in_one_state(
        &JobSpec {
            steps: Step::new(20),
            ..spec
        },
        &[1, 2, 3, 4],
        |spec| diabetes::Patients::built_in()?.model(spec, DeviceChoice::Cpu),
    );
}

#[test]
fn a_folder_without_the_files_is_said_with_what_belongs_there() {
    let folder = tempfile::tempdir().unwrap();
    let data = |folder: &Path| mnist::Data::in_folder(folder);
    let error = data(folder.path()).job(1).unwrap_err().to_string();
    assert!(error.contains("train-images-idx3-ubyte"), "{error}");
    let error = cifar::Data::in_folder(folder.path()).job(1).unwrap_err().to_string();
    assert!(error.contains("data_batch_1.bin"), "{error}");
}
