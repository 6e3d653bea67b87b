//! What depots and the coordinator say to each other, and what workers are told of depots.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::{MemberAddress, Peer};
use crate::checkpoint::{DepotAddress, DepotId, Head, ManifestKey, Part, Placing};
use crate::snapshot::{Share, SnapshotId};
use crate::words::{Incarnation, JobId, Rank, WorkerId};

/// A depot's first message. [`DepotMessage::Holds`] follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepotHello {
    /// The job it serves.
    pub job: JobId,
    /// Which it is: by its store, not by its certificate.
    pub depot: DepotId,
    /// What people call its host. Replicas are on different hosts.
    pub host: String,
    /// Where workers and other depots reach it.
    pub address: SocketAddr,
    /// The highest incarnation of a coordinator that it has served. It obeys no lower one.
    pub incarnation: Incarnation,
}

/// From depot to coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
pub enum DepotMessage {
    /// What it keeps: at first all, in one or more messages, and then what has changed.
    Holds {
        /// Checkpoints, the newest first.
        heads: Vec<Head>,
        /// Whether with this all is told that it kept when it came.
        is_last: bool,
        /// Checkpoints that are there and cannot be read: only their names are known.
        unreadable: Vec<ManifestKey>,
    },
    /// It had this, and deleted it.
    Deleted {
        /// The checkpoint.
        key: ManifestKey,
    },
    /// Answer to the last [`DepotOrder::Commit`] of a manifest, or to [`DepotOrder::Fetch`]: it is durable here, with all pieces that
    /// should be.
    Committed {
        /// What the order called it.
        snapshot: SnapshotId,
        /// What it is called.
        head: Head,
    },
    /// The other answer: it could not be made durable.
    Refused {
        /// What the order called it.
        snapshot: SnapshotId,
        /// Which placing of it.
        placing: Placing,
        /// What was wrong, and what to do.
        reason: String,
    },
    /// The depot's certificate runs out: here is a signing request for the next. `Renewed` comes back.
    Renew {
        /// The request, PKCS #10 in DER.
        request: Vec<u8>,
    },
    /// It is not done yet with a [`DepotOrder::Fetch`] or a [`DepotOrder::Commit`]: said every [`FETCH_TOLD_EVERY`](crate::limits::FETCH_TOLD_EVERY). Nothing comes back.
    Fetching {
        /// What the order called it.
        snapshot: SnapshotId,
        /// Which placing of it.
        placing: Placing,
    },
}

/// From coordinator to depot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
pub enum DepotOrder {
    /// Serve these, and no other process. Nothing comes back.
    Serve {
        /// Workers that may put and read pieces.
        workers: Vec<WorkerId>,
        /// Other depots that may read pieces, by the ids in their certificates.
        depots: Vec<u64>,
    },
    /// A part of a manifest. With the last one: make it durable, if all pieces of it whose home is this depot are. `Committed` or
    /// `Refused` comes back.
    Commit {
        /// The snapshot that it was made of.
        snapshot: SnapshotId,
        /// The depots that its pieces were placed on.
        depots: Vec<DepotId>,
        /// Which placing that is.
        placing: Placing,
        /// The part.
        part: Part,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// The pieces that were put for this snapshot, or for any before it, need not be kept for its sake any more. Nothing comes back.
    Release {
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// Delete this checkpoint, and give back its room. `Deleted` comes back.
    Delete {
        /// The checkpoint.
        key: ManifestKey,
    },
    /// Fetch what this depot lacks of a checkpoint from the others, so that it has all pieces whose home it is among `depots`.
    /// `Committed` or `Refused` comes back.
    Fetch {
        /// The snapshot that it was made of.
        snapshot: SnapshotId,
        /// What it is called.
        key: ManifestKey,
        /// All depots by now, this one among them.
        depots: Vec<DepotAddress>,
        /// Which placing that is.
        placing: Placing,
    },
    /// Answer to `Renew`.
    Renewed {
        /// The new certificate, X.509 in DER.
        certificate: Vec<u8>,
    },
    /// The job is over: the checkpoint actor ends.
    JobOver,
}

/// An order to the holders of a snapshot: write shares of it to depots. Sent again, with a higher attempt, when something has changed; it
/// is then done anew from the beginning, and finds there what was written before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Save {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// Which try it is. [`super::WorkerMessage::Saved`] says it again.
    pub attempt: u32,
    /// The shares, by index, that the receiver writes. It keeps the others that it holds, since another holder may be lost.
    pub shares: Vec<u32>,
    /// Where to: at most one depot on each host.
    pub depots: Vec<DepotAddress>,
    /// How many of them keep each piece.
    pub replicas: u32,
}

/// The checkpoint that a generation starts from. Members load it in groups, so that none has to do with all others: each reader of a group
/// reads one share of as many as the group has readers, and gives it to all others of the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// The checkpoint.
    pub key: ManifestKey,
    /// The depots that may have it.
    pub depots: Vec<DepotAddress>,
    /// The members of the receiver's group, itself among them, in rank order.
    pub members: Vec<Peer>,
    /// The readers among them, in ascending order: the first reads the first share. All members but those that could not load a checkpoint
    /// when it was tried last; all, if no member of the generation could.
    pub readers: Vec<Rank>,
}

impl Restore {
    /// The member of the group at this rank.
    #[must_use]
    pub fn member(&self, rank: Rank) -> Option<MemberAddress> {
        let place = self.members.binary_search_by_key(&rank, |peer| peer.rank).ok()?;
        self.members.get(place).map(|peer| peer.member)
    }

    /// The shares, and the rank that reads each.
    pub fn shares(&self) -> impl ExactSizeIterator<Item = (Share, Rank)> + '_ {
        let of = u32::try_from(self.readers.len()).unwrap_or(u32::MAX);
        let share = move |(index, &rank): (usize, &Rank)| {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            (Share { index, of }, rank)
        };
        self.readers.iter().enumerate().map(share)
    }
}
