//! Arrays and tensors. Their numbers may be anything, so that all there is to see is that the file is whole; it is read once, for its hash.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sardana::data::fingerprint::Fingerprinting;
use sardana::data::formats::npy::{self, Npy};
use sardana::data::formats::{Element, safetensors};
use sardana::data::{DataError, DataHash, Dataset};

use super::super::survey::{Contents, DataSet};
use super::{Reading, bytes};

/// Bytes that are read at a time: often enough for a bar, seldom enough to cost nothing.
const PIECE_BYTES: usize = 1 << 20;

/// An array.
pub(super) fn npy(set: &mut DataSet, reading: &mut Reading<'_>) -> Result<(), DataError> {
    let (descr, at) = npy::descr(&set.at)?;
    let (rows, row) = match descr.as_str() {
        "<f4" => rows::<f32>(&set.at),
        "<f8" => rows::<f64>(&set.at),
        "|u1" | "<u1" | "=u1" | "u1" => rows::<u8>(&set.at),
        "<i4" => rows::<i32>(&set.at),
        "<i8" => rows::<i64>(&set.at),
        "<u4" => rows::<u32>(&set.at),
        other => {
            let expected = "numbers of type f32 (`<f4`), f64 (`<f8`), u8 (`|u1`), i32 (`<i4`), i64 (`<i8`) or u32 (`<u4`)";
            let found = format!("`{other}`; save `array.astype('<f4')`, or another of these");
            Err(DataError::malformed(&set.at, at, expected, found))
        }
    }?;
    let shape = std::iter::once(rows).chain(row).collect();
    set.contents = Contents::Array { dtype: descr, shape };
    set.samples = Some(rows);
    through(set, reading)?;
    set.read = rows;
    Ok(())
}

/// How many rows there are, and the shape of each.
fn rows<T: Element>(file: &Path) -> Result<(u64, Vec<u64>), DataError> {
    let data = Npy::<T>::open(file)?;
    Ok((data.len(), data.shape().iter().map(|&size| size as u64).collect()))
}

/// A file of tensors. Which of them are the samples is the program's to say.
pub(super) fn safetensors(set: &mut DataSet, reading: &mut Reading<'_>) -> Result<(), DataError> {
    set.contents = Contents::Tensors(safetensors::tensors(&set.at)?);
    through(set, reading)
}

/// Reads a file to its end: what a fingerprint says of it is its name, and the hash of its bytes.
fn through(set: &mut DataSet, reading: &mut Reading<'_>) -> Result<(), DataError> {
    let total = bytes([&set.at])?;
    set.bytes = Some(total);
    let mut file = File::open(&set.at).map_err(DataError::io(&set.at, "open it"))?;
    let (mut hasher, mut piece, mut done) = (DataHash::hasher(), vec![0; PIECE_BYTES], 0);
    loop {
        let read = file.read(&mut piece).map_err(DataError::io(&set.at, "read it"))?;
        if read == 0 {
            break;
        }
        hasher.update(&piece[..read]);
        done += read as u64;
        reading.tell(done, total);
    }
    let name = set.at.file_name().unwrap_or_default().to_string_lossy();
    let print = Fingerprinting::default().part(name, DataHash::finish(&hasher));
    set.fingerprint = Some(print.finish());
    Ok(())
}
