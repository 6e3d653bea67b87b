//! How a shard's gradient goes into a buffer: in place of what is there, or added to it. Knows no tensors.

use sardana_protocol::state::Dtype;

use crate::reduce;
use crate::stores::Stores;

/// How a shard's gradient goes into a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// It replaces what is there: the first shard of a running sum, or a shard's own buffer.
    Store,
    /// It is added element by element, `buffer + gradient`: the next shard of a running sum.
    Add,
}

impl WriteMode {
    pub(super) fn put_f32(self, stores: Stores, bytes: &mut [u8], values: &[f32]) {
        if cfg!(target_endian = "little") {
            return self.put_bytes(Dtype::F32, stores, bytes, bytemuck::cast_slice(values));
        }
        let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.put_bytes(Dtype::F32, stores, bytes, &values);
    }

    pub(super) fn put_f64(self, stores: Stores, bytes: &mut [u8], values: &[f64]) {
        if cfg!(target_endian = "little") {
            return self.put_bytes(Dtype::F64, stores, bytes, bytemuck::cast_slice(values));
        }
        let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.put_bytes(Dtype::F64, stores, bytes, &values);
    }

    pub(super) fn put_bytes(self, dtype: Dtype, stores: Stores, bytes: &mut [u8], values: &[u8]) {
        match self {
            Self::Store => stores.copy(bytes, values),
            Self::Add => reduce::add_to(dtype, bytes, values),
        }
    }
}
