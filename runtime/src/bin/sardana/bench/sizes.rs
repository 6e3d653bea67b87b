//! Sizes as a person gives them: some, or a range. Must not know what has them.

use std::str::FromStr;

use bytesize::ByteSize;

/// Sizes in bytes, which whole f32 fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sizes(pub(super) Vec<u64>);

/// The least and the most that is measured.
const BOUNDS: (u64, u64) = (4, 4 << 30);

/// One size within the bounds.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let parsed = text.trim().parse::<ByteSize>().map(|size| size.as_u64());
    let fits = |size: &u64| (BOUNDS.0..=BOUNDS.1).contains(size) && size.is_multiple_of(4);
    parsed
        .ok()
        .filter(fits)
        .ok_or_else(|| format!("expected a size from 4B to 4GiB that whole f32 fill, such as 64KiB, found `{text}`"))
}

/// A size as a person reads it.
pub(super) fn words(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((from, to)) = text.split_once("..") {
            let (from, to) = (size(from)?, size(to)?);
            if from > to {
                return Err(format!("expected the smaller size first, found `{text}`"));
            }
            let sizes = std::iter::successors(Some(from), |size| Some(size * 4));
            return Ok(Self(sizes.take_while(|&size| size <= to).collect()));
        }
        text.split(',').map(size).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_lists_or_ranges() {
        let sizes = |text: &str| text.parse::<Sizes>().map(|sizes| sizes.0);
        assert_eq!(sizes("4KiB..256KiB").unwrap(), [4 << 10, 16 << 10, 64 << 10, 256 << 10]);
        assert_eq!(sizes("1MiB, 3MB").unwrap(), [1 << 20, 3_000_000]);
        for wrong in ["", "four", "8MiB..1MiB", "1..8KiB", "5TiB", "1MiB..", "-1", "6B"] {
            let error = sizes(wrong).unwrap_err();
            assert!(error.contains("expected"), "{wrong}: {error}");
        }
    }
}
