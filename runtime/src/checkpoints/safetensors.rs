//! The safetensors format: eight bytes that say how long the header is, the header as JSON, then the bytes of all tensors. Must not know
//! of checkpoints.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Metadata, TensorInfo};
use sardana_protocol::state::{Dtype, TensorSpec};

/// Longest header that readers of the format take.
const HEADER_BYTES: u64 = 100_000_000;

/// What a header calls the file's own texts; no tensor can be called so.
const RESERVED: &str = "__metadata__";

/// A file that is not one of the format, or not one that can be read. The user gives another one.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system said no.
    #[error("{}: {reason}; see whether the path is right, and whether there is room", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The file is there already, and is not replaced.
    #[error("{} is there already; remove it first if it is not needed, or give another path", .0.display())]
    Exists(PathBuf),
    /// The file is something else.
    #[error("{}: expected a safetensors file, found {found}; give another file", .path.display())]
    Senseless {
        /// The file.
        path: PathBuf,
        /// What was found instead.
        found: String,
    },
    /// The tensors cannot be written in this format, because of these.
    #[error("expected tensors that a safetensors file can hold, found {0}; there is no way to export these")]
    Tensors(String),
}

pub(super) fn system(path: &Path, error: impl ToString) -> FileError {
    FileError::System {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

const fn dtype(dtype: Dtype) -> safetensors::Dtype {
    match dtype {
        Dtype::F32 => safetensors::Dtype::F32,
        Dtype::F64 => safetensors::Dtype::F64,
        Dtype::U64 => safetensors::Dtype::U64,
    }
}

/// In which order tensors are written: those with longer elements first, so that all are aligned.
pub(super) fn order(specs: &[&TensorSpec]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..specs.len()).collect();
    order.sort_by_key(|&number| std::cmp::Reverse(specs.get(number).map_or(0, |spec| spec.dtype.bytes())));
    order
}

/// What stands before the bytes of tensors that are written in this order, the length included.
///
/// # Errors
/// [`FileError::Tensors`].
pub(super) fn header(specs: &[&TensorSpec], texts: HashMap<String, String>) -> Result<Vec<u8>, FileError> {
    let refused = FileError::Tensors;
    let (mut infos, mut start) = (Vec::new(), 0_usize);
    for spec in specs {
        if spec.name == RESERVED {
            return Err(refused(format!("one called {RESERVED}")));
        }
        let end = spec.bytes().and_then(|bytes| start.checked_add(bytes));
        let end = end.ok_or_else(|| refused(format!("{spec}, which is too long")))?;
        infos.push((
            spec.name.clone(),
            TensorInfo {
                dtype: dtype(spec.dtype),
                shape: spec.shape.clone(),
                data_offsets: (start, end),
            },
        ));
        start = end;
    }
    let metadata = Metadata::new(Some(texts), infos).map_err(|error| refused(error.to_string()))?;
    // By way of a value, whose texts are in order: the same checkpoint gives the same file.
    let json = serde_json::to_value(&metadata).and_then(|value| serde_json::to_vec(&value));
    let mut json = json.map_err(|error| refused(error.to_string()))?;
    json.resize(json.len().next_multiple_of(8), b' ');
    if json.len() as u64 > HEADER_BYTES {
        return Err(refused(format!("names and shapes of {} bytes", json.len())));
    }
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut json);
    Ok(bytes)
}

/// A file of tensors, open.
#[derive(Debug)]
pub(super) struct Tensors {
    path: PathBuf,
    file: File,
    /// Where the tensors' bytes begin.
    start: u64,
    metadata: Metadata,
}

impl Tensors {
    /// Reads the header of the file at `path`, and sees whether the file is as long as it says.
    ///
    /// # Errors
    /// See [`FileError`].
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        let senseless = |found: String| FileError::Senseless {
            path: path.to_owned(),
            found,
        };
        // A pipe must not be waited for.
        if !std::fs::metadata(path).map_err(|error| system(path, error))?.is_file() {
            return Err(senseless("something that is no file".to_owned()));
        }
        let file = File::open(path).map_err(|error| system(path, error))?;
        let length = file.metadata().map_err(|error| system(path, error))?.len();
        let mut head = [0; 8];
        if length < 8 {
            return Err(senseless(format!("{length} bytes")));
        }
        file.read_exact_at(&mut head, 0).map_err(|error| system(path, error))?;
        let head = u64::from_le_bytes(head);
        if head > HEADER_BYTES.min(length - 8) {
            return Err(senseless(format!(
                "{length} bytes, and a header that would have {head} of them (at most {HEADER_BYTES} are read)"
            )));
        }
        let mut json = vec![0; usize::try_from(head).unwrap_or(0)];
        file.read_exact_at(&mut json, 8).map_err(|error| system(path, error))?;
        let metadata: Metadata =
            serde_json::from_slice(&json).map_err(|error| senseless(format!("a header that makes no sense: {error}")))?;
        let start = 8 + head;
        let expected = start.saturating_add(metadata.data_len() as u64);
        if expected != length {
            return Err(senseless(format!(
                "{length} bytes where its header tells of {expected}: it was cut, or grew"
            )));
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            start,
            metadata,
        })
    }

    /// One of the file's own texts.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.metadata.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// How its tensors differ from `specs`, in words; empty if they do not.
    pub(super) fn differences(&self, specs: &[&TensorSpec]) -> Vec<String> {
        let mut found = self.metadata.tensors();
        let mut differences = Vec::new();
        for spec in specs {
            match found.remove(&spec.name) {
                None => differences.push(format!("{:?} is missing", spec.name)),
                Some(info) => {
                    if (info.dtype, &info.shape) != (dtype(spec.dtype), &spec.shape) {
                        let found = format!("{:?}", info.dtype).to_lowercase();
                        differences.push(format!(
                            "{:?}: expected {}{:?}, found {found}{:?}",
                            spec.name, spec.dtype, spec.shape, info.shape
                        ));
                    }
                }
            }
        }
        let mut more: Vec<&String> = found.keys().collect();
        more.sort();
        differences.extend(more.into_iter().map(|name| format!("{name:?} is one too many")));
        differences
    }

    /// Reads bytes of the tensor `name` into `buffer`, from `offset` of its own bytes on.
    ///
    /// # Errors
    /// When there are not so many, or the disk says no.
    pub(super) fn read(&self, name: &str, offset: usize, buffer: &mut [u8]) -> Result<(), FileError> {
        let info = self.metadata.info(name);
        let from = info.and_then(|info| info.data_offsets.0.checked_add(offset));
        let from = from.ok_or_else(|| FileError::Senseless {
            path: self.path.clone(),
            found: format!("no tensor {name:?}"),
        })?;
        let read = self.file.read_exact_at(buffer, self.start.saturating_add(from as u64));
        read.map_err(|error| system(&self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_aligned_and_the_same_each_time() {
        let specs = [
            TensorSpec::new("w", Dtype::F32, &[3]),
            TensorSpec::new("n", Dtype::U64, &[]),
            TensorSpec::new("m", Dtype::F64, &[2]),
        ];
        let specs: Vec<&TensorSpec> = specs.iter().collect();
        let order = order(&specs);
        assert_eq!(order, [1, 2, 0]);
        let ordered: Vec<&TensorSpec> = order.iter().map(|&number| specs[number]).collect();
        let texts = || ["a", "b", "c"].map(|key| (key.to_owned(), key.to_owned())).into();
        let bytes = header(&ordered, texts()).unwrap();
        assert!(bytes.len().is_multiple_of(8));
        for _ in 0..20 {
            assert_eq!(header(&ordered, texts()).unwrap(), bytes);
        }
    }

    #[test]
    fn tensors_that_the_format_cannot_hold_are_refused() {
        for (spec, words) in [
            (TensorSpec::new(RESERVED, Dtype::F32, &[1]), "one called __metadata__"),
            (
                TensorSpec::new("x", Dtype::F32, &[usize::MAX, usize::MAX]),
                "which is too long",
            ),
        ] {
            let error = header(&[&spec], HashMap::new()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
