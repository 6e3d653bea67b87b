//! Where a job's coordinator may be found: at one address today, at that of another host once it was taken over there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

/// Most addresses of one job's coordinator. More are not tried.
pub const MAX_WHEREABOUTS: usize = 8;

/// The addresses of a coordinator: where it was found first, then where else it may be. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    found: SocketAddr,
    others: Vec<SocketAddr>,
}

impl Whereabouts {
    /// It was found at `found`, and may be at one of `known` some day.
    #[must_use]
    pub fn new(found: SocketAddr, known: &[SocketAddr]) -> Self {
        let mut others: Vec<SocketAddr> = Vec::new();
        for &address in known {
            if address != found && !others.contains(&address) && others.len() + 1 < MAX_WHEREABOUTS {
                others.push(address);
            }
        }
        Self { found, others }
    }

    /// Where it was found.
    #[must_use]
    pub const fn found(&self) -> SocketAddr {
        self.found
    }

    /// All of them, the one where it was found first.
    pub fn all(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let others = self.others.iter().take(MAX_WHEREABOUTS - 1).copied();
        std::iter::once(self.found).chain(others)
    }
}

impl From<SocketAddr> for Whereabouts {
    /// It never moves.
    fn from(found: SocketAddr) -> Self {
        Self::new(found, &[])
    }
}

/// Looks for a coordinator at one address after the other. Clones look together.
#[derive(Debug, Clone)]
pub struct Search {
    addresses: Arc<[SocketAddr]>,
    /// Counts on for ever.
    at: Arc<AtomicUsize>,
}

impl Search {
    /// Begins where it was found first.
    #[must_use]
    pub fn new(whereabouts: &Whereabouts) -> Self {
        Self {
            addresses: whereabouts.all().collect(),
            at: Arc::default(),
        }
    }

    /// Where to look now: where it was found last.
    #[must_use]
    pub fn here(&self) -> SocketAddr {
        self.addresses[self.at.load(Ordering::Relaxed) % self.addresses.len()]
    }

    /// It is not there.
    pub fn look_elsewhere(&self) {
        self.at.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it may be anywhere else: then what is wrong at one address need not be so at the next.
    #[must_use]
    pub fn is_somewhere_else_maybe(&self) -> bool {
        self.addresses.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    #[test]
    fn each_address_is_tried_in_turn_and_the_last_one_first() {
        let search = Search::new(&Whereabouts::new(at(2), &[at(1), at(2), at(3), at(1)]));
        let other = search.clone();
        let tried: Vec<u16> = (0..4)
            .map(|_| {
                let here = search.here().port();
                search.look_elsewhere();
                here
            })
            .collect();
        assert_eq!(tried, [2, 1, 3, 2]);
        assert_eq!(other.here(), at(1), "clones look together");
    }

    #[test]
    fn addresses_are_bounded() {
        let many: Vec<SocketAddr> = (1..100).map(at).collect();
        assert_eq!(Whereabouts::new(at(1), &many).all().count(), MAX_WHEREABOUTS);
        assert!(!Search::new(&at(1).into()).is_somewhere_else_maybe());
    }
}
