//! Depots on this very host: what they keep is read from their files, and passes no network. They only say where it is, and what is read
//! is compared with its hash as ever: whatever cannot be had like this is asked for over the network.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use sardana_protocol::checkpoint::{DepotAddress, PieceHash};
use sardana_protocol::limits::PIECE_BYTES;

use super::asking::NowAndThen;
use super::client::{Depots, Reach};
use super::error::DepotError;
use super::limits::{LIST_BYTES, NEAR_BYTES, REQUEST_BYTES, ROUND_PIECES};
use super::talk::{Answer, Request};
use crate::ground::Ground;
use crate::store::{Near, Place};

/// A piece that is to be read, by index.
type Wanted = (usize, PieceHash, Place);

/// Pieces, and where in `bytes` each lies.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    pieces: Vec<(usize, Range<usize>)>,
}

impl Depots {
    /// Whether all of `pieces` lie on this host, in files that depots say where to find.
    pub async fn are_near(&self, depots: &[DepotAddress], pieces: &[PieceHash]) -> bool {
        let mut left: HashSet<usize> = (0..pieces.len()).collect();
        for &depot in depots {
            for (_, wanted) in self.places(depot, pieces).await {
                left.retain(|index| wanted.iter().all(|(near, ..)| near != index));
            }
        }
        left.is_empty()
    }

    /// Calls `each` with the index and the bytes of those of `pieces` that lie on this host, in files that this process may read. Which
    /// they were.
    pub(super) async fn read_near<F: FnMut(usize, &[u8]) + Send>(
        &self,
        depots: &[DepotAddress],
        pieces: &[PieceHash],
        each: &Mutex<F>,
    ) -> HashSet<usize> {
        let mut given = HashSet::new();
        for &depot in depots {
            for (segments, mut wanted) in self.places(depot, pieces).await {
                wanted.retain(|(index, ..)| !given.contains(index));
                // As they lie on the disk.
                wanted.sort_by_key(|&(_, _, place)| place);
                let read = self.read_places(depot, Path::new(&segments), &wanted, each, &mut given);
                if let Err(error) = read.await {
                    tracing::warn!(%error, "the disk of a checkpoint actor on this host");
                    break;
                }
            }
        }
        given
    }

    /// Where the depot says that pieces are, if it is on this host: in each folder.
    async fn places(&self, depot: DepotAddress, pieces: &[PieceHash]) -> Vec<(String, Vec<Wanted>)> {
        let mut found = Vec::new();
        // In a simulation there are no files.
        if self.reach == Reach::Network || matches!(self.ground, Ground::Given(_)) || !is_here(depot.address) {
            return found;
        }
        for (round, start) in pieces.chunks(ROUND_PIECES).zip((0..).step_by(ROUND_PIECES)) {
            match self.places_of(depot, round).await {
                Ok(Some((segments, places))) => {
                    let placed = round.iter().zip(start..).zip(places);
                    let sane = |place: &Place| place.len as usize <= PIECE_BYTES;
                    let wanted = placed.filter_map(|((piece, index), place)| Some((index, *piece, place.filter(sane)?)));
                    found.push((segments, wanted.collect()));
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, "it does not say where its pieces are");
                    break;
                }
            }
        }
        found
    }

    /// The folder of its segments, and each piece's place there. None if others do not see its disk.
    async fn places_of(
        &self,
        depot: DepotAddress,
        pieces: &[PieceHash],
    ) -> Result<Option<(String, Vec<Option<Place>>)>, DepotError> {
        let mut talk = self.open(depot).await?;
        let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        talk.say(&Request::Places { pieces: count }, REQUEST_BYTES).await?;
        talk.say(pieces, LIST_BYTES).await?;
        match talk.answer(&mut NowAndThen::new(|| {})).await? {
            Answer::Places { segments, places } if places.len() == pieces.len() => Ok(Some((segments, places))),
            Answer::NotHere => Ok(None),
            other @ (Answer::Places { .. }
            | Answer::Wait
            | Answer::Wanted { .. }
            | Answer::Durable
            | Answer::Bytes { .. }
            | Answer::Damaged { .. }
            | Answer::Refused { .. }) => Err(talk.senseless("a place for each piece", &other)),
        }
    }

    /// Reads these pieces in their order: while some are given on, the next ones are read. Those that are not what they should be are not
    /// given.
    async fn read_places<F: FnMut(usize, &[u8]) + Send>(
        &self,
        depot: DepotAddress,
        segments: &Path,
        wanted: &[Wanted],
        each: &Mutex<F>,
        given: &mut HashSet<usize>,
    ) -> Result<(), DepotError> {
        let (mut near, mut spare, mut read) = (Some(Near::new(segments)), Batch::default(), Batch::default());
        let mut left = wanted;
        while !left.is_empty() || !read.pieces.is_empty() {
            let (next, rest) = left.split_at(how_many(left));
            left = rest;
            let (files, next) = (near.take().unwrap_or_else(|| Near::new(segments)), next.to_vec());
            let reading = self.ground.beside(move || read_batch(files, &next, spare));
            let giving = async {
                for (index, range) in read.pieces.drain(..) {
                    given.insert(index);
                    (each.lock().unwrap_or_else(PoisonError::into_inner))(index, &read.bytes[range]);
                }
            };
            let (done, ()) = tokio::join!(self.patience.with(depot.depot, reading), giving);
            let (files, batch) = done?.ok_or(DepotError::Ending { depot: depot.depot })?;
            (near, spare, read) = (Some(files), read, batch);
        }
        Ok(())
    }
}

/// Whether `address` is one of this host's: then it is also where this host would send from to it. Nothing is sent.
fn is_here(address: SocketAddr) -> bool {
    let any = match address.ip() {
        IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let from = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == address.ip())
}

/// How many of these fit into a batch: at least one.
fn how_many(wanted: &[Wanted]) -> usize {
    let mut filled = 0;
    let fits = wanted.iter().take_while(|(_, _, place)| {
        filled += place.len as usize;
        filled <= NEAR_BYTES
    });
    fits.count().max(1).min(wanted.len())
}

fn read_batch(mut near: Near, wanted: &[Wanted], mut batch: Batch) -> (Near, Batch) {
    let mut filled = 0;
    for &(index, piece, place) in wanted {
        let range = filled..filled + place.len as usize;
        // What was filled before need not be cleared.
        batch.bytes.resize(range.end.max(batch.bytes.len()), 0);
        match near.read(piece, place, &mut batch.bytes[range.clone()]) {
            Ok(()) => {
                filled = range.end;
                batch.pieces.push((index, range));
            }
            Err(error) => tracing::debug!(%error, "a piece is not read from its file"),
        }
    }
    (near, batch)
}
