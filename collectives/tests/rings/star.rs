//! BITS-1 for the star: its sum has the bits of adding shard after shard on one machine. And what breaks in it, breaks for all.

use sardana_collectives::gradient::GradientBuffer;
use sardana_collectives::links::frame::{FrameHeader, FrameKind, HeaderField, PlanSlot};
use sardana_collectives::links::{LinkError, LinkSender};
use sardana_collectives::ring::RingError;
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::Plan;
use sardana_protocol::words::{Rank, ShardRange, Step};

use crate::dance::{
    Dance, Dancer, FIRST_STEP, GENERATION, Gradient, config, in_process_links, layout, patiently, start, steady,
};

const STEPS: u64 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_world_size_gives_the_bits_of_sequential_addition() {
    for (shards, worlds) in [(1, 1..=3), (5, 1..=7), (8, 2..=8), (16, 2..=5)] {
        for world in worlds {
            let dance = Dance::star(world, shards);
            let sums = dance.run(in_process_links(&dance.first, &dance.steady), STEPS, false).await;
            for (step, ranks) in (FIRST_STEP.get()..).map(Step::new).zip(&sums) {
                let sum = Gradient::sequential(&dance.layout, step, shards);
                let expected = sum.buffer(&dance.layout);
                assert_eq!(ranks.len(), world as usize);
                for (rank, (bytes, trailer)) in ranks.iter().enumerate() {
                    assert!(bytes == expected.bytes(), "K={shards} N={world} {step} r{rank} differs");
                    assert_eq!(*trailer, Trailer::Continue);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_reaches_every_rank_and_all_end_well() {
    for world in [1, 2, 5] {
        let dance = Dance::star(world, 8);
        for steps in [1, 3] {
            let sums = dance.run(in_process_links(&dance.first, &dance.steady), steps, true).await;
            let (last, before) = sums.split_last().unwrap();
            assert!(last.iter().all(|(_, trailer)| *trailer == Trailer::Stop));
            assert!(before.iter().flatten().all(|(_, trailer)| *trailer == Trailer::Continue));
        }
    }
}

/// Three ranks of three shards, the last of which is the hub; rank 0 is not started, and here is its link to the hub.
fn without_rank_0() -> (LinkSender, Vec<Dancer>) {
    let (layout, plan) = (layout(), Plan::star(3, &steady(3, 3)));
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
    (own.first.outgoing.remove(&0).unwrap(), dancers)
}

async fn error_of(dancer: Dancer) -> (Rank, LinkError) {
    let error = patiently(dancer.ring).await.unwrap().unwrap_err();
    let RingError::Link { peer, source, .. } = error else {
        panic!("a link error was expected, found {error:?}");
    };
    (peer, source)
}

#[tokio::test]
async fn a_leaf_that_dies_ends_the_step_for_all() {
    let (link, dancers) = without_rank_0();
    drop(link);
    let mut errors = Vec::new();
    for dancer in dancers {
        errors.push(error_of(dancer).await);
    }
    let [(leaf_lost, of_leaf), (hub_lost, of_hub)] = &errors[..] else {
        panic!("{errors:?}")
    };
    assert_eq!((*leaf_lost, *hub_lost), (Rank::new(2), Rank::ZERO));
    assert!(matches!(of_leaf, LinkError::Reset | LinkError::Refused), "{of_leaf}");
    assert!(matches!(of_hub, LinkError::Reset), "{of_hub}");
}

#[tokio::test]
async fn a_frame_that_does_not_come_next_is_refused_by_name() {
    let chunk = layout().travel().next().unwrap();
    let good = FrameHeader {
        generation: GENERATION,
        step: FIRST_STEP,
        plan: PlanSlot::First,
        hop: 0,
        kind: FrameKind::Running,
        chunk,
        payload_bytes: u32::try_from(layout().chunk(chunk).len()).unwrap(),
    };
    let changes: [(HeaderField, crate::faults::HeaderChange); 4] = [
        (HeaderField::Count, |header| header.generation = GENERATION.next()),
        (HeaderField::Step, |header| header.step = FIRST_STEP.next()),
        (HeaderField::Kind, |header| header.kind = FrameKind::Sum),
        // As a leaf without shards.
        (HeaderField::PayloadBytes, |header| header.payload_bytes = 0),
    ];
    for (field, change) in changes {
        let mut wrong = good;
        change(&mut wrong);
        let (mut link, mut dancers) = without_rank_0();
        link.send(&wrong, |payload| payload.fill(0)).await.unwrap();
        let (peer, error) = error_of(dancers.pop().unwrap()).await;
        assert_eq!(peer, Rank::ZERO);
        assert!(
            matches!(error, LinkError::Unexpected { field: found, .. } if found == field),
            "{field}: {error}"
        );
    }
}
