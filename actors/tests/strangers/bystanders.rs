//! Workers without a model: they take part, and nothing is ever computed.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use sardana_actors::worker::{self, Ended, LinkChoice, ModelFailure, Reach, Sigterm, StepDriver, WorkerConfig, WorkerError};
use sardana_collectives::layout::Layout;
use sardana_net::trust::RotatingCredentials;
use sardana_protocol::samples;
use sardana_protocol::state::{Dtype, StatePieces, TensorSpec};

use super::raw::LOOPBACK;

pub(crate) fn bystander(credentials: impl Into<RotatingCredentials>, coordinator: SocketAddr) -> WorkerConfig {
    let identity = samples::identity();
    WorkerConfig {
        credentials: credentials.into(),
        coordinator: coordinator.into(),
        listen: LOOPBACK,
        advertise: None,
        shard_capacity: identity.spec.shards,
        gradient_memory: u64::MAX,
        device_memory: None,
        pieces: Arc::new(StatePieces::new([24])),
        description: Bytes::new(),
        auxiliary: vec![],
        summation: None,
        links: LinkChoice::Auto,
        reach: Reach::default(),
        sigterm: Sigterm::NotOurs,
        identity,
    }
}

/// Takes part. What it returns first fails when it is told to.
pub(crate) fn run(config: WorkerConfig) -> (ModelFailure, impl Future<Output = Result<Ended, WorkerError>>) {
    run_with(config, 3)
}

/// The same with gradients of so many numbers.
pub(crate) fn run_with(
    config: WorkerConfig,
    numbers: usize,
) -> (ModelFailure, impl Future<Output = Result<Ended, WorkerError>>) {
    let (_, failure, running) = driven(config, numbers);
    (failure, running)
}

/// The same, with the step driver that its training thread would have.
pub(crate) fn driven(
    config: WorkerConfig,
    numbers: usize,
) -> (
    Arc<StepDriver>,
    ModelFailure,
    impl Future<Output = Result<Ended, WorkerError>>,
) {
    let layout = Layout::new(vec![TensorSpec::new("w", Dtype::F64, &[numbers])], 0).unwrap();
    let (driver, outbox) = StepDriver::new(&config.identity.spec, Arc::new(layout), None);
    let (failure, failures) = ModelFailure::channel();
    let running = worker::run(config, Arc::clone(&driver), outbox, failures);
    (driver, failure, running)
}
