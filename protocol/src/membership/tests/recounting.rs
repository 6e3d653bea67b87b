//! Writers that say of a checkpoint what cannot be.

use super::checkpointed::{about_saves, piece, saved_config};
use super::*;
use crate::checkpoint::PieceHash;
use crate::holders::Taken;
use crate::messages::MemberAddress;
use crate::state::StateSize;

/// What a holder says of a share of the state at s3, of which each has one piece of 8 bytes.
fn says_of(job: &mut Job, worker: u64, share: u32, pieces: &[PieceHash], state: StateSize) -> Vec<String> {
    let message = WorkerMessage::Saved {
        snapshot: snapshot(1, 3),
        attempt: 1,
        share,
        bytes: 8 * pieces.len() as u64,
        description: vec![PieceHash::of(b"names")],
        state,
        start: 0,
        pieces: pieces.to_vec(),
        is_last: false,
    };
    job.says(worker, message)
}

#[test]
fn a_share_that_the_snapshot_does_not_have_is_in_no_manifest_and_its_writer_goes() {
    let mut job = Job::saving(3, saved_config());
    let state = StateSize { pieces: 2, bytes: 16 };
    for share in [2, 3, u32::MAX] {
        let mut job = Job::saving(3, saved_config());
        let found = says_of(&mut job, 2, share, &[piece(3, 9)], state);
        assert!(found.iter().any(|text| text.starts_with("lost w2")), "{share}: {found:?}");
        let shares = job.membership.checkpoints.shares_written();
        assert!(shares.is_none_or(|shares| shares == 0), "{share}");
    }
    let found = says_of(&mut job, 2, 1, &[piece(3, 1), piece(3, 9)], state);
    // It has one piece.
    any_begins(&found, "lost w2");
}

#[test]
fn a_writer_that_describes_another_state_than_the_others_is_not_believed() {
    let three = StateSize { pieces: 3, bytes: 24 };
    let attempt = |job: &mut Job, states: [StateSize; 3]| {
        let members = (1..=3).map(|worker| MemberAddress {
            worker: w(worker),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        });
        let mut taken = Taken::new(snapshot(1, 3), members, |_| true);
        for worker in 1..=3 {
            taken.told(w(worker), vec![]).unwrap();
        }
        let by = [1, 2, 3].map(|share| {
            (
                w(share),
                states[share as usize - 1],
                piece(3, u32::try_from(share).unwrap() - 1),
            )
        });
        job.membership.checkpoints.are_written(taken, &by);
        job.membership.manage(|checkpoints, facts| checkpoints.commit_if_sound(facts));
        words(&std::mem::take(&mut job.membership.out))
    };
    let mut job = Job::saving(3, saved_config());
    assert_eq!(attempt(&mut job, [three; 3]), ["commit g1.1@s3 to [7, 8]"]);
    for other in [StateSize { pieces: 4, ..three }, StateSize { bytes: 25, ..three }] {
        let mut job = Job::saving(3, saved_config());
        let found = about_saves(&attempt(&mut job, [three, other, three]));
        // The third is not connected.
        let anew = ["to w1: save [1] of g1.1@s3 to [7, 8]"];
        assert_eq!(found, anew, "the other holder writes it");
    }
    // They agree, and what they wrote is not that.
    for all in [StateSize { pieces: 4, bytes: 24 }, StateSize { pieces: 3, bytes: 25 }] {
        let mut job = Job::saving(3, saved_config());
        let found = attempt(&mut job, [all; 3]);
        none_contains(&found, "commit");
        assert_eq!(job.membership.checkpoints.newest_committed(), s(0), "nothing is saved");
    }
}
