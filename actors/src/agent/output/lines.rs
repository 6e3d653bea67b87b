//! Bytes cut into lines of a bounded length.

use crate::agent::limits::LINE_BYTES;

/// What follows a piece of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The line's end.
    Newline,
    /// More of the same line: it was too long, or the output ended in the middle of it.
    Nothing,
}

/// Keeps the start of a line until its end comes.
#[derive(Debug, Default)]
pub(super) struct Lines {
    start: Vec<u8>,
}

impl Lines {
    /// Takes in bytes, and returns the pieces that are complete with them, without the newlines.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Vec<(Vec<u8>, Then)> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let room = LINE_BYTES - self.start.len();
            match bytes.iter().take(room + 1).position(|byte| *byte == b'\n') {
                Some(end) => {
                    self.start.extend_from_slice(&bytes[..end]);
                    pieces.push((std::mem::take(&mut self.start), Then::Newline));
                    bytes = &bytes[end + 1..];
                }
                None if bytes.len() <= room => {
                    self.start.extend_from_slice(bytes);
                    bytes = &[];
                }
                None => {
                    self.start.extend_from_slice(&bytes[..room]);
                    let rest = self.start.split_off(letter_end(&self.start));
                    pieces.push((std::mem::replace(&mut self.start, rest), Then::Nothing));
                    bytes = &bytes[room..];
                }
            }
        }
        pieces
    }

    /// The rest, if the output ended in the middle of a line.
    pub(super) fn rest(self) -> Option<(Vec<u8>, Then)> {
        (!self.start.is_empty()).then_some((self.start, Then::Nothing))
    }
}

/// Where to cut so that the last letter stays whole, if the bytes are UTF-8.
fn letter_end(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(4);
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() >= tail && error.valid_up_to() > 0 => {
            error.valid_up_to()
        }
        Ok(_) | Err(_) => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(chunks: &[&[u8]]) -> Vec<(Vec<u8>, Then)> {
        let mut lines = Lines::default();
        let mut pieces: Vec<_> = chunks.iter().flat_map(|chunk| lines.push(chunk)).collect();
        pieces.extend(lines.rest());
        pieces
    }

    /// What the pieces were made from.
    fn joined(pieces: &[(Vec<u8>, Then)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (piece, then) in pieces {
            bytes.extend_from_slice(piece);
            if *then == Then::Newline {
                bytes.push(b'\n');
            }
        }
        bytes
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        let pieces = cut(&[b"on", b"e\ntwo\n\nthr", b"ee"]);
        let expected: [(&[u8], Then); 4] = [
            (b"one", Then::Newline),
            (b"two", Then::Newline),
            (b"", Then::Newline),
            (b"three", Then::Nothing),
        ];
        let expected: Vec<_> = expected.iter().map(|(piece, then)| (piece.to_vec(), *then)).collect();
        assert_eq!(pieces, expected);
    }

    #[test]
    fn a_long_line_is_cut_between_letters_and_loses_nothing() {
        let long = "ä".repeat(LINE_BYTES);
        let odd = format!("x{long}\nend\n");
        let pieces = cut(&[odd.as_bytes()]);
        assert!(pieces.len() > 2);
        assert!(
            pieces
                .iter()
                .all(|(piece, _)| piece.len() <= LINE_BYTES && std::str::from_utf8(piece).is_ok())
        );
        assert_eq!(joined(&pieces), odd.as_bytes());
        let exact = [vec![b'y'; LINE_BYTES], vec![b'\n']].concat();
        assert_eq!(
            cut(&[&exact]).len(),
            1,
            "a newline after the last byte that fits is the line's own"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_chunks_come_out_as_they_went_in(
            chunks in prop::collection::vec(prop::collection::vec(prop_oneof![4 => any::<u8>(), 1 => Just(b'\n')], 0..9_000), 0..8)
        ) {
            let slices: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let pieces = cut(&slices);
            prop_assert_eq!(joined(&pieces), chunks.concat());
            prop_assert!(pieces.iter().all(|(piece, _)| piece.len() <= LINE_BYTES && !piece.contains(&b'\n')));
        }
    }
}
