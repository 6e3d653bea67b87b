//! BITS-1 for the direct plan, with one owner (a star) and with all: its sum has the bits of adding shard after shard on one machine. And what breaks in
//! it, breaks for all.

use std::sync::Arc;

use sardana_collectives::gradient::GradientBuffer;
use sardana_collectives::layout::Layout;
use sardana_collectives::limits::CHUNK_BYTES;
use sardana_collectives::links::frame::{FrameHeader, FrameKind, HEADER_BYTES, HeaderField, PlanSlot, TRAILER_BYTES};
use sardana_collectives::links::{self, LinkError, LinkReceiver, LinkSender, Meter};
use sardana_collectives::ring::{Probe, RingError, RingLinks, RingPoint};
use sardana_protocol::job::Order;
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{Owners, Plan};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Rank, ShardRange, Step};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::dance::{
    Dance, Dancer, FIRST_STEP, GENERATION, Gradient, config, in_process_links, layout, patiently, start, steady,
};

const STEPS: u64 = 4;

const OWNERS: [Owners; 2] = [Owners::Closer, Owners::All];

/// So many chunks of f32; the last one has what counts samples as well, and is the shorter the more `lacking`.
fn chunks(chunks: usize, lacking: usize) -> Arc<Layout> {
    let bytes = chunks * CHUNK_BYTES - 64 * (lacking + 1);
    let layout = Layout::new(vec![TensorSpec::new("weights", Dtype::F32, &[bytes / 4])], 2).unwrap();
    assert_eq!(layout.chunks() as usize, chunks);
    Arc::new(layout)
}

/// Sums some steps, and compares what every rank has of each.
async fn compare(dance: &Dance, shards: u32, steps: u64) {
    let world = dance.first.parts().len();
    let sums = dance.run(in_process_links(&dance.first, &dance.steady), steps, false).await;
    for (step, ranks) in (FIRST_STEP.get()..).map(Step::new).zip(&sums) {
        let expected = Gradient::sequential(&dance.layout, step, shards).buffer(&dance.layout);
        assert_eq!(ranks.len(), world);
        for (rank, (bytes, trailer)) in ranks.iter().enumerate() {
            assert!(bytes == expected.bytes(), "K={shards} N={world} {step} r{rank} differs");
            assert_eq!(*trailer, Trailer::Continue);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_world_size_gives_the_bits_of_sequential_addition() {
    for owners in OWNERS {
        for (shards, worlds) in [(1, 1..=3), (5, 1..=7), (8, 2..=8), (16, 2..=5)] {
            for world in worlds {
                compare(&Dance::direct(world, shards, owners), shards, STEPS).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_it_is_for_many_ranks_many_shards_each_and_any_number_of_chunks() {
    for (world, each, count, lacking) in [
        (2, 8, 1, 0),
        (3, 8, 3, 2_047),
        (4, 8, 9, 77),
        (8, 3, 2, 0),
        (9, 1, 10, 1_000),
        (16, 2, 5, 3),
        (33, 1, 3, 0),
        (33, 8, 1, 2_000),
    ] {
        let dance = Dance {
            layout: chunks(count, lacking),
            ..Dance::direct(world, world * each, Owners::All)
        };
        compare(&dance, world * each, 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_it_is_for_gradients_that_outgrow_the_caches() {
    // Of a processor with 32 MiB: these are stored past them.
    let layout = chunks((9 << 20) / CHUNK_BYTES, 3);
    for (dance, shards) in [(Dance::direct(3, 3, Owners::All), 3), (Dance::new(Order::Exact, 2, 4), 4)] {
        let dance = Dance {
            layout: Arc::clone(&layout),
            ..dance
        };
        compare(&dance, shards, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_reaches_every_rank_and_all_end_well() {
    for (world, owners) in [1, 2, 5, 9]
        .into_iter()
        .flat_map(|world| OWNERS.map(|owners| (world, owners)))
    {
        let dance = Dance::direct(world, 8, owners);
        for steps in [1, 3] {
            let sums = dance.run(in_process_links(&dance.first, &dance.steady), steps, true).await;
            let (last, before) = sums.split_last().unwrap();
            assert!(last.iter().all(|(_, trailer)| *trailer == Trailer::Stop));
            assert!(before.iter().flatten().all(|(_, trailer)| *trailer == Trailer::Continue));
        }
    }
}

/// What the ranks send and receive in a step in which each of four owns as many chunks: as the plan's own words say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_rank_moves_more_than_its_part() {
    const WORLD: u64 = 4;
    const CHUNKS: u64 = 8;
    let frame = (CHUNK_BYTES + HEADER_BYTES) as u64;
    for each in [1, 2, 8] {
        let layout = chunks(CHUNKS as usize, 0);
        // The last chunk ends with two sums and a count, and lacks the rest of a cache line.
        let short = (CHUNKS as usize * CHUNK_BYTES - layout.bytes()) as u64;
        let plan = Plan::direct(WORLD as u32, &steady(WORLD as u32, WORLD as u32 * each), Owners::All);
        let dance = Dance {
            layout,
            first: plan.clone(),
            steady: plan,
            ..Dance::direct(1, 1, Owners::All)
        };
        let links = in_process_links(&dance.first, &dance.steady);
        let sent = |links: &RingLinks| links.steady.outgoing.values().map(|link| link.meter().clone()).collect();
        let received = |links: &RingLinks| links.steady.incoming.values().map(|link| link.meter().clone()).collect();
        let meters: Vec<[Vec<Meter>; 2]> = links.iter().map(|links| [sent(links), received(links)]).collect();
        // The first step has a plan's links of its own.
        dance.run(links, 3, false).await;
        // Of the first rank's shards only the sum is sent in odd steps, in which they are one gradient: it sends one always, as they begin with 0.
        let brings = |rank: u64| if rank == 0 { 1 } else { u64::from(each) };
        let all: u64 = (0..WORLD).map(brings).sum();
        for (rank, meters) in (0..WORLD).zip(&meters) {
            let [sent, received] = meters.each_ref().map(|meters| meters.iter().map(Meter::bytes).sum::<u64>());
            // The closer is the last rank; it owns the last chunk, and tells all others the trailer.
            let (closes, others) = (u64::from(rank == WORLD - 1), WORLD - 1);
            let trailer = HEADER_BYTES as u64 + u64::from(TRAILER_BYTES);
            let owned = CHUNKS / WORLD;
            let brought = brings(rank) * (owned * others * frame - (1 - closes) * short);
            let told = others * (owned * frame - closes * short + closes * trailer);
            assert_eq!(sent, 2 * (brought + told), "rank {rank} of K = {}", 4 * each);
            let added = (all - brings(rank)) * (owned * frame - closes * short);
            let heard = owned * others * frame + (1 - closes) * trailer - (1 - closes) * short;
            assert_eq!(received, 2 * (added + heard), "rank {rank} of K = {}", 4 * each);
        }
    }
}

/// Three ranks of three shards, the last of which closes; rank 0 is not started, and here is its link of gradients to that one.
fn without_rank_0(owners: Owners) -> (LinkSender, RingLinks, Vec<Dancer>) {
    let (layout, plan) = (layout(), Plan::direct(3, &steady(3, 3), owners));
    let mut links = in_process_links(&plan, &plan);
    let mut own = links.remove(0);
    let start_rank = |(rank, links)| {
        let dancer = start(config(rank, &plan, &plan, &layout), links);
        let mut gradient = Gradient::draw(&layout, FIRST_STEP, rank).buffer(&layout);
        dancer.begin(FIRST_STEP, GradientBuffer::zeros(&layout));
        dancer.piece(FIRST_STEP, ShardRange::one(rank), &mut gradient);
        assert!(!gradient.is_unread(), "the ring has it");
        dancer
    };
    let dancers = (1..).zip(links).map(start_rank).collect();
    (own.first.outgoing.remove(&0).unwrap(), own, dancers)
}

async fn error_of(dancer: Dancer) -> (Rank, LinkError) {
    let error = patiently(dancer.ring).await.unwrap().unwrap_err();
    let RingError::Link { peer, source, .. } = error else {
        panic!("a link error was expected, found {error:?}");
    };
    (peer, source)
}

#[tokio::test]
async fn a_rank_that_dies_ends_the_step_for_all() {
    let (link, others, dancers) = without_rank_0(Owners::Closer);
    drop((link, others));
    let mut errors = Vec::new();
    for dancer in dancers {
        errors.push(error_of(dancer).await);
    }
    let [(lost, of_other), (lost_by_owner, of_owner)] = &errors[..] else {
        panic!("{errors:?}")
    };
    assert_eq!((*lost, *lost_by_owner), (Rank::new(2), Rank::ZERO));
    assert!(matches!(of_other, LinkError::Reset | LinkError::Refused), "{of_other}");
    assert!(matches!(of_owner, LinkError::Reset), "{of_owner}");

    let (link, others, dancers) = without_rank_0(Owners::All);
    drop((link, others));
    for dancer in dancers {
        let (_, error) = error_of(dancer).await;
        assert!(matches!(error, LinkError::Reset | LinkError::Refused), "{error}");
    }
}

/// What comes first on the way to the closer.
fn first_header() -> FrameHeader {
    let chunk = layout().chunks() - 1;
    FrameHeader {
        generation: GENERATION,
        step: FIRST_STEP,
        plan: PlanSlot::First,
        hop: 0,
        kind: FrameKind::Running,
        chunk,
        payload_bytes: u32::try_from(layout().chunk(chunk).len()).unwrap(),
    }
}

#[tokio::test]
async fn a_frame_that_does_not_come_next_is_refused_by_name() {
    let changes: [(HeaderField, crate::faults::HeaderChange); 7] = [
        (HeaderField::Count, |header| header.generation = GENERATION.next()),
        (HeaderField::Step, |header| header.step = FIRST_STEP.next()),
        (HeaderField::Kind, |header| header.kind = FrameKind::Sum),
        (HeaderField::Hop, |header| header.hop = 2),
        // Another owner's.
        (HeaderField::Chunk, |header| header.chunk -= 1),
        // As of a rank without shards.
        (HeaderField::PayloadBytes, |header| header.payload_bytes = 0),
        (HeaderField::PayloadBytes, |header| header.payload_bytes -= 8),
    ];
    // Seven chunks of three owners: the closer's first is also its last but two.
    let first = |owners| match owners {
        Owners::Closer => layout().travel().next().unwrap(),
        Owners::All => layout().chunks() - 4,
    };
    for (owners, (field, change)) in OWNERS.into_iter().flat_map(|owners| changes.map(|change| (owners, change))) {
        let chunk = first(owners);
        let mut wrong = FrameHeader {
            chunk,
            payload_bytes: u32::try_from(layout().chunk(chunk).len()).unwrap(),
            ..first_header()
        };
        change(&mut wrong);
        let (mut link, _others, mut dancers) = without_rank_0(owners);
        link.send(&wrong, |payload| payload.fill(0)).await.unwrap();
        let (peer, error) = error_of(dancers.pop().unwrap()).await;
        assert_eq!(peer, Rank::ZERO);
        assert!(
            matches!(error, LinkError::Unexpected { field: found, .. } if found == field),
            "{field}: {error}"
        );
    }
}

/// Where the ring stands whose rank is to be aborted.
struct PointLog(UnboundedSender<RingPoint>);

impl Probe for PointLog {
    fn reached(&self, point: RingPoint) {
        // The test may have seen enough.
        let _ = self.0.send(point);
    }
}

/// A rank is aborted once it has come so far with its gradients: none has the sum, and every gradient is let go as it was.
#[tokio::test]
async fn an_abort_anywhere_lets_gradients_go_unchanged() {
    // Rank 1 brings two shards, in three moments each, of each of seven chunks that are not its own.
    let points = 2 * 3 * 5;
    for at in 0..points {
        let dance = Dance::direct(4, 8, Owners::All);
        let plan = &dance.steady;
        let (told, mut reached) = unbounded_channel();
        let (mut dancers, mut handed) = (Vec::new(), Vec::new());
        for (rank, links) in (0..).zip(in_process_links(plan, plan)) {
            let mut config = config(rank, plan, plan, &dance.layout);
            if rank == 1 {
                config.probe = Some(Arc::new(PointLog(told.clone())));
            }
            let dancer = start(config, links);
            for shard in [2 * rank, 2 * rank + 1] {
                let mut gradient = Gradient::draw(&dance.layout, FIRST_STEP, shard).buffer(&dance.layout);
                dancer.piece(FIRST_STEP, ShardRange::one(shard), &mut gradient);
                handed.push((shard, gradient));
            }
            // Without the last rank no sum is finished.
            if rank < 3 {
                dancer.begin(FIRST_STEP, GradientBuffer::zeros(&dance.layout));
            }
            dancers.push(dancer);
        }
        for _ in 0..=at {
            patiently(reached.recv()).await.unwrap();
        }
        let aborted = dancers.remove(1);
        aborted.ring.abort();
        assert!(patiently(aborted.ring).await.unwrap_err().is_cancelled());
        let idle = dancers.pop().unwrap();
        for dancer in dancers {
            assert!(dancer.completed.is_empty());
            let error = patiently(dancer.ring).await.unwrap().unwrap_err();
            assert!(matches!(error, RingError::Link { .. }), "{error:?}");
        }
        // It has not begun, and so has not looked.
        drop(idle.inbox);
        patiently(idle.ring).await.unwrap().unwrap();
        for (shard, gradient) in handed {
            assert!(gradient.is_unread(), "{shard} after {at}");
            assert_eq!(
                gradient,
                Gradient::draw(&dance.layout, FIRST_STEP, shard).buffer(&dance.layout)
            );
        }
    }
}

/// The closer decides once it has heard from all, and may be the one that lacks another owner's chunks: the others have the same sum and trailer.
#[tokio::test]
async fn ranks_may_be_done_before_the_closer() {
    let layout = layout();
    let plan = Plan::direct(3, &steady(3, 3), Owners::All);
    let mut links = in_process_links(&plan, &plan);
    // Rank 1's finished chunks do not come to the closer, rank 2.
    let hop = plan
        .hops()
        .iter()
        .rfind(|hop| (hop.from.get(), hop.to.get()) == (1, 2))
        .unwrap()
        .id;
    let (withheld, instead): (LinkSender, LinkReceiver) = links::in_process();
    let kept = links[2].first.incoming.insert(hop, instead).unwrap();
    let mut dancers = Vec::new();
    for (rank, links) in (0..).zip(links) {
        let dancer = start(config(rank, &plan, &plan, &layout), links);
        let mut gradient = Gradient::draw(&layout, FIRST_STEP, rank).buffer(&layout);
        dancer.begin(FIRST_STEP, GradientBuffer::zeros(&layout));
        dancer.piece(FIRST_STEP, ShardRange::one(rank), &mut gradient);
        dancers.push(dancer);
    }
    let expected = Gradient::sequential(&layout, FIRST_STEP, 3).buffer(&layout);
    let mut closer = dancers.pop().unwrap();
    for dancer in &mut dancers {
        let done = patiently(dancer.completed.recv()).await.unwrap();
        assert!(done.sum.bytes() == expected.bytes());
        assert_eq!(done.trailer, Trailer::Continue);
    }
    assert!(closer.completed.is_empty(), "it lacks what rank 1 has finished");
    drop((withheld, kept));
    let error = patiently(closer.ring).await.unwrap().unwrap_err();
    assert!(
        matches!(error, RingError::Link { peer, .. } if peer == Rank::new(1)),
        "{error:?}"
    );
    assert!(
        closer.completed.try_recv().is_err(),
        "nor is it ever told that it has the sum"
    );
}
