//! DATA-1: each sample contributes exactly once an epoch, whatever the membership did: each shard is in each sum once, in order.

use sardana_protocol::words::Step;

use super::{Held, Law};

impl Law {
    pub(super) fn each_shard_once(&mut self, step: Step, gradients: &[(u32, u64)]) -> Held {
        let holds = (0..self.shards).eq(gradients.iter().map(|&(shard, _)| shard));
        self.check("DATA-1", holds, || {
            let shards: Vec<u32> = gradients.iter().map(|&(shard, _)| shard).collect();
            format!("the sum of {step} has the shards {shards:?}")
        })
    }
}
