//! The same as in `golden`, of the orders that form generations.

use sardana_protocol::lineage::Lineage;
use sardana_protocol::messages::{CatchUp, CoordinatorMessage, Form, Last, MemberAddress, MembersDigest, Peer};
use sardana_protocol::plan::{Adding, Brought, DirectPart, HopEnd, OrderedPart, Owner, Part, RingPart, VisitPart};
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, Step, WorkerId};

use super::golden::golden;
use super::golden_depots::{restore, restore_text};

const GENERATION: Generation = Generation::new(Incarnation::new(1), 7);

fn order(catch_up: CatchUp) -> Box<Form> {
    let end = |hop, peer| HopEnd {
        hop,
        peer: Rank::new(peer),
    };
    let visit = |start, to, [from, onwards]: [Option<HopEnd>; 2]| VisitPart {
        shards: ShardRange::new(start, to),
        from,
        to: onwards,
    };
    Box::new(Form {
        generation: GENERATION,
        rank: Rank::new(1),
        world_size: 3,
        digest: MembersDigest::new([0xdd; 32]),
        peers: vec![
            Peer {
                rank: Rank::new(0),
                member: MemberAddress {
                    worker: WorkerId::new(5),
                    address: "10.0.0.1:1".parse().unwrap(),
                },
            },
            Peer {
                rank: Rank::new(2),
                member: MemberAddress {
                    worker: WorkerId::new(6),
                    address: "[::1]:2".parse().unwrap(),
                },
            },
        ],
        step: Step::new(9),
        lineage: Lineage {
            last: GENERATION,
            before: Some(Generation::new(Incarnation::new(1), 6)),
        },
        first: Part::Ordered(OrderedPart {
            visits: vec![visit(0, 3, [None, Some(end(0, 2))]), visit(8, 9, [Some(end(1, 0)), None])],
            sum_from: None,
            sum_to: Some(end(2, 0)),
        }),
        steady: Part::Ring(RingPart {
            shards: vec![ShardRange::new(4, 8)],
            hops: Some((end(0, 0), end(1, 2))),
        }),
        catch_up,
        restore: None,
        report_from: Step::new(4),
        stop_at: Some(Step::new(12)),
        last: Last::Forgotten,
    })
}

#[test]
fn forms() {
    let form = |catch_up| CoordinatorMessage::Form(order(catch_up));
    let head = format!(
        "01 0107 01 03 {} 02 00 05 00 0a000001 01 02 06 01 00000000000000000000000000000001 02 \
         09 0107 01 0106 00 02 0003 00 010002 0809 010100 00 00 010200 01 01 0408 01 0000 0102",
        "dd".repeat(32)
    );
    golden(&form(CatchUp::None), &format!("{head} 00 00 04 010c 00"));
    golden(
        &form(CatchUp::Sum { from: Rank::new(0) }),
        &format!("{head} 0100 00 04 010c 00"),
    );
    golden(
        &form(CatchUp::State { from: Rank::new(0) }),
        &format!("{head} 0200 00 04 010c 00"),
    );
    let prepare = CoordinatorMessage::Prepare(order(CatchUp::None));
    golden(&prepare, &format!("02 {} 00 00 04 010c 00", &head[3..]));
    let restored = CoordinatorMessage::Form(Box::new(Form {
        restore: Some(Box::new(restore())),
        last: Last::Snapshot,
        ..*order(CatchUp::Checkpoint)
    }));
    golden(&restored, &format!("{head} 03 01 {} 04 010c 01", restore_text()));
}

#[test]
fn direct_parts() {
    let end = |hop, peer| HopEnd {
        hop,
        peer: Rank::new(peer),
    };
    let brought = |start, to, from| Brought {
        shards: ShardRange::new(start, to),
        from,
    };
    let direct = |first, steady| {
        CoordinatorMessage::Form(Box::new(Form {
            first: Part::Direct(first),
            steady: Part::Direct(steady),
            ..*order(CatchUp::None)
        }))
    };
    let head = format!(
        "01 0107 01 03 {} 02 00 05 00 0a000001 01 02 06 01 00000000000000000000000000000001 02 09 0107 01 0106",
        "dd".repeat(32)
    );
    let other = Owner::There {
        to: end(2, 2),
        sum_from: end(3, 2),
    };
    let here = Owner::Here(Adding {
        adds: vec![brought(0, 3, Some(end(0, 0))), brought(3, 4, None)],
        sums_to: vec![end(1, 0), end(5, 2)],
    });
    let one_of_two = DirectPart {
        brings: vec![ShardRange::new(3, 4)],
        owners: vec![other.clone(), here],
    };
    let no_owner = DirectPart {
        brings: vec![ShardRange::new(0, 3), ShardRange::new(6, 8)],
        owners: vec![other],
    };
    golden(
        &direct(one_of_two, no_owner),
        &format!(
            "{head} 02 01 0304 02 01 0202 0302 00 02 0003 01 0000 0304 00 02 0100 0502 \
             02 02 0003 0608 01 01 0202 0302 00 00 04 010c 00"
        ),
    );
}
