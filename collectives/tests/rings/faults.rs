//! What breaks in a ring: aborts, frames that do not belong, ends that come early. Nothing of it may change a gradient.

use std::sync::Arc;

use sardana_collectives::gradient::GradientBuffer;
use sardana_collectives::links::frame::{FrameHeader, FrameKind, HeaderField, PlanSlot, TRAILER_BYTES, encode_trailer};
use sardana_collectives::links::{self, LinkError, LinkReceiver, LinkSender};
use sardana_collectives::ring::{Probe, RingError, RingLinks, RingPoint};
use sardana_collectives::runs::Runs;
use sardana_protocol::job::Order;
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::Plan;
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::dance::{
    Dance, Dancer, FIRST_STEP, GENERATION, Gradient, config, in_process_links, layout, patiently, start, steady,
};

/// Rank 1 of two, and rank 0's ends of its links.
struct Closer {
    dancer: Dancer,
    running: LinkSender,
    sum: LinkReceiver,
}

fn two() -> Plan {
    Plan::new(Order::Exact, 2, &steady(2, 2))
}

fn closer() -> Closer {
    let plan = two();
    let (running, running_in) = links::in_process();
    let (sum_out, sum) = links::in_process();
    let mut own = RingLinks::default();
    own.first.incoming.insert(0, running_in);
    own.first.outgoing.insert(1, sum_out);
    let mut other = in_process_links(&plan, &plan);
    own.steady = other.remove(1).steady;
    let layout = layout();
    let dancer = start(config(1, &plan, &plan, &layout), own);
    let mut gradient = Gradient::draw(&layout, FIRST_STEP, 1).buffer(&layout);
    dancer.begin(FIRST_STEP, GradientBuffer::zeros(&layout));
    dancer.piece(FIRST_STEP, ShardRange::one(1), &mut gradient);
    Closer { dancer, running, sum }
}

fn header() -> FrameHeader {
    FrameHeader {
        generation: GENERATION,
        step: FIRST_STEP,
        plan: PlanSlot::First,
        hop: 0,
        kind: FrameKind::Running,
        chunk: travelled(0),
        payload_bytes: u32::try_from(layout().chunk(travelled(0)).len()).unwrap(),
    }
}

/// The chunk that travels as number `place`.
fn travelled(place: usize) -> u32 {
    layout().travel().nth(place).expect("there are more chunks")
}

async fn send(link: &mut LinkSender, header: FrameHeader) {
    link.send(&header, |payload| payload.fill(0)).await.unwrap();
}

/// How the ring ended, which must be on hop 0 with rank 0.
async fn broken(dancer: Dancer) -> LinkError {
    let error = patiently(dancer.ring).await.unwrap().unwrap_err();
    let RingError::Link {
        generation,
        step,
        hop,
        peer,
        source,
    } = error
    else {
        panic!("a link error was expected, found {error:?}");
    };
    assert_eq!((generation, step, hop, peer), (GENERATION, FIRST_STEP, 0, Rank::ZERO));
    source
}

/// What makes a header another one.
pub(crate) type HeaderChange = fn(&mut FrameHeader);

#[tokio::test]
async fn a_frame_that_does_not_come_next_is_refused_by_name() {
    let good = FrameHeader {
        chunk: travelled(1),
        ..header()
    };
    let changes: [(HeaderField, HeaderChange); 8] = [
        (HeaderField::Incarnation, |header| {
            header.generation = Generation::new(Incarnation::new(4), 14)
        }),
        (HeaderField::Count, |header| header.generation = GENERATION.next()),
        (HeaderField::Step, |header| header.step = FIRST_STEP.next()),
        (HeaderField::Plan, |header| header.plan = PlanSlot::Steady),
        (HeaderField::Hop, |header| header.hop = 1),
        (HeaderField::Kind, |header| header.kind = FrameKind::Sum),
        (HeaderField::Chunk, |header| header.chunk = travelled(2)),
        (HeaderField::PayloadBytes, |header| header.payload_bytes = 100),
    ];
    for (field, change) in changes {
        let mut wrong = good;
        change(&mut wrong);
        let mut closer = closer();
        send(&mut closer.running, header()).await;
        send(&mut closer.running, wrong).await;
        let error = broken(closer.dancer).await;
        assert!(
            matches!(error, LinkError::Unexpected { field: found, .. } if found == field),
            "{field}: {error}"
        );
    }
}

#[tokio::test]
async fn an_early_end_is_told_from_a_reset() {
    let mut finished = closer();
    send(&mut finished.running, header()).await;
    finished.running.finish();
    drop(finished.running);
    assert!(matches!(broken(finished.dancer).await, LinkError::Ended(expected) if expected.chunk == travelled(1)));

    let mut reset = closer();
    send(&mut reset.running, header()).await;
    drop(reset.running);
    assert!(matches!(broken(reset.dancer).await, LinkError::Reset));
}

#[tokio::test]
async fn a_broken_ring_resets_its_other_links() {
    let mut closer = closer();
    drop(closer.running);
    broken(closer.dancer).await;
    let expected = FrameHeader {
        hop: 1,
        kind: FrameKind::Sum,
        ..header()
    };
    assert!(matches!(closer.sum.receive(&expected).await, Err(LinkError::Reset)));
}

struct PointLog(UnboundedSender<RingPoint>);

impl Probe for PointLog {
    fn reached(&self, point: RingPoint) {
        // The test may have seen enough.
        let _ = self.0.send(point);
    }
}

#[tokio::test]
async fn an_abort_in_the_middle_lets_gradients_go_unchanged() {
    let dance = Dance::new(Order::Exact, 3, 8);
    let mut links = in_process_links(&dance.steady, &dance.steady).into_iter();
    let (told, mut points) = unbounded_channel();
    let mut zero = config(0, &dance.steady, &dance.steady, &dance.layout);
    zero.probe = Some(Arc::new(PointLog(told)));
    let zero = start(zero, links.next().unwrap());
    let one = start(config(1, &dance.steady, &dance.steady, &dance.layout), links.next().unwrap());
    // Rank 2 never begins, so that the sum cannot be finished.
    let two = start(config(2, &dance.steady, &dance.steady, &dance.layout), links.next().unwrap());
    let mut handed = Vec::new();
    for (rank, dancer) in [(0, &zero), (1, &one)] {
        let runs = dance.steady.part(Rank::new(rank)).unwrap().shards();
        for shard in runs.into_iter().flat_map(ShardRange::iter) {
            let mut gradient = Gradient::draw(&dance.layout, FIRST_STEP, shard).buffer(&dance.layout);
            dancer.piece(FIRST_STEP, ShardRange::one(shard), &mut gradient);
            handed.push((shard, gradient));
        }
        dancer.begin(FIRST_STEP, GradientBuffer::zeros(&dance.layout));
    }
    let step = FIRST_STEP;
    for chunk in dance.layout.travel().take(3) {
        assert_eq!(patiently(points.recv()).await, Some(RingPoint::BeforePass { step, chunk }));
        assert_eq!(patiently(points.recv()).await, Some(RingPoint::WhilePassing { step, chunk }));
        assert_eq!(patiently(points.recv()).await, Some(RingPoint::AfterPass { step, chunk }));
    }
    two.ring.abort();
    assert!(patiently(two.ring).await.unwrap_err().is_cancelled());
    // Rank 1 cannot pass on, nor receive the sum, and its end ends rank 0.
    for (rank, dancer) in [(1, one), (0, zero)] {
        let error = patiently(dancer.ring).await.unwrap().unwrap_err();
        assert!(matches!(error, RingError::Link { .. }), "{rank}: {error:?}");
    }
    for (shard, gradient) in handed {
        assert!(gradient.is_unread());
        assert_eq!(
            gradient,
            Gradient::draw(&dance.layout, FIRST_STEP, shard).buffer(&dance.layout)
        );
    }
}

/// One thread and no timers: after each yield every task that can go on has done so.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nothing_of_a_step_is_sent_before_it_begins() {
    let layout = layout();
    let plan = two();
    let mut links = in_process_links(&plan, &plan);
    let mut other = links.remove(1);
    let mut dancer = start(config(0, &plan, &plan, &layout), links.remove(0));
    for (step, plan, mut ends) in [
        (FIRST_STEP, PlanSlot::First, other.first),
        (FIRST_STEP.next(), PlanSlot::Steady, std::mem::take(&mut other.steady)),
    ] {
        let (_, mut running) = ends.incoming.pop_first().unwrap();
        let (_, mut sum) = ends.outgoing.pop_first().unwrap();
        let mut gradient = Gradient::draw(&layout, step, 0).buffer(&layout);
        dancer.piece(step, ShardRange::one(0), &mut gradient);
        let frame = |hop, kind, chunk| FrameHeader {
            step,
            plan,
            hop,
            kind,
            chunk,
            payload_bytes: u32::try_from(layout.chunk(chunk).len()).unwrap(),
            ..header()
        };
        let frames: Vec<_> = layout
            .travel()
            .map(|chunk| (layout.chunk(chunk), frame(0, FrameKind::Running, chunk)))
            .collect();
        let mut bytes = vec![0; layout.bytes()];
        let receiving = tokio::spawn(async move {
            for (range, header) in frames {
                running.receive(&header).await.unwrap().copy_to(&mut bytes[range]);
            }
            (bytes, running)
        });
        settle().await;
        assert!(
            !receiving.is_finished() && dancer.completed.is_empty(),
            "{step} has not begun"
        );
        dancer.begin(step, GradientBuffer::zeros(&layout));
        let (bytes, _running) = patiently(receiving).await.unwrap();
        assert!(bytes == gradient.bytes(), "rank 0 passes its own gradient on");
        // The gradient alone stands for the sum.
        for chunk in layout.travel() {
            let write = |payload: &mut [u8]| payload.copy_from_slice(&bytes[layout.chunk(chunk)]);
            sum.send(&frame(1, FrameKind::Sum, chunk), write).await.unwrap();
        }
        settle().await;
        assert!(dancer.completed.is_empty(), "a sum is complete with its trailer");
        let trailer = FrameHeader {
            payload_bytes: TRAILER_BYTES,
            ..frame(1, FrameKind::Trailer, 0)
        };
        let write = |payload: &mut [u8]| payload.copy_from_slice(&encode_trailer(Trailer::Continue));
        sum.send(&trailer, write).await.unwrap();
        let done = patiently(dancer.completed.recv()).await.unwrap();
        assert!(done.step == step && done.sum.bytes() == bytes);
    }
    drop(dancer.inbox);
    patiently(dancer.ring).await.unwrap().unwrap();
}
