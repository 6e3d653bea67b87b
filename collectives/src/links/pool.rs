//! Payloads, or whole frames, on their way out, whose memory is used again once the transport has let go of it. Knows not what is in them.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::limits::POOLED_CHUNKS;

/// The last payloads that were handed to a transport.
#[derive(Debug, Default)]
pub(super) struct Pool {
    sent: VecDeque<Bytes>,
}

impl Pool {
    /// A payload of `bytes` bytes that `fill` writes. What they were before is anything.
    pub(super) fn filled(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Bytes {
        if bytes == 0 {
            // It has no memory to be used again, and never counts as let go of.
            fill(&mut []);
            return Bytes::new();
        }
        let mut payload = self.room(bytes);
        fill(&mut payload);
        let payload = payload.freeze();
        if self.sent.len() < POOLED_CHUNKS {
            self.sent.push_back(payload.clone());
        }
        payload
    }

    fn room(&mut self, bytes: usize) -> BytesMut {
        // The oldest is let go of first.
        match self.sent.pop_front().map(Bytes::try_into_mut) {
            Some(Ok(mut free)) => {
                free.resize(bytes, 0);
                free
            }
            Some(Err(in_use)) => {
                self.sent.push_front(in_use);
                counted(bytes)
            }
            None => counted(bytes),
        }
    }
}

/// Memory whose holders are counted from the start: where it is counted is allocated with it, and not anew for each payload.
fn counted(bytes: usize) -> BytesMut {
    BytesMut::zeroed(bytes).split()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_once_nothing_else_has_it() {
        let mut pool = Pool::default();
        let first = pool.filled(4, |bytes| bytes.copy_from_slice(b"abcd"));
        let second = pool.filled(4, |bytes| bytes.copy_from_slice(b"efgh"));
        assert_eq!(
            (&first[..], &second[..]),
            (&b"abcd"[..], &b"efgh"[..]),
            "what is on its way stays"
        );
        let address = first.as_ptr();
        drop(first);
        let third = pool.filled(4, |bytes| bytes.copy_from_slice(b"ijkl"));
        assert_eq!(third.as_ptr(), address);
        assert_eq!((&second[..], &third[..]), (&b"efgh"[..], &b"ijkl"[..]));
        // One that is empty takes no part.
        assert_eq!(pool.filled(0, |bytes| assert!(bytes.is_empty())), "");
        // A shorter one fits as well.
        let kept = [second.as_ptr(), third.as_ptr()];
        drop((second, third));
        let fourth = pool.filled(2, |bytes| bytes.copy_from_slice(b"mn"));
        assert_eq!(&fourth[..], b"mn");
        assert!(
            kept.contains(&fourth.as_ptr()),
            "memory is used again after an empty one, too"
        );
    }

    #[test]
    fn as_much_is_kept_as_may_be_on_its_way() {
        let mut pool = Pool::default();
        let held: Vec<Bytes> = (0..2 * POOLED_CHUNKS).map(|_| pool.filled(1, |_| ())).collect();
        assert_eq!(pool.sent.len(), POOLED_CHUNKS);
        drop(held);
    }
}
