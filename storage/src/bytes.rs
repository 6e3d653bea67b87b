//! Bytes taken apart.

/// Takes the first `N` bytes off the front of `bytes`, if there are as many.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}
