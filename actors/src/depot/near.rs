//! Depots on this very host: what they keep is read from their files, and passes no network. They only say where it is, and what is read
//! is compared with its hash as ever: whatever cannot be had like this is asked for over the network.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use futures_util::future::join_all;
use sardana_net::environment::Environment;
use sardana_protocol::checkpoint::placement::ranked;
use sardana_protocol::checkpoint::{DepotAddress, DepotId, PieceHash};
use sardana_protocol::limits::PIECE_BYTES;
use sardana_storage::store::{Place, Reading, Wanted, read_near};
use tokio::time::timeout;

use super::asking::NowAndThen;
use super::client::{Depots, Reach};
use super::error::DepotError;
use super::limits::{LIST_BYTES, NEAR_BYTES, REQUEST_BYTES, ROUND_PIECES};
use super::talk::{Answer, Request};

/// Where a piece is, on this host.
#[derive(Debug, Clone)]
struct Spot {
    /// The depot that says so.
    depot: DepotAddress,
    segments: Arc<Path>,
    place: Place,
}

/// The pieces that lie on this host, by index, as its depots say.
#[derive(Debug, Default)]
pub(crate) struct Nearby(BTreeMap<usize, Spot>);

impl Nearby {
    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Of several places that which is asked for first over the network, too: each depot reads its part.
    fn add(&mut self, index: usize, piece: PieceHash, spot: Spot) {
        let other = self.0.get(&index).map(|other| other.depot.depot);
        let own = spot.depot.depot;
        if other.is_none_or(|other| ranked(piece, &[other, own])[0] == own) {
            self.0.insert(index, spot);
        }
    }
}

/// The task that waits for a reading has this: with it the reading ends.
#[derive(Default)]
struct GivenUp(Arc<Reading>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Pieces that were read, and where in `bytes` each lies.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    pieces: Vec<(usize, Range<usize>)>,
}

impl Depots {
    /// Which of `pieces` lie on this host, in files that others than the depot see.
    pub(crate) async fn nearby(&self, depots: &[DepotAddress], pieces: &[PieceHash]) -> Nearby {
        let mut nearby = Nearby::default();
        // In a simulation there are no files.
        if self.reach == Reach::Network || matches!(self.environment, Environment::Simulated(_)) {
            return nearby;
        }
        let here = depots.iter().filter(|depot| is_here(depot.address));
        let asking = here.map(|&depot| timeout(self.patience.wait_every, self.places(depot, pieces)));
        for places in join_all(asking).await {
            match places {
                Ok(Ok(places)) => places
                    .into_iter()
                    .for_each(|(index, spot)| nearby.add(index, pieces[index], spot)),
                Ok(Err(error)) => tracing::debug!(%error, "it does not say where its pieces are"),
                Err(_) => tracing::debug!("a checkpoint actor does not say in time where its pieces are"),
            }
        }
        nearby
    }

    /// Where a depot says that pieces are, by index. None if others do not see its disk.
    async fn places(&self, depot: DepotAddress, pieces: &[PieceHash]) -> Result<Vec<(usize, Spot)>, DepotError> {
        let mut found = Vec::new();
        for (round, start) in pieces.chunks(ROUND_PIECES).zip((0..).step_by(ROUND_PIECES)) {
            let mut talk = self.open(depot).await?;
            let count = u32::try_from(round.len()).unwrap_or(u32::MAX);
            talk.say(&Request::Places { pieces: count }, REQUEST_BYTES).await?;
            talk.say(round, LIST_BYTES).await?;
            let (segments, places) = match talk.answer(&mut NowAndThen::new(|| {})).await? {
                Answer::Places { segments, places } => (segments, places),
                Answer::NotHere => break,
                other @ (Answer::Wait
                | Answer::Wanted { .. }
                | Answer::Durable
                | Answer::Bytes { .. }
                | Answer::Damaged { .. }
                | Answer::Refused { .. }
                | Answer::Seen
                | Answer::Unseen) => return Err(talk.senseless("places", &other)),
            };
            let segments: Arc<Path> = Path::new(&segments).into();
            let sane = places.iter().flatten().all(is_sane);
            if !sane || places.len() != round.len() || !segments.is_absolute() {
                return Err(DepotError::Senseless {
                    depot: depot.depot,
                    expected: "a folder, and in it a place for each piece",
                    found: format!("{} places in {}", places.len(), segments.display()),
                });
            }
            let placed = (start..).zip(places).filter_map(|(index, place)| Some((index, place?)));
            found.extend(placed.map(|(index, place)| {
                let segments = Arc::clone(&segments);
                (index, Spot { depot, segments, place })
            }));
        }
        Ok(found)
    }

    /// Reads those of `pieces` that are nearby into `room`, in which they lie one after the other. Returns the indices of those that `room`
    /// then lacks. None if the disk hangs: then the room is lost. `moved` is told now and then about how many bytes more are there.
    pub(crate) async fn read_into(
        &self,
        nearby: Nearby,
        pieces: Vec<(PieceHash, Range<usize>)>,
        mut room: BytesMut,
        moved: impl Fn(usize) + Send,
    ) -> Option<(BytesMut, Vec<usize>)> {
        let bytes_each = pieces.last().map_or(0, |(_, range)| range.end / pieces.len());
        let given_up = GivenUp::default();
        let progress = Arc::clone(&given_up.0);
        let reading = self.environment.own_thread(move || {
            let mut lacking = Vec::new();
            let mut wanted = Vec::new();
            let (mut rest, mut at) = (&mut room[..], 0);
            for (index, (piece, range)) in pieces.iter().enumerate() {
                let (bytes, later) = rest.split_at_mut(range.end.saturating_sub(at).min(rest.len()));
                (rest, at) = (later, range.end);
                match nearby.0.get(&index).filter(|spot| spot.place.len as usize == bytes.len()) {
                    Some(Spot { segments, place, .. }) => wanted.push(Wanted {
                        index,
                        piece: *piece,
                        segments,
                        place: *place,
                        bytes,
                    }),
                    None => lacking.push(index),
                }
            }
            lacking.extend(read_near(wanted, &progress));
            (room, lacking)
        });
        let (mut reading, mut before) = (pin!(reading), 0);
        loop {
            match timeout(self.patience.silent, &mut reading).await {
                Ok(done) => {
                    moved((given_up.0.read() - before) * bytes_each);
                    return done;
                }
                Err(_) if given_up.0.read() > before => {
                    let read = given_up.0.read();
                    moved((read - before) * bytes_each);
                    before = read;
                }
                Err(_) => {
                    let after = self.patience.silent;
                    tracing::warn!(
                        ?after,
                        "a disk of this host hangs: what a checkpoint actor keeps there is asked for over the network"
                    );
                    return None;
                }
            }
        }
    }

    /// Calls `each` with the index and the bytes of those of `pieces` that lie on this host, in files that this process may read. Which
    /// they were.
    pub(super) async fn read_near<F: FnMut(usize, &[u8]) + Send>(
        &self,
        depots: &[DepotAddress],
        pieces: &[PieceHash],
        each: &Mutex<F>,
    ) -> HashSet<usize> {
        let mut left: Vec<(usize, PieceHash, Spot)> = Vec::new();
        for (index, spot) in self.nearby(depots, pieces).await.0 {
            left.push((index, pieces[index], spot));
        }
        left.sort_by(|(.., one), (.., other)| (&one.segments, one.place).cmp(&(&other.segments, other.place)));
        let mut given = HashSet::new();
        if self.read_files(&left, each, &mut given).await {
            left.retain(|(index, ..)| !given.contains(index));
            self.read_rest(&left, each, &mut given).await;
        }
        given
    }

    /// Reads what is in files. Whether the disk has answered.
    async fn read_files<F: FnMut(usize, &[u8]) + Send>(
        &self,
        mut left: &[(usize, PieceHash, Spot)],
        each: &Mutex<F>,
        given: &mut HashSet<usize>,
    ) -> bool {
        let (mut spare, mut read) = (Batch::default(), Batch::default());
        while !left.is_empty() || !read.pieces.is_empty() {
            let (next, rest) = left.split_at(how_many(left));
            left = rest;
            let next = next.to_vec();
            let given_up = GivenUp::default();
            let progress = Arc::clone(&given_up.0);
            let reading = self.environment.own_thread(move || {
                spare.read(&next, &progress);
                spare
            });
            // While one batch is given on the next batch is read.
            let giving = async {
                for (index, range) in read.pieces.drain(..) {
                    given.insert(index);
                    (each.lock().unwrap_or_else(PoisonError::into_inner))(index, &read.bytes[range]);
                }
            };
            let (done, ()) = tokio::join!(timeout(self.patience.silent, reading), giving);
            // It hangs, or this process ends.
            let Ok(Some(batch)) = done else { return false };
            (spare, read) = (read, batch);
        }
        true
    }

    /// Asks each depot for pieces that were not where it said: it has moved them, or learns that they are damaged, and heals them.
    async fn read_rest<F: FnMut(usize, &[u8]) + Send>(
        &self,
        left: &[(usize, PieceHash, Spot)],
        each: &Mutex<F>,
        given: &mut HashSet<usize>,
    ) {
        let mut of_depots: BTreeMap<DepotId, (DepotAddress, Vec<usize>, Vec<PieceHash>)> = BTreeMap::new();
        for (index, piece, spot) in left {
            let empty = || (spot.depot, Vec::new(), Vec::new());
            let (_, indices, pieces) = of_depots.entry(spot.depot.depot).or_insert_with(empty);
            indices.push(*index);
            pieces.push(*piece);
        }
        for (depot, indices, pieces) in of_depots.into_values() {
            let got = self.get(depot, &pieces, |number, bytes| {
                given.insert(indices[number]);
                (each.lock().unwrap_or_else(PoisonError::into_inner))(indices[number], bytes);
            });
            // What it does not give, other depots are asked for, and then this one once more.
            if let Err(error) = got.await {
                tracing::info!(%error, "a checkpoint actor on this host does not give what it said it has");
            }
        }
    }
}

impl Batch {
    fn read(&mut self, next: &[(usize, PieceHash, Spot)], progress: &Reading) {
        let end: usize = next.iter().map(|(.., spot)| spot.place.len as usize).sum();
        // What was filled before need not be cleared.
        self.bytes.resize(end.max(self.bytes.len()), 0);
        let (mut wanted, mut rest, mut at) = (Vec::new(), self.bytes.as_mut_slice(), 0);
        for (index, piece, Spot { segments, place, .. }) in next {
            let (bytes, later) = rest.split_at_mut(place.len as usize);
            self.pieces.push((*index, at..at + bytes.len()));
            (rest, at) = (later, at + bytes.len());
            wanted.push(Wanted {
                index: *index,
                piece: *piece,
                segments,
                place: *place,
                bytes,
            });
        }
        let lacking = read_near(wanted, progress);
        self.pieces.retain(|(index, _)| !lacking.contains(index));
    }
}

/// How many of these fit into a batch: at least one.
fn how_many(left: &[(usize, PieceHash, Spot)]) -> usize {
    let mut filled = 0;
    let fits = left.iter().take_while(|(.., spot)| {
        filled += spot.place.len as usize;
        filled <= NEAR_BYTES
    });
    fits.count().max(1).min(left.len())
}

/// Whether this can be where a piece is.
fn is_sane(place: &Place) -> bool {
    let end = place.offset.checked_add(PIECE_BYTES as u64 * 2);
    place.len as usize <= PIECE_BYTES && end.is_some_and(|end| i64::try_from(end).is_ok())
}

/// Whether `address` is one of this host's: then it is also the source address for what this host sends there. Nothing is sent.
pub(crate) fn is_here(address: SocketAddr) -> bool {
    if address.ip().is_loopback() {
        return true;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_known_to_be_of_this_host() {
        let at = |text: &str| is_here(text.parse().unwrap());
        assert!(at("127.0.0.1:9") && at("127.0.0.2:9"));
        // Set aside for documentation: no host has it.
        assert!(!at("192.0.2.1:9") && !at("[2001:db8::1]:9"));
    }
}
