//! BITS-1 whatever the links: any split of the shards, any plan, any length, and each hop over whichever link it gets.

use std::collections::BTreeMap;

use sardana_collectives::links::{self, LinkReceiver, LinkSender};
use sardana_collectives::ring::RingLinks;
use sardana_protocol::job::Compression;
use sardana_protocol::messages::LinkKind;
use sardana_protocol::words::Step;

use crate::dance::{Dance, FIRST_STEP, Gradient};
use crate::draw::Draw;
use crate::loopback::{Loopback, loopback};

const JOBS: u64 = 40;
const STEPS: u64 = 3;

async fn link(draw: &mut Draw, loopback: &Loopback) -> (LinkSender, LinkReceiver) {
    match draw.number(0, 2) {
        0 => links::in_process(),
        1 => loopback.link().await,
        _ => links::shared_memory_in_process().unwrap(),
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
            layout: draw.layout(usize::MAX),
            first: draw.exact(world, shards),
            steady: draw.exact(world, shards),
            compression: Compression::None,
            far: None,
            summations: Vec::new(),
        };
        let mut pairs = Vec::new();
        for _hop in dance.first.hops().iter().chain(dance.steady.hops()) {
            pairs.push(link(&mut draw, &loopback).await);
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
