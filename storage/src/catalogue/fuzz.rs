//! A catalogue's marker, and what it keeps in sled, as any bytes.

use super::marker::Mark;
use super::record::{Head, Heading, parse_entry, shown};
use crate::fuzzing::kind;

/// As they are, and with the hash at their end that is right.
///
/// # Panics
/// When what is read is written otherwise: that is what fuzzing looks for.
pub fn fuzz(bytes: &[u8]) {
    match kind(bytes, 5) {
        (0, rest) => drop(Mark::decode(rest)),
        (1, rest) => {
            let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            let (line, padding) = rest.split_at(end);
            let checked = [line, b" check=", blake3::hash(line).to_hex().as_bytes(), padding].concat();
            let _ = Mark::decode(&checked);
        }
        (2, rest) => drop(Head::decode(rest)),
        (3, rest) => drop(Head::decode(&[rest, blake3::hash(rest).as_bytes()].concat())),
        (_, rest) => {
            if let Some((heading, value)) = Heading::decode(rest) {
                assert_eq!(heading.encode(value), rest);
            }
            if let Some((_, key)) = parse_entry(rest) {
                shown(key);
            }
        }
    }
}
