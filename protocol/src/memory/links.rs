//! How many bytes the links of one worker hold at most, beside its gradients and sums. Knows which links there may be, and nothing of their insides
//! but what each lets lie.

use crate::limits::{
    CHUNK_BYTES, DIRECT_CHUNKS, DIRECT_NEAR_BYTES, DIRECT_NEAR_WORKERS, DIRECT_WORKERS, POOLED_CHUNKS, SHARED_LINK_BYTES,
    STAR_BYTES, STAR_WORKERS,
};

/// How much of one link QUIC lets lie at its two ends. Memory that two processes share lets less lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Bytes that a peer may send before they are read.
    pub unread: u64,
    /// Bytes that were sent and are kept until the peer has acknowledged them.
    pub unacknowledged: u64,
}

/// Plans whose links there are at once: the first and the steady one of the generation before, which may still pass its last sum on, of the
/// present one, and of the one that is prepared to follow.
const SETS: u64 = 6;

/// Of these so many have something under way: the last sum of the generation before, and the first of the present one.
const IN_USE: u64 = 2;

/// A rank's links each way in a plan in which a running sum goes from rank to rank: one has running sums, the other finished ones.
const WAYS: u64 = 2;

/// Bytes of a frame's header.
const HEADER_BYTES: u64 = 48;

/// QUIC keeps a packet whole, and where it belongs, which is a 66th more than its part of a stream where it has 1,452 bytes. Counted is this share, for
/// those that are shorter.
const QUIC_SHARE: u64 = 16;

/// Gradients for which all ranks are owners, though their links may be streams of QUIC, are smaller: between hosts the rule is in whole chunks.
const DIRECT_BYTES: u64 = {
    let apart = DIRECT_WORKERS as u64 * (*DIRECT_CHUNKS.end() + 1) * CHUNK_BYTES as u64;
    let near = DIRECT_NEAR_BYTES + 1;
    if apart > near { apart } else { near }
};

/// Links that a rank sends on where all of a host are owners: two to each other.
const NEAR_LINKS: u64 = WAYS * (DIRECT_NEAR_WORKERS as u64 - 1);

/// What the receiving end of one link holds. Over a link at most a gradient is under way: the next step's is not sent before all have this one's. Of
/// what has come a frame is taken from the transport, with what came with its end: less than two chunks.
#[must_use]
pub fn link_receives(gradient: u64, windows: Windows) -> u64 {
    packed(gradient.min(windows.unread)).saturating_add(2 * CHUNK_BYTES as u64)
}

/// What the sending end of one link holds: what is not acknowledged, and frames that are kept to be written again.
/// What lies in pages is no memory of the link's: it is sent from there. But where its owner has to write before it is acknowledged, the old pages stay as well, as
/// long as the connection of a peer that is not reached lives; that is not counted.
#[must_use]
pub fn link_sends(gradient: u64, windows: Windows) -> u64 {
    packed(gradient.min(windows.unacknowledged)).saturating_add(link_keeps(gradient))
}

/// What the sending end of one link keeps when nothing is under way.
#[must_use]
pub fn link_keeps(gradient: u64) -> u64 {
    POOLED_CHUNKS as u64 * (gradient.min(CHUNK_BYTES as u64) + HEADER_BYTES)
}

/// So many bytes in packets.
const fn packed(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / QUIC_SHARE)
}

/// Bytes that all links of a worker hold at most, for gradients of so many bytes.
///
/// Where a running sum goes from rank to rank, a rank has two links each way. Where owners add, it has up to two with each other
/// rank; over QUIC a plan is such only where the busiest rank moves no more than four gradients and [`STAR_BYTES`] for each rank but two, and no link has
/// more than two steps of that: one under way, and one that is not acknowledged. Memory that two processes share is all there from the start, and
/// counted where it is made, at the sending end: gradients of any size pass through it.
#[must_use]
pub fn links_hold(gradient: u64, windows: Windows) -> u64 {
    let chain = WAYS.saturating_mul(link_receives(gradient, windows).saturating_add(link_sends(gradient, windows)));
    let saved = |ranks: u32| u64::from(ranks - 2) * STAR_BYTES;
    let (owners, links) = match gradient {
        ..STAR_BYTES => (4 * gradient + saved(STAR_WORKERS), u64::from(STAR_WORKERS) - 1),
        STAR_BYTES..DIRECT_BYTES => (4 * gradient + saved(DIRECT_WORKERS), NEAR_LINKS),
        // What owners would have under way lies where they share it.
        DIRECT_BYTES.. => (0, NEAR_LINKS),
    };
    let in_use = IN_USE.saturating_mul(chain.max(2 * owners));
    in_use.saturating_add(SETS * links * SHARED_LINK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// What a worker promises where no peer is said to be far.
    const NEAR: Windows = Windows {
        unread: 16 * MIB,
        unacknowledged: 32 * MIB,
    };

    #[test]
    fn windows_bound_what_large_gradients_have_under_way() {
        let large = links_hold(1 << 30, NEAR);
        assert_eq!(large, links_hold(1 << 40, NEAR));
        // Two links each way: 17 and 34 MiB in packets, frames that are read and kept. Twice; and 84 links of shared memory.
        let least = 4 * (17 + 34 + 8) * MIB + SETS * NEAR_LINKS * SHARED_LINK_BYTES;
        assert!((least..least + 6 * MIB).contains(&large), "{large}");
        let far = Windows {
            unread: 143_000_000,
            unacknowledged: 286_000_000,
        };
        assert!(links_hold(1 << 30, far) > 4 * (143_000_000 + 286_000_000));
    }

    #[test]
    fn what_is_under_way_is_no_more_than_a_gradient() {
        let large = links_hold(12 * MIB, NEAR);
        assert!(large < links_hold(16 * MIB, NEAR));
        assert!(large >= 4 * 2 * 12 * MIB);
    }

    #[test]
    fn owners_have_links_with_all_others() {
        // A star's closer has 63 of a mebibyte each way, in each set.
        assert!(links_hold(STAR_BYTES - 1, NEAR) > 6 * 63 * MIB);
        let chain = |gradient| IN_USE * WAYS * (link_receives(gradient, NEAR) + link_sends(gradient, NEAR));
        assert!(links_hold(9 * MIB, NEAR) > chain(9 * MIB), "all are owners");
    }

    #[test]
    fn no_number_is_too_large_to_be_reckoned_with() {
        let windows = |bytes| Windows {
            unread: bytes,
            unacknowledged: bytes,
        };
        for gradient in [0, 1, DIRECT_BYTES, u64::MAX] {
            assert!(links_hold(gradient, windows(u64::MAX)) >= links_hold(gradient, windows(0)));
        }
        assert_eq!(links_hold(u64::MAX, windows(u64::MAX)), u64::MAX);
    }
}
