//! A manifest arrives in parts, one after the other.

use sardana_protocol::checkpoint::Part;
use sardana_protocol::snapshot::SnapshotId;
use sardana_storage::manifest::MANIFEST_BYTES;

/// What has come of a manifest so far.
#[derive(Debug, Default)]
pub(super) struct Parts {
    begun: Option<Begun>,
}

#[derive(Debug)]
struct Begun {
    snapshot: SnapshotId,
    of: u64,
    bytes: Vec<u8>,
}

impl Parts {
    /// Takes in the next part: the whole manifest, if it was the last one. A first part begins anew.
    ///
    /// # Errors
    /// What is wrong with it; then all that came before is dropped.
    pub(super) fn add(&mut self, snapshot: SnapshotId, part: Part, bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let mut begun = match self.begun.take() {
            Some(begun) if part.start > 0 => begun,
            Some(_) | None => Begun {
                snapshot,
                of: part.of,
                bytes: Vec::new(),
            },
        };
        let expected = begun.bytes.len() as u64;
        let end = part.start.saturating_add(bytes.len() as u64);
        let fits = part.start == expected && part.of == begun.of && end <= part.of && part.of <= MANIFEST_BYTES as u64;
        if !fits || begun.snapshot != snapshot {
            return Err(format!(
                "expected the part of a manifest from byte {expected} of {}, at most {MANIFEST_BYTES}, found {} to {end} of {}; the \
                 coordinator sends it again from the beginning",
                begun.of, part.start, part.of
            ));
        }
        begun.bytes.extend_from_slice(bytes);
        if end == part.of {
            return Ok(Some(begun.bytes));
        }
        self.begun = Some(begun);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use sardana_protocol::words::{Generation, Incarnation, Step};

    use super::*;

    fn snapshot(step: u64) -> SnapshotId {
        SnapshotId {
            generation: Generation::new(Incarnation::new(1), 1),
            step: Step::new(step),
        }
    }

    fn part(start: u64, of: u64) -> Part {
        Part { start, of }
    }

    #[test]
    fn parts_in_order_are_whole_with_the_last_one() {
        let mut parts = Parts::default();
        assert_eq!(parts.add(snapshot(1), part(0, 5), b"ab"), Ok(None));
        assert_eq!(parts.add(snapshot(1), part(2, 5), b"cd"), Ok(None));
        // It is begun anew.
        assert_eq!(parts.add(snapshot(2), part(0, 3), b"xy"), Ok(None));
        assert_eq!(parts.add(snapshot(2), part(2, 3), b"z"), Ok(Some(b"xyz".to_vec())));
        assert!(parts.add(snapshot(2), part(2, 3), b"z").is_err(), "once is enough");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (snap, start, of, bytes) in [
            (1, 3, 5, "c"),
            (1, 2, 6, "c"),
            (2, 2, 5, "c"),
            (1, 2, 5, "cdef"),
            (1, u64::MAX, 5, "c"),
        ] {
            let mut parts = Parts::default();
            assert_eq!(parts.add(snapshot(1), part(0, 5), b"ab"), Ok(None));
            let error = parts.add(snapshot(snap), part(start, of), bytes.as_bytes()).unwrap_err();
            assert!(error.contains("expected the part"), "{error}");
            assert!(parts.add(snapshot(1), part(2, 5), b"cde").is_err(), "it begins anew");
        }
        let huge = part(0, MANIFEST_BYTES as u64 + 1);
        assert!(Parts::default().add(snapshot(1), huge, b"a").is_err());
    }
}
