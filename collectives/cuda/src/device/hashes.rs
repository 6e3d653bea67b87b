//! Hashes of tensors where they lie. Must not know what they are for.

use super::{Device, DeviceError, DeviceTensor, Element, Pinned, Stream, View};
use crate::parameters::MAX_PIECE_BYTES;

/// A BLAKE3 hash.
type Hash = [u8; 32];

impl Device {
    /// The BLAKE3 hash of each 1 MiB of each tensor's bytes, the last piece of a tensor being as long as is left: by one launch for all, once what was enqueued
    /// on `stream` before is done. It waits for them; nothing but hashes comes to the host.
    ///
    /// # Errors
    /// When a tensor lies on another device, memory is refused (32 bytes for each piece on the device and pinned, and 16 more on the device), or the device has
    /// failed.
    pub fn hash<T: Element>(&self, stream: Stream, tensors: &[View<'_, T>]) -> Result<Vec<Vec<Hash>>, DeviceError> {
        let mut pieces = Vec::new();
        let mut counts = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let before = pieces.len();
            let bytes = tensor.bytes();
            let starts = (0..bytes.len()).step_by(MAX_PIECE_BYTES as usize);
            pieces.extend(starts.map(|start| bytes.part(start..bytes.len().min(start + MAX_PIECE_BYTES as usize))));
            counts.push(pieces.len() - before);
        }
        let length = pieces.len() * size_of::<Hash>();
        let mut there = DeviceTensor::<u8>::unset(self, stream, length)?;
        self.on(stream).hash_pieces(&mut there.view_mut(), &pieces)?;
        let mut here = Pinned::<u8>::zeros(self, length)?;
        here.copy_down(stream, &there, 0, 0..length)?;
        let mut hashes = here.read()?.as_chunks().0;
        let of_tensor = |count| {
            let (own, others) = hashes.split_at(count);
            hashes = others;
            own.to_vec()
        };
        Ok(counts.into_iter().map(of_tensor).collect())
    }
}
