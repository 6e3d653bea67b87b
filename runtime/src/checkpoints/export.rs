//! A checkpoint becomes a safetensors file, piece by piece: the memory that it takes is that of one piece, and of the header.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;

use sardana_protocol::checkpoint::{Manifest, ManifestKey};
use sardana_protocol::state::{StateHash, TensorSpec};
use sardana_storage::private::folder_of;
use tempfile::NamedTempFile;

use super::directory::{Checkpoints, UnreadManifest};
use super::layout::{Layout, LayoutError, PieceError};
use super::safetensors::{FileError, header, order, system};

/// The texts of an exported file. Readers of other programs look for `format`: so elements are laid out as PyTorch's are.
pub(super) const FORMAT: (&str, &str) = ("format", "pt");
/// The version of the texts that follow.
const VERSION: (&str, &str) = ("sardana.format", "1");
/// The step of the state.
pub(super) const STEP: &str = "sardana.step";
/// The name of the job.
const JOB: &str = "sardana.job";
/// The hash of the state.
pub(super) const STATE: &str = "sardana.state";
/// The id of the checkpoint.
const CHECKPOINT: &str = "sardana.checkpoint";

/// Why a checkpoint was not exported. There is no file then, and nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Its manifest cannot be read.
    #[error(transparent)]
    Manifest(#[from] UnreadManifest),
    /// What its pieces are is not known.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A piece cannot be had.
    #[error("{place}: {source}")]
    Piece {
        /// The bytes of the tensor that it is, in words.
        place: String,
        /// Why the piece cannot be had.
        #[source]
        source: PieceError,
    },
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A state that was exported.
#[derive(Debug, Clone)]
pub struct Exported {
    /// The hash of the state.
    pub state: StateHash,
    /// How many tensors it has.
    pub tensors: usize,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Checkpoints {
    /// Writes the state of a checkpoint to a safetensors file at `out`, which must not be there: it is there whole when this returns, and
    /// only for its owner to read. Calls `progress` with the bytes of each piece.
    ///
    /// # Errors
    /// See [`ExportError`].
    pub fn export(&self, key: ManifestKey, out: &Path, progress: &mut dyn FnMut(u64)) -> Result<Exported, ExportError> {
        let manifest = self.main().manifest(key)?;
        let layout = self.layout(&manifest)?;
        if out.symlink_metadata().is_ok() {
            return Err(FileError::Exists(out.to_owned()).into());
        }
        // Before anything is written.
        for (number, &piece) in manifest.pieces.iter().enumerate() {
            if let Some(source) = self.lack(piece) {
                return Err(lacking(&layout, number, source));
            }
        }
        let specs: Vec<&TensorSpec> = layout.tensors.iter().map(|tensor| &tensor.spec).collect();
        let order = order(&specs);
        let ordered: Vec<&TensorSpec> = order.iter().filter_map(|&number| specs.get(number).copied()).collect();
        let state = layout.state_hash(&manifest);
        let header = header(&ordered, texts(key, &manifest, state))?;
        let folder = folder_of(out);
        let file = NamedTempFile::new_in(folder).map_err(|error| system(out, error))?;
        {
            let mut writer = BufWriter::new(file.as_file());
            writer.write_all(&header).map_err(|error| system(out, error))?;
            for number in order {
                self.write_tensor(&manifest, &layout, number, &mut |bytes| {
                    progress(bytes.len() as u64);
                    writer.write_all(bytes).map_err(|error| system(out, error))
                })?;
            }
            writer.flush().map_err(|error| system(out, error))?;
        }
        file.as_file().sync_all().map_err(|error| system(out, error))?;
        file.persist_noclobber(out).map_err(|error| {
            if error.error.kind() == ErrorKind::AlreadyExists {
                FileError::Exists(out.to_owned())
            } else {
                system(out, error.error)
            }
        })?;
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| system(folder, error))?;
        Ok(Exported {
            state,
            tensors: layout.tensors.len(),
            bytes: header.len() as u64 + manifest.bytes,
        })
    }

    /// Hands the bytes of one tensor to `write`, piece by piece.
    fn write_tensor(
        &self,
        manifest: &Manifest,
        layout: &Layout,
        number: usize,
        write: &mut dyn FnMut(&[u8]) -> Result<(), FileError>,
    ) -> Result<(), ExportError> {
        let Some(tensor) = layout.tensors.get(number) else {
            return Ok(());
        };
        for (own, number) in tensor.pieces.clone().enumerate() {
            // The layout was made for these.
            let Some(&piece) = manifest.pieces.get(number) else { continue };
            let bytes = self.fetch(piece).map_err(|source| lacking(layout, number, source))?;
            if bytes.len() != tensor.piece_bytes(own) {
                return Err(layout.wrong_length(manifest, number, bytes.len()).into());
            }
            write(&bytes)?;
        }
        Ok(())
    }
}

fn lacking(layout: &Layout, number: usize, source: PieceError) -> ExportError {
    ExportError::Piece {
        place: layout.place_of(number).unwrap_or_default(),
        source,
    }
}

fn texts(key: ManifestKey, manifest: &Manifest, state: StateHash) -> HashMap<String, String> {
    [
        (FORMAT.0, FORMAT.1.to_owned()),
        (VERSION.0, VERSION.1.to_owned()),
        (STEP, key.step.get().to_string()),
        (JOB, manifest.identity.spec.name.clone()),
        (STATE, state.to_string()),
        (CHECKPOINT, key.id.to_string()),
    ]
    .map(|(key, text)| (key.to_owned(), text))
    .into()
}
