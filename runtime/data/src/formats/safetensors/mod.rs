//! Two tensors of a safetensors file, row by row along their first axes: what to train on, kept by Hugging Face's tools.
//!
//! The format is described at <https://github.com/huggingface/safetensors>: the length of a header (8 bytes, little-endian), the header in
//! JSON (name, type, shape and place of each tensor), the numbers.

#[cfg(test)]
mod tests;

use std::path::Path;

use ::safetensors::tensor::{Metadata, TensorInfo};

use super::element::Element;
use super::excerpt::excerpt;
use super::positioned::Positioned;
use super::rows::Rows;
use crate::fingerprint::Fingerprinting;
use crate::{Array, DataError, DataFingerprint, DataHash, Dataset, SampleRandom};

/// Bytes of the header's length.
const LENGTH_BYTES: u64 = 8;

/// The format's own bound. No file with a longer one is read by anybody.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The rows of two tensors, the input of `I` and the target of `T`, read when they are asked for. An item is a row of each, in the shape of
/// its tensor without the first axis: of a tensor of one dimension, it is a single number of shape ().
///
/// Numbers are what the file has, and are not converted: pictures are often [`u8`], labels [`i64`].
///
/// ```no_run
/// use std::path::Path;
///
/// use sardana_data::Dataset;
/// use sardana_data::formats::safetensors::Safetensors;
///
/// # fn main() -> Result<(), sardana_data::DataError> {
/// let train = Safetensors::<f32, i64>::open(Path::new("train.safetensors"), "images", "labels")?;
/// println!("{} samples of shape {:?}", train.len(), train.input_shape());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Safetensors<I, T> {
    file: Positioned,
    /// The names of the two, for the fingerprint.
    names: [String; 2],
    inputs: Rows<I>,
    targets: Rows<T>,
}

impl<I: Element, T: Element> Safetensors<I, T> {
    /// Opens `file`, of which the tensor `input` is the input and the tensor `target` the target.
    ///
    /// # Errors
    /// When it is no safetensors file or is cut short, or lacks one of the tensors, or one has other numbers than are asked for, or they do
    /// not have as many rows as each other.
    pub fn open(file: &Path, input: &str, target: &str) -> Result<Self, DataError> {
        let opened = Positioned::open(file)?;
        let (metadata, start) = header(&opened)?;
        let (inputs, targets) = (rows(file, &metadata, start, input)?, rows(file, &metadata, start, target)?);
        let data = Self {
            file: opened,
            names: [input, target].map(str::to_owned),
            inputs,
            targets,
        };
        if data.inputs.count() != data.targets.count() {
            return Err(DataError::malformed(
                file,
                LENGTH_BYTES,
                format!("as many rows in `{target}` as in `{input}`, {}", data.inputs.count()),
                data.targets.count().to_string(),
            ));
        }
        Ok(data)
    }

    /// The shape of each input.
    #[must_use]
    pub fn input_shape(&self) -> &[usize] {
        self.inputs.shape()
    }

    /// The shape of each target.
    #[must_use]
    pub fn target_shape(&self) -> &[usize] {
        self.targets.shape()
    }
}

impl<I: Element, T: Element> Dataset for Safetensors<I, T> {
    type Item = (Array<I>, Array<T>);

    fn len(&self) -> u64 {
        self.inputs.count()
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Self::Item, DataError> {
        Ok((self.inputs.get(&self.file, index)?, self.targets.get(&self.file, index)?))
    }

    /// The file by its name and hash, and which tensors of it are used. All of the file is read.
    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        let [input, target] = &self.names;
        let names = self.names.each_ref().map(|name| (name.as_bytes(), DataHash::of(&[])));
        Ok(Fingerprinting::default()
            .part(self.file.name(), self.file.hash()?)
            .part(format!("`{input}` as input, `{target}` as target"), DataHash::of_named(names))
            .finish())
    }
}

/// A tensor, as the header of its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// What it is called.
    pub name: String,
    /// What safetensors calls its numbers: `F32` are those of an [`f32`].
    pub dtype: String,
    /// Sizes of its dimensions, slowest first.
    pub shape: Vec<usize>,
}

/// The tensors in `file`, in the order in which they lie there.
///
/// # Errors
/// When it is no safetensors file, or is cut short.
pub fn tensors(file: &Path) -> Result<Vec<Tensor>, DataError> {
    let (metadata, _) = header(&Positioned::open(file)?)?;
    let tensor = |name: String| {
        let TensorInfo { dtype, shape, .. } = metadata.info(&name)?;
        let (dtype, shape) = (format!("{dtype:?}"), shape.clone());
        Some(Tensor { name, dtype, shape })
    };
    Ok(metadata.offset_keys().into_iter().filter_map(tensor).collect())
}

/// What the file says of its tensors, and where they begin. That they lie one after the other and have room for their shapes is checked by
/// [`Metadata`] itself, that they end where the file ends is checked here.
fn header(file: &Positioned) -> Result<(Metadata, u64), DataError> {
    let refusal = |at, expected: &str, found: String| DataError::malformed(file.path(), at, expected, found);
    let length = file.read(0, LENGTH_BYTES, "the header's length")?;
    let length = length.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    if length > MAX_HEADER_BYTES {
        let expected = format!("a header of at most {MAX_HEADER_BYTES} bytes");
        return Err(refusal(0, &expected, length.to_string()));
    }
    let text = file.read(LENGTH_BYTES, length, "the header")?;
    let parsed = serde_json::from_slice::<Metadata>(&text);
    let metadata = parsed.map_err(|error| {
        let expected = "a header of tensors in JSON, which lie one after the other";
        refusal(LENGTH_BYTES, expected, excerpt(error.to_string().as_bytes()))
    })?;
    let start = LENGTH_BYTES + length;
    let (stated, found) = (metadata.data_len() as u64, file.bytes() - start);
    if stated != found {
        let expected = format!("{stated} bytes of tensors up to the end of the file");
        return Err(refusal(start + stated.min(found), &expected, found.to_string()));
    }
    Ok((metadata, start))
}

/// The rows of the tensor `name`.
fn rows<T: Element>(file: &Path, metadata: &Metadata, start: u64, name: &str) -> Result<Rows<T>, DataError> {
    let refusal = |expected, found| DataError::malformed(file, LENGTH_BYTES, expected, found);
    let Some(TensorInfo {
        dtype,
        shape,
        data_offsets,
    }) = metadata.info(name)
    else {
        return Err(refusal(format!("a tensor `{name}`"), listed(metadata)));
    };
    let found = format!("{dtype:?}");
    if found != T::SAFETENSORS {
        return Err(refusal(
            format!("numbers of type {} ({}) in `{name}`", T::RUST, T::SAFETENSORS),
            found,
        ));
    }
    let (at, end) = (start + data_offsets.0 as u64, start + data_offsets.1 as u64);
    let shape: Vec<_> = shape.iter().map(|&size| size as u64).collect();
    let rows = Rows::new(at, end - at, &shape);
    rows.map_err(|(expected, found)| refusal(format!("{expected}, in `{name}`"), found))
}

/// The names of the first few tensors.
fn listed(metadata: &Metadata) -> String {
    const SHOWN: usize = 12;
    let names = metadata.offset_keys();
    let shown: Vec<_> = names
        .iter()
        .take(SHOWN)
        .map(|name| format!("`{}`", excerpt(name.as_bytes())))
        .collect();
    let more = if names.len() > SHOWN {
        format!(" and {} more", names.len() - SHOWN)
    } else {
        String::new()
    };
    if shown.is_empty() {
        "none".to_owned()
    } else {
        shown.join(", ") + &more
    }
}
