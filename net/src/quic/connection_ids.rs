//! How an endpoint names its connections: at random, so that no two of them meet, and signed, so that it knows its own. Must not know what
//! the connections are for.
//!
//! quinn's own generator draws 3 bytes. An endpoint with a hundred connections has some hundreds of names in use, and the name that it gives a
//! client with a Retry is not compared with them: one dial in some ten thousand got the name of another connection, and no answer
//! (seen as a dial that timed out beside 128 open connections).

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid, RandomConnectionIdGenerator};

/// Bytes drawn at random.
const DRAWN: usize = 8;

/// Bytes that sign them. What a stranger makes up is taken for an own name once in 2^32 times; then it gets a stateless reset.
const SIGNED: usize = 4;

/// Names connections, and knows which it has named: in this life or, with the same key, in an earlier one.
pub(super) struct SignedIds {
    key: [u8; 32],
    draw: RandomConnectionIdGenerator,
}

impl SignedIds {
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self {
            key,
            draw: RandomConnectionIdGenerator::new(DRAWN),
        }
    }

    fn signature(&self, drawn: &[u8]) -> [u8; SIGNED] {
        let mut signature = [0; SIGNED];
        signature.copy_from_slice(&blake3::keyed_hash(&self.key, drawn).as_bytes()[..SIGNED]);
        signature
    }
}

impl ConnectionIdGenerator for SignedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let drawn = self.draw.generate_cid();
        let mut id = [0; DRAWN + SIGNED];
        id[..DRAWN].copy_from_slice(&drawn);
        id[DRAWN..].copy_from_slice(&self.signature(&drawn));
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        match id.split_at_checked(DRAWN) {
            Some((drawn, signature)) if signature == self.signature(drawn) => Ok(()),
            Some(_) | None => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        DRAWN + SIGNED
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn of_many_connections_no_two_have_the_same_name() {
        let mut ids = SignedIds::new([1; 32]);
        // With quinn's 3 bytes some 1,200 of so many are named twice.
        let named: BTreeSet<Vec<u8>> = (0..200_000).map(|_| ids.generate_cid().to_vec()).collect();
        assert_eq!(named.len(), 200_000);
        assert!(named.iter().all(|name| name.len() == ids.cid_len()));
    }

    #[test]
    fn an_endpoint_knows_its_own_names_also_those_of_an_earlier_life() {
        let id = SignedIds::new([1; 32]).generate_cid();
        assert!(SignedIds::new([1; 32]).validate(&id).is_ok());
        assert!(SignedIds::new([2; 32]).validate(&id).is_err());
        let mut forged = id.to_vec();
        forged[3] ^= 1;
        assert!(SignedIds::new([1; 32]).validate(&ConnectionId::new(&forged)).is_err());
        assert!(SignedIds::new([1; 32]).validate(&ConnectionId::new(&id[..5])).is_err());
    }
}
