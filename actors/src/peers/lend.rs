//! What the members of a generation give each other of the checkpoint that all of them load: each reads one share of it, and gives every
//! piece on as soon as it has come.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quinn::SendStream;
use sardana_net::wire::FrameError;
use sardana_protocol::checkpoint::{Manifest, ManifestKey};
use sardana_protocol::messages::MemberAddress;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::{StateHash, StatePieces};
use sardana_protocol::words::{Generation, Step, WorkerId};
use sardana_storage::manifest;

use super::fetch::{FetchError, Request, ending};
use super::load::Load;
use super::{PeerGroup, Peers};
use crate::fault::{self, Point};

/// What this worker lends: the share that it reads, if it reads one.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// The generation that loads the checkpoint.
    generation: Generation,
    reading: Option<Reading>,
}

/// A share, piece by piece.
#[derive(Debug)]
pub(crate) struct Reading {
    manifest: Arc<Manifest>,
    share: Share,
    hash: StateHash,
    /// Where the share's pieces lie in its bytes, and whether they are there.
    pieces: Vec<(Range<usize>, bool)>,
    bytes: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Some pieces are yet to come.
    Coming(BytesMut),
    /// All have come, and the task that reads them puts them together with the other shares.
    Away,
    /// They stay as they are.
    Whole(Bytes),
}

/// A piece that does not belong where it was put.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PutError {
    /// The checkpoint is of another model, although its manifest says otherwise.
    #[error(
        "piece {index} of {share} has {found} bytes, and {expected} in this model's state; resume with the model that it was made by"
    )]
    Length {
        share: Share,
        index: usize,
        expected: usize,
        found: usize,
    },
    /// The generation that reads is over.
    #[error("{generation} does not load a checkpoint any more")]
    Over { generation: Generation },
}

impl Reading {
    /// A share that is to be read into `bytes`, which are as many as its; or into none, if it comes as a whole.
    pub(crate) fn new(
        manifest: Arc<Manifest>,
        pieces: &StatePieces,
        share: Share,
        hash: StateHash,
        bytes: BytesMut,
    ) -> Self {
        Self {
            manifest,
            share,
            hash,
            pieces: pieces.pieces_in(share).map(|range| (range, false)).collect(),
            bytes: Stage::Coming(bytes),
        }
    }

    fn put(&mut self, index: usize, bytes: &[u8]) -> Result<(), PutError> {
        let Stage::Coming(all) = &mut self.bytes else { return Ok(()) };
        let piece = self.pieces.get_mut(index);
        let place = piece.and_then(|(range, come)| Some((all.get_mut(range.clone())?, come)));
        let expected = place.as_ref().map_or(0, |(place, _)| place.len());
        match place {
            Some((place, come)) if expected == bytes.len() => {
                place.copy_from_slice(bytes);
                *come = true;
                Ok(())
            }
            Some(_) | None => Err(PutError::Length {
                share: self.share,
                index,
                expected,
                found: bytes.len(),
            }),
        }
    }

    /// The piece of this index, if it has come, or the end.
    fn next(&self, index: usize) -> Option<Next> {
        let Some((range, come)) = self.pieces.get(index) else {
            return Some(Next::End);
        };
        let range = range.clone();
        match &self.bytes {
            Stage::Coming(bytes) if *come => bytes.get(range).map(Bytes::copy_from_slice).map(Next::Piece),
            Stage::Coming(_) | Stage::Away => None,
            Stage::Whole(bytes) => Some(Next::Piece(bytes.slice(range))),
        }
    }
}

/// What follows in a share that is lent.
enum Next {
    Piece(Bytes),
    End,
}

/// A share that another member gives piece by piece.
pub(crate) struct Borrowing {
    peers: Arc<Peers>,
    donor: WorkerId,
    load: Load,
}

impl Borrowing {
    /// The next bytes of it, as many as `into` has.
    pub(crate) async fn next(&mut self, into: &mut [u8]) -> Result<(), FetchError> {
        self.peers.receive(self.donor, &mut self.load, into).await
    }
}

impl Peers {
    /// This worker is about to load a checkpoint for `generation`: these members may have what it reads of it.
    pub(crate) fn will_lend(&self, generation: Generation, members: impl IntoIterator<Item = WorkerId>) {
        let members: BTreeSet<WorkerId> = members.into_iter().collect();
        self.name(PeerGroup::Restoring, members);
        self.lent.replace(Lent {
            generation,
            reading: None,
        });
    }

    /// It begins to.
    pub(crate) fn begin_lending(&self, generation: Generation, reading: Reading) {
        self.lent.modify(|lent| {
            if lent.generation == generation {
                lent.reading = Some(reading);
            }
        });
    }

    /// The bytes of a piece have come, compared with their hash.
    pub(crate) fn lend(&self, generation: Generation, index: usize, bytes: &[u8]) -> Result<(), PutError> {
        self.lent.modify(|lent| {
            let reading = lent.reading.as_mut().filter(|_| lent.generation == generation);
            reading.ok_or(PutError::Over { generation })?.put(index, bytes)
        })
    }

    /// The share, of which all has come; none if the generation is over. A borrower waits until it is lent as a whole.
    pub(crate) fn take_lent(&self, generation: Generation) -> Option<BytesMut> {
        self.lent.modify_quietly(|lent| {
            let reading = lent.reading.as_mut().filter(|_| lent.generation == generation)?;
            match std::mem::replace(&mut reading.bytes, Stage::Away) {
                Stage::Coming(bytes) => Some(bytes),
                Stage::Away | Stage::Whole(_) => None,
            }
        })
    }

    /// The share's bytes stay as they are.
    pub(crate) fn lend_whole(&self, generation: Generation, bytes: Bytes) {
        self.lent.modify(|lent| {
            if let Some(reading) = lent.reading.as_mut().filter(|_| lent.generation == generation) {
                reading.bytes = Stage::Whole(bytes);
            }
        });
    }

    /// All have what they need, or the generation is given up.
    pub(crate) fn end_lending(&self) {
        self.lent.replace(Lent::default());
        self.name(PeerGroup::Restoring, []);
    }

    /// The length and the hash of the share that this worker reads for `generation`, as soon as it does. None if it reads another share, or
    /// for another generation.
    pub(super) async fn lent(&self, generation: Generation, share: Share) -> Option<(u64, StateHash)> {
        let told = |reading: &Reading| {
            let bytes = reading.pieces.last().map_or(0, |(range, _)| range.end);
            Some((reading.share, bytes as u64, reading.hash))
        };
        let (lent, bytes, hash) = self.of_lent(generation, told).await?;
        (lent == share).then_some((bytes, hash))
    }

    /// The manifest of the checkpoint that this worker reads for `generation`, as soon as it has it. None if that is over.
    pub(super) async fn lent_manifest(&self, generation: Generation) -> Option<Arc<Manifest>> {
        self.of_lent(generation, |reading| Some(Arc::clone(&reading.manifest))).await
    }

    /// Sends the pieces of the share that this worker reads for `generation`, in their order, as they come. Returns whether that was all.
    pub(super) async fn send_lent(
        &self,
        (generation, step): (Generation, Step),
        send: &mut SendStream,
    ) -> Result<bool, FrameError> {
        let mut index = 0;
        loop {
            match self.of_lent(generation, |reading| reading.next(index)).await {
                Some(Next::Piece(piece)) => {
                    send.write_chunk(piece).await?;
                    fault::reached(Point::Lending, step);
                }
                Some(Next::End) => return Ok(true),
                None => return Ok(false),
            }
            index += 1;
        }
    }

    /// What `look` finds of what is lent for `generation`, as soon as it finds something. None if that is over.
    async fn of_lent<R>(&self, generation: Generation, look: impl Fn(&Reading) -> Option<R> + Send) -> Option<R> {
        let look = |lent: &Lent| {
            if lent.generation > generation {
                return Some(None);
            }
            // An order may reach another member first.
            let reading = lent.reading.as_ref().filter(|_| lent.generation == generation)?;
            look(reading).map(Some)
        };
        self.lent.find(look).await
    }

    /// Asks for the share that `member` reads for `generation`, of `expected` bytes. To compare them with their hashes is the caller's.
    pub(crate) async fn borrow(
        self: &Arc<Self>,
        member: MemberAddress,
        (generation, step): (Generation, Step),
        share: Share,
        expected: usize,
    ) -> Result<Borrowing, FetchError> {
        let request = Request::Lent { generation, step, share };
        let (_, load) = self.open_share(member, request, expected).await?;
        let donor = member.worker;
        let peers = Arc::clone(self);
        Ok(Borrowing { peers, donor, load })
    }

    /// The manifest `key`, from a member that reads the checkpoint for `generation`.
    pub(crate) async fn borrow_manifest(
        self: &Arc<Self>,
        member: MemberAddress,
        generation: Generation,
        key: ManifestKey,
    ) -> Result<Manifest, FetchError> {
        let (donor, step) = (member.worker, key.step);
        let bytes = self
            .fetch_manifest(member, Request::LentManifest { generation, step })
            .await?;
        let decoded = self.environment.blocking(move || manifest::decode_as(&bytes, key)).await;
        decoded.ok_or_else(|| ending(donor))?.map_err(|error| FetchError::Broken {
            donor,
            reason: error.to_string(),
        })
    }
}
