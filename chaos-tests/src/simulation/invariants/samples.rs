//! DATA-1: each sample contributes exactly once an epoch, whatever the membership did: each shard is in each sum once, and in order where that is exact.

use sardana_protocol::job::Order;
use sardana_protocol::words::Step;

use super::{Held, Law};

impl Law {
    pub(super) fn each_shard_once(&mut self, step: Step, gradients: &[(u32, u64)]) -> Held {
        let mut shards: Vec<u32> = gradients.iter().map(|&(shard, _)| shard).collect();
        if self.order == Order::Fast {
            shards.sort_unstable();
        }
        self.check("DATA-1", (0..self.shards).eq(shards.iter().copied()), || {
            format!("the sum of {step} has the shards {shards:?}")
        })
    }
}
