//! Where an endpoint takes in connections: which handshakes begin, which client must first prove its address, and which makes way (SEC-2).
//!
//! A stranger may begin handshakes and never finish them. That must keep out neither clients that have been here before, or that the
//! coordinator has named: each of their addresses has places of its own; nor newcomers: in the strangers' room the oldest handshake of
//! the sender that has the most makes way.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use quinn::{Connection, Endpoint, Incoming};
use tracing::Instrument;

use super::connect::{AcceptError, accept};
use super::limits::{
    FAIR_TIME, HANDSHAKE_DEADLINE, HANDSHAKES_OF_KNOWN, MAX_HANDSHAKES, MAX_KNOWN, MAX_LEAVING, RETRY_ABOVE_CONNECTIONS,
    RETRY_ABOVE_HANDSHAKES,
};
use super::places::{Place, Places, Room};
use crate::log::refused;
use crate::trust::PeerIdentity;

/// Takes in the connections of one endpoint.
#[derive(Debug)]
pub struct Door {
    endpoint: Endpoint,
    known: Mutex<Known>,
    of_known: Places<Sender>,
    of_strangers: Places<Sender>,
}

/// A client that wants in, and the place that it has until its handshake is done.
#[derive(Debug)]
pub struct Knock {
    pub(super) incoming: Incoming,
    pub(super) place: Place<Sender>,
}

impl Knock {
    /// Whether it has proved that it receives at its address.
    #[must_use]
    pub fn is_proved(&self) -> bool {
        self.incoming.remote_address_validated()
    }

    /// Turns it away.
    pub fn refuse(self) {
        self.incoming.refuse();
    }
}

/// The sender, as far as an address tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sender {
    /// At an address that is known; any port of it, if its port is 0.
    Known(SocketAddr),
    /// An IPv4 address, or the half of an IPv6 address that a host gets as a whole.
    Stranger(IpAddr),
}

/// Addresses that are known, and when each was told of last.
#[derive(Debug, Default)]
struct Known {
    addresses: BTreeMap<SocketAddr, u64>,
    told: u64,
}

impl Known {
    fn learn(&mut self, address: SocketAddr) {
        self.told += 1;
        self.addresses.insert(address, self.told);
        if self.addresses.len() > MAX_KNOWN
            && let Some(&oldest) = self
                .addresses
                .iter()
                .min_by_key(|(_, told)| **told)
                .map(|(address, _)| address)
        {
            self.addresses.remove(&oldest);
        }
    }

    fn find(&self, from: SocketAddr) -> Option<Sender> {
        let mut host = from;
        host.set_port(0);
        let found = [from, host].into_iter().find(|address| self.addresses.contains_key(address));
        found.map(Sender::Known)
    }
}

impl Door {
    /// The door of `endpoint`.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        let strangers = Room {
            most: MAX_HANDSHAKES,
            each: MAX_HANDSHAKES,
            fair_time: FAIR_TIME,
            leaving: MAX_LEAVING,
        };
        Self::with_room(endpoint, strangers)
    }

    /// The same, with so much room for strangers.
    pub(super) fn with_room(endpoint: Endpoint, strangers: Room) -> Self {
        let known = Room {
            most: usize::MAX,
            each: HANDSHAKES_OF_KNOWN,
            ..strangers
        };
        Self {
            endpoint,
            known: Mutex::default(),
            of_known: Places::new(known),
            of_strangers: Places::new(strangers),
        }
    }

    /// From now on these addresses have places of their own: clients that dial from them are expected. Port 0 stands for any port. Of more
    /// than [`MAX_KNOWN`] addresses, those told of longest ago are forgotten.
    pub fn know(&self, addresses: impl IntoIterator<Item = SocketAddr>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.into_iter().map(canonical).for_each(|address| known.learn(address));
    }

    /// The next client whose handshake may begin; none once the endpoint is closed. Under load, newcomers first prove their address.
    pub async fn next(&self) -> Option<Knock> {
        loop {
            let mut incoming = self.endpoint.accept().await?;
            let from = canonical(incoming.remote_address());
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).find(from);
            if self.is_busy(known) && incoming.may_retry() {
                match incoming.retry() {
                    Ok(()) => continue,
                    Err(validated) => incoming = validated.into_incoming(),
                }
            }
            let place = known.and_then(|known| self.of_known.take(known));
            match place.or_else(|| self.of_strangers.take(stranger(from))) {
                Some(place) => return Some(Knock { incoming, place }),
                // It is told so, and comes again.
                None => incoming.refuse(),
            }
        }
    }

    /// Calls `serve` with each peer that finishes its handshake and may connect to `own`, until the endpoint is closed.
    pub async fn let_in<F: Future<Output = ()> + Send + 'static>(
        &self,
        own: PeerIdentity,
        serve: impl Fn(PeerIdentity, Connection) -> F + Clone + Send + 'static,
    ) {
        while let Some(knock) = self.next().await {
            let serve = serve.clone();
            let meeting = async move {
                match accept(knock, own, HANDSHAKE_DEADLINE).await {
                    Ok((connection, peer)) => serve(peer, connection).await,
                    Err(error @ AcceptError::MadeWay { .. }) => tracing::debug!(%error, "a handshake was given up"),
                    Err(error) => refused!(at info, %error, "a connection was refused"),
                }
            };
            tokio::spawn(meeting.in_current_span());
        }
    }

    /// Whether a newcomer must prove its address: one handshake of a known address is enough, so that no other client takes its places.
    fn is_busy(&self, known: Option<Sender>) -> bool {
        self.endpoint.open_connections() > RETRY_ABOVE_CONNECTIONS
            || self.of_strangers.taken() + self.of_known.taken() >= RETRY_ABOVE_HANDSHAKES
            || known.is_some_and(|known| self.of_known.count(&known) > 0)
    }
}

/// An IPv4 address as such, also where a socket of both families shows it as one of IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn stranger(from: SocketAddr) -> Sender {
    Sender::Stranger(network(from.ip()))
}

/// A host that can choose the second half of its IPv6 address has all of them.
pub(crate) fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_known_by_itself_or_by_its_host_and_the_oldest_is_forgotten() {
        let mut known = Known::default();
        known.learn(at("192.0.2.1:7"));
        known.learn(at("192.0.2.2:0"));
        assert_eq!(known.find(at("192.0.2.1:7")), Some(Sender::Known(at("192.0.2.1:7"))));
        assert_eq!(known.find(at("192.0.2.1:8")), None);
        assert_eq!(known.find(at("192.0.2.2:8")), Some(Sender::Known(at("192.0.2.2:0"))));
        known.learn(at("192.0.2.1:7"));
        for port in 1..MAX_KNOWN {
            known.learn(SocketAddr::new(at("192.0.2.3:0").ip(), u16::try_from(port).unwrap()));
        }
        assert_eq!(known.addresses.len(), MAX_KNOWN);
        assert!(known.find(at("192.0.2.1:7")).is_some(), "told of again");
        assert_eq!(known.find(at("192.0.2.2:8")), None);
    }

    #[test]
    fn a_host_is_one_sender_whatever_address_of_its_network_it_takes() {
        let same = [at("[2001:db8::1]:1"), at("[2001:db8::ffff:0:1]:2")].map(stranger);
        assert_eq!(same[0], same[1]);
        assert_ne!(stranger(at("[2001:db8:0:1::1]:1")), same[0]);
        assert_eq!(stranger(at("[::ffff:192.0.2.1]:1")), stranger(at("192.0.2.1:9")));
        assert_eq!(canonical(at("[::ffff:192.0.2.1]:1")), at("192.0.2.1:1"));
    }
}
