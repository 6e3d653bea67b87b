//! BITS-1 whatever the links: any split of the shards, any plan, any length, and each hop over whichever link it gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use sardana_collectives::layout::Layout;
use sardana_collectives::links::{self, LinkReceiver, LinkSender};
use sardana_collectives::ring::RingLinks;
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::messages::LinkKind;
use sardana_protocol::plan::{Owners, Plan, Visit};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::Step;

use crate::dance::{Dance, FIRST_STEP, Gradient, random, visit};
use crate::loopback::{Loopback, loopback};

const JOBS: u64 = 40;
const STEPS: u64 = 3;

/// Draws what a job is.
struct Draw(u64);

impl Draw {
    /// A number in `from..=to`.
    fn number(&mut self, from: u32, to: u32) -> u32 {
        from + (random(&mut self.0) % u64::from(to - from + 1)) as u32
    }

    /// Tensors of both dtypes, from none of a chunk to several, with ends within chunks and at them.
    fn layout(&mut self) -> Arc<Layout> {
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
            TensorSpec::new(format!("{number}"), dtype, &[length])
        };
        let tensors = (0..count).map(tensor).collect();
        Arc::new(Layout::new(tensors, 2).unwrap())
    }

    /// Shards cut anywhere among ranks in any turn; a rank that gets none is a spare.
    fn visits(&mut self, world: u32, shards: u32) -> Vec<Visit> {
        let mut visits = Vec::new();
        let mut start = 0;
        while start < shards {
            let end = self.number(start + 1, shards);
            visits.push(visit(self.number(0, world - 1), start, end));
            start = end;
        }
        let spares = (0..world).filter(|rank| visits.iter().all(|visit| visit.rank.get() != *rank));
        let spares: Vec<Visit> = spares.map(|rank| visit(rank, shards, shards)).collect();
        visits.extend(spares);
        visits
    }

    fn plan(&mut self, world: u32, shards: u32) -> Plan {
        let visits = self.visits(world, shards);
        match self.number(0, 2) {
            0 => Plan::new(Order::Exact, world, &visits),
            1 => Plan::direct(world, &visits, Owners::Closer),
            _ => Plan::direct(world, &visits, Owners::All),
        }
    }

    async fn link(&mut self, loopback: &Loopback) -> (LinkSender, LinkReceiver) {
        match self.number(0, 2) {
            0 => links::in_process(),
            1 => loopback.link().await,
            _ => links::shared_memory_in_process().unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_split_over_any_links_gives_the_bits_of_sequential_addition() {
    let loopback = loopback().await;
    let mut mixed = BTreeMap::<usize, u32>::new();
    for job in 0..JOBS {
        let mut draw = Draw(job);
        let (world, shards) = (draw.number(1, 6), draw.number(1, 16));
        let dance = Dance {
            layout: draw.layout(),
            first: draw.plan(world, shards),
            steady: draw.plan(world, shards),
            compression: Compression::None,
            far: None,
            summations: Vec::new(),
        };
        let mut pairs = Vec::new();
        for _hop in dance.first.hops().iter().chain(dance.steady.hops()) {
            pairs.push(draw.link(&loopback).await);
        }
        let links = RingLinks::of_all(&dance.first, &dance.steady, || pairs.pop().unwrap());
        let meters: Vec<_> = links
            .iter()
            .flat_map(|links| links.steady.outgoing.values())
            .map(|link| (link.kind(), link.meter().clone()))
            .collect();
        let sums = dance.run(links, STEPS, false).await;
        for (step, ranks) in (FIRST_STEP.get()..).map(Step::new).zip(&sums) {
            let expected = Gradient::sequential(&dance.layout, step, shards).buffer(&dance.layout);
            assert_eq!(ranks.len(), world as usize);
            for (rank, (bytes, _)) in ranks.iter().enumerate() {
                assert!(
                    bytes == expected.bytes(),
                    "job {job}: K={shards} N={world} {step} r{rank} differs"
                );
            }
        }
        let used = |kind| meters.iter().any(|(of, meter)| *of == kind && meter.bytes() > 0);
        let kinds = [LinkKind::InProcess, LinkKind::Quic, LinkKind::SharedMemory];
        *mixed.entry(kinds.into_iter().filter(|&kind| used(kind)).count()).or_default() += 1;
    }
    assert!(
        mixed.get(&3).is_some_and(|&jobs| jobs >= 10),
        "rings of links of all kinds: {mixed:?}"
    );
}
