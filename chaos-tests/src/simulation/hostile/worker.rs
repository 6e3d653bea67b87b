//! A worker's machine alone, told anything by its coordinator and its peers.

use sardana_protocol::data::DataFingerprint;
use sardana_protocol::job::{Compression, JobSpec, LastBatch, Order};
use sardana_protocol::member::{Event, Followed, Heartbeat, Member, Work};
use sardana_protocol::messages::{CoordinatorMessage, StepReport, Trailer};
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Incarnation, Step, WorkerId};

use super::changing::Ear;
use super::corpus;
use crate::dice::Dice;

/// A worker is told so many things by its coordinator and its peers. Returns how large it was at most, as text.
#[must_use]
pub fn besiege_worker(seed: u64, events: u32) -> usize {
    let mut dice = Dice::new(seed);
    let order = if dice.once_in(4) { Order::Fast } else { Order::Exact };
    let spec = JobSpec {
        name: "hostile".to_owned(),
        seed,
        shards: 4,
        steps: Step::new(40),
        samples: 100,
        batch: 10,
        last_batch: LastBatch::Short,
        order,
        compression: Compression::None,
        data: DataFingerprint::default(),
    };
    let (mut member, mut ear, mut largest) = (Member::new(&spec, 6), Ear::default(), 0);
    let mut form = Generation::NONE;
    let all = corpus::of_coordinator();
    for number in 0..events {
        let event = match dice.below(6) {
            0..=2 => {
                let message = all[dice.index(all.len())].clone();
                let message = if dice.once_in(3) {
                    message
                } else {
                    ear.changed(&message, &mut dice)
                };
                ear.hear(&message);
                if let CoordinatorMessage::Form(found) | CoordinatorMessage::Prepare(found) = &message {
                    form = found.generation;
                }
                Some(order_of(message))
            }
            3 => of_peers(&member, form, &ear, &mut dice),
            _ => of_trainer(&mut member),
        };
        if let Some(event) = event {
            let _ = member.handle(event);
        }
        let _ = (member.introduction(), member.phases());
        if number % 500 == 499 {
            largest = largest.max(format!("{member:?}").len());
        }
        // A new worker: this one may have come to its end.
        if dice.once_in(800) {
            member = Member::new(&spec, 6);
        }
    }
    largest
}

/// What comes from a coordinator; the end of the job stands for the welcome of another.
fn order_of(message: CoordinatorMessage) -> Event {
    if let CoordinatorMessage::Complete { step, .. } = message {
        return Event::Welcomed {
            incarnation: Incarnation::new(1 + step.get() % 3),
            report_from: step,
        };
    }
    Event::Ordered(message)
}

/// What comes over links: any orders, any steps.
fn of_peers(member: &Member, generation: Generation, ear: &Ear, dice: &mut Dice) -> Option<Event> {
    let (step, snapshot) = (
        member.step(),
        SnapshotId {
            generation,
            step: member.step(),
        },
    );
    let (trailer, keeper_at) = ear.changed(&(Trailer::Switch(generation.next()), step), dice);
    Some(match dice.below(9) {
        0 => Event::LinksReady { generation },
        1 => Event::LinkBroken {
            generation,
            peer: WorkerId::new(1),
        },
        2..=4 => Event::Summed {
            generation,
            step,
            trailer,
        },
        5 => Event::Fetched { generation, step },
        6 => Event::Copied {
            snapshot: ear.changed(&snapshot, dice),
        },
        7 => Event::Followed(Followed {
            step,
            generation: ear.changed(&generation, dice),
            trailer,
            keeper_at,
        }),
        _ => Event::RoomMade,
    })
}

/// What the worker's own trainer does.
fn of_trainer(member: &mut Member) -> Option<Event> {
    Some(match member.next_work() {
        Work::Gradient { step, piece, shard, .. } => Event::Computed { step, piece, shard },
        Work::Apply { step } => Event::Applied {
            report: StepReport {
                step,
                samples: 1,
                sums: Vec::new(),
            },
        },
        Work::Load { .. } => Event::Loaded,
        Work::Conclude { .. } => Event::Concluded {
            hash: StateHash::of(b"x"),
            results: Vec::new(),
        },
        Work::Wait => Event::Beat {
            heartbeat: Heartbeat::Due(None),
        },
    })
}
