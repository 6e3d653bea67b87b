//! Mistakes of callers that run a ring: each is named, none is summed.

use sardana_collectives::gradient::GradientBuffer;
use sardana_collectives::layout::Layout;
use sardana_collectives::links::frame::PlanSlot;
use sardana_collectives::ring::{PieceError, RingConfig, RingError, RingInput, RingLinks};
use sardana_protocol::job::Order;
use sardana_protocol::plan::{PartError, Plan};
use sardana_protocol::words::{Rank, ShardRange, Step};

use crate::dance::{FIRST_STEP, config, in_process_links, layout, patiently, start, steady, visit};

fn plan() -> Plan {
    Plan::new(Order::Exact, 2, &steady(2, 8))
}

/// Tells rank `rank` of two all of `inputs`, and returns how its ring ended.
async fn told(rank: u32, inputs: Vec<RingInput>) -> RingError {
    let plan = plan();
    let mut links = in_process_links(&plan, &plan);
    let own = links.remove(rank as usize);
    let dancer = start(config(rank, &plan, &plan, &layout()), own);
    for input in inputs {
        // The ring may have ended at an earlier one.
        let _ = dancer.inbox.send(input);
    }
    patiently(dancer.ring).await.unwrap().unwrap_err()
}

fn begin(step: Step) -> RingInput {
    RingInput::Begin {
        step,
        into: GradientBuffer::zeros(&layout()),
    }
}

fn piece(step: Step, start: u32, end: u32) -> RingInput {
    let gradient = GradientBuffer::zeros(&layout()).complete();
    RingInput::Piece {
        step,
        shards: ShardRange::new(start, end),
        gradient,
    }
}

async fn refused(rank: u32, inputs: Vec<RingInput>) -> PieceError {
    let error = told(rank, inputs).await;
    let RingError::Piece { source, .. } = error else {
        panic!("a piece was to be refused, found {error:?}");
    };
    source
}

#[tokio::test]
async fn a_gradient_that_cannot_be_summed_is_refused() {
    let step = FIRST_STEP;
    let earlier = FIRST_STEP.previous().unwrap();
    assert_eq!(refused(0, vec![piece(earlier, 0, 1)]).await, PieceError::Late(step));
    let assigned = PieceError::NotAssigned(vec![ShardRange::new(0, 4)]);
    assert_eq!(refused(0, vec![piece(step, 4, 5)]).await, assigned);
    assert_eq!(refused(0, vec![piece(step, 0, 5)]).await, assigned);
    assert_eq!(refused(0, vec![piece(step, 1, 1)]).await, assigned);
    let overlap = PieceError::Overlap(ShardRange::new(0, 3));
    assert_eq!(refused(0, vec![piece(step, 0, 3), piece(step, 2, 3)]).await, overlap);
    assert_eq!(refused(0, vec![piece(step, 1, 3)]).await, PieceError::NotPrefix);
    assert_eq!(refused(1, vec![piece(step, 4, 6)]).await, PieceError::NotPrefix);
}

#[tokio::test]
async fn a_step_begins_once_and_with_room_for_its_sum() {
    let earlier = FIRST_STEP.previous().unwrap();
    let error = told(0, vec![begin(earlier)]).await;
    assert!(matches!(error, RingError::Begin { expected: FIRST_STEP, found } if found == earlier));
    let error = told(0, vec![begin(FIRST_STEP), begin(FIRST_STEP)]).await;
    assert!(matches!(
        error,
        RingError::Begin {
            expected: FIRST_STEP,
            found: FIRST_STEP
        }
    ));
    let other = Layout::new(Vec::new(), 0).unwrap();
    let small = RingInput::Begin {
        step: FIRST_STEP,
        into: GradientBuffer::zeros(&other),
    };
    assert!(matches!(told(0, vec![small]).await, RingError::BufferLength { found: 8, .. }));
}

#[tokio::test]
async fn a_ring_without_its_links_or_plans_does_not_start() {
    let ended =
        async |config: RingConfig, links: RingLinks| patiently(start(config, links).ring).await.unwrap().unwrap_err();
    let good = || config(0, &plan(), &plan(), &layout());
    let links = || in_process_links(&plan(), &plan()).remove(0);
    let error = ended(good(), RingLinks::default()).await;
    assert!(matches!(error, RingError::LinkMissing { hop: 0, peer } if peer == Rank::new(1)));
    let refused = |error: RingError, expected: PlanSlot| {
        let RingError::Part { plan, source, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(plan, expected);
        source
    };
    let alone = RingConfig { world_size: 1, ..good() };
    let found = refused(ended(alone, links()).await, PlanSlot::First);
    assert!(matches!(found, PartError::UnknownRank { world_size: 1, .. }), "{found}");
    let more = Plan::new(Order::Exact, 2, &[visit(0, 0, 9), visit(1, 9, 10)]);
    let steady = more.parts()[0].clone();
    let found = refused(ended(RingConfig { steady, ..good() }, links()).await, PlanSlot::Steady);
    assert!(matches!(found, PartError::Shards { shards: 8, .. }), "{found}");
}

#[tokio::test]
async fn a_closed_inbox_ends_an_idle_ring_well() {
    let links = in_process_links(&plan(), &plan()).remove(0);
    let dancer = start(config(0, &plan(), &plan(), &layout()), links);
    dancer.inbox.send(begin(FIRST_STEP)).unwrap();
    drop(dancer.inbox);
    patiently(dancer.ring).await.unwrap().unwrap();
}
