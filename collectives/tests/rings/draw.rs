//! Draws what a job is: tensors, shards, plans.

use std::sync::Arc;

use sardana_collectives::layout::Layout;
use sardana_protocol::job::Order;
use sardana_protocol::plan::{Owners, Plan, Visit};
use sardana_protocol::state::{Dtype, TensorSpec};

use crate::dance::{random, visit};

/// Draws what a job is.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    /// A number in `from..=to`.
    pub(crate) fn number(&mut self, from: u32, to: u32) -> u32 {
        from + (random(&mut self.0) % u64::from(to - from + 1)) as u32
    }

    /// Tensors of both dtypes, from none of a chunk to several, with ends within chunks and at them. None has more than `most` elements.
    pub(crate) fn layout(&mut self, most: usize) -> Arc<Layout> {
        let count = self.number(1, 4);
        let tensor = |number: u32| {
            let (dtype, element) = if self.number(0, 2) == 0 {
                (Dtype::F64, 8)
            } else {
                (Dtype::F32, 4)
            };
            let chunk = sardana_collectives::limits::CHUNK_BYTES / element;
            let length = match self.number(0, 3) {
                0 => self.number(0, 40) as usize,
                1 => chunk * self.number(1, 2) as usize,
                _ => self.number(1, 60_000) as usize,
            };
            TensorSpec::new(format!("{number}"), dtype, &[length.min(most)])
        };
        let tensors = (0..count).map(tensor).collect();
        Arc::new(Layout::new(tensors, 2).unwrap())
    }

    /// Shards in runs of `longest` at most, cut anywhere, among ranks in any turn; a rank that gets none is a spare.
    pub(crate) fn visits(&mut self, world: u32, shards: u32, longest: u32) -> Vec<Visit> {
        let mut visits = Vec::new();
        let mut start = 0;
        while start < shards {
            let end = self.number(start + 1, shards.min(start + longest));
            visits.push(visit(self.number(0, world - 1), start, end));
            start = end;
        }
        let spares = (0..world).filter(|rank| visits.iter().all(|visit| visit.rank.get() != *rank));
        let spares: Vec<Visit> = spares.map(|rank| visit(rank, shards, shards)).collect();
        visits.extend(spares);
        visits
    }

    /// A plan of exact order.
    pub(crate) fn exact(&mut self, world: u32, shards: u32) -> Plan {
        let visits = self.visits(world, shards, shards);
        match self.number(0, 2) {
            0 => Plan::new(Order::Exact, world, &visits),
            1 => Plan::direct(world, &visits, Owners::Closer),
            _ => Plan::direct(world, &visits, Owners::All),
        }
    }
}
