//! Files of tensors, and descriptions of them, as any bytes.

use std::path::Path;

use sardana_protocol::limits::PIECE_BYTES;
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_storage::manifest::decode_description;

use super::bare::manifest;
use super::layout::Layout;
use super::safetensors::Tensors;

/// States of more pieces than this are not laid out.
const MOST_PIECES: usize = 1 << 10;

/// The file at `path` as one of tensors, beside a model of two.
pub fn tensors(path: &Path) {
    let Ok(tensors) = Tensors::open(path) else { return };
    let specs = [TensorSpec::new("w", Dtype::F32, &[2]), TensorSpec::new("n", Dtype::U64, &[])];
    tensors.differences(&specs.iter().collect::<Vec<_>>());
    tensors.text("step");
    for spec in &specs {
        for offset in [0, 7, usize::MAX] {
            // What is no file of these says so.
            let _ = tensors.read(&spec.name, offset, &mut [0; 8]);
        }
    }
}

/// Bytes as the description of a state's tensors, under a manifest that agrees with them, and under one that does not.
///
/// # Panics
/// When a description contradicts a manifest that was made for it, or a piece lies nowhere.
pub fn description(bytes: &[u8]) {
    let Ok(specs) = decode_description(bytes) else { return };
    let _ = Layout::new(&manifest(0, 0), specs.clone());
    let lengths: Option<Vec<usize>> = specs.iter().map(TensorSpec::bytes).collect();
    let Some(lengths) = lengths else { return };
    let total = lengths
        .iter()
        .try_fold(0_u64, |total, &bytes| total.checked_add(bytes as u64));
    let pieces = lengths
        .iter()
        .fold(0_usize, |all, bytes| all.saturating_add(bytes.div_ceil(PIECE_BYTES)));
    let Some(total) = total.filter(|_| pieces <= MOST_PIECES) else {
        return;
    };
    let manifest = manifest(total, pieces);
    // Two tensors may have one name.
    let Ok(layout) = Layout::new(&manifest, specs) else { return };
    layout.state_hash(&manifest);
    for number in 0..pieces {
        let bytes = layout.piece_bytes(number).expect("each piece is part of a tensor");
        assert!((1..=PIECE_BYTES).contains(&bytes) && layout.place_of(number).is_some());
    }
    assert_eq!(layout.piece_bytes(pieces), None);
}
