//! The worker's shell: rings side by side, and how a worker leaves.

mod leaving;
mod near;
mod refused;
mod restoring;
mod side_by_side;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sardana_collectives::layout::Layout;
use sardana_protocol::job::{JobSpec, Order};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::JobId;
use tokio::time::timeout;

use super::*;

const JOB: JobId = JobId::new([6; 16]);
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const PATIENCE: Duration = Duration::from_secs(20);

fn spec() -> JobSpec {
    JobSpec {
        name: "shell".to_owned(),
        seed: 1,
        shards: 4,
        steps: Step::new(10),
        samples: 64,
        batch: 16,
        order: Order::Exact,
    }
}

fn driver() -> (Arc<StepDriver>, Outbox) {
    let layout = Layout::new(vec![TensorSpec::new("w", Dtype::F64, &[3])], 0).unwrap();
    StepDriver::new(&spec(), Arc::new(layout), None)
}

fn pieces() -> Arc<StatePieces> {
    Arc::new(StatePieces::new([24]))
}

async fn until(what: impl Fn() -> bool) {
    let waiting = async {
        while !what() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("it comes to that in time");
}
