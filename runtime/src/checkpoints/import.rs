//! A safetensors file becomes a checkpoint, piece by piece.

use std::path::{Path, PathBuf};

use sardana_actors::depot::IdentityError;
use sardana_protocol::checkpoint::{Manifest, ManifestKey, PieceHash, Placing};
use sardana_protocol::limits::PIECE_BYTES;
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::state::{StateHash, TensorSpec};
use sardana_protocol::words::Step;
use sardana_storage::manifest::{self, ManifestError};
use sardana_storage::store::{self, CommitError, PinId, WriteError};

use super::copy::{NAMED, PUT_PIECES, all_pieces, put};
use super::directory::{Checkpoints, Directory, UnreadManifest};
use super::export::{STATE, STEP};
use super::find::short;
use super::layout::{Layout, LayoutError};
use super::safetensors::{FileError, Tensors};

/// Why a file did not become a checkpoint. No checkpoint was added.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The checkpoint that it should be like cannot be read.
    #[error("the checkpoint that it should be like cannot be used: {0}")]
    Like(#[source] UnreadManifest),
    /// The tensors of that checkpoint are not known.
    #[error("the checkpoint that it should be like cannot be used: {0}")]
    Layout(#[from] LayoutError),
    /// The file cannot be read, or is of another format.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its tensors are others than those of the job's states.
    #[error(
        "{}: expected the tensors of checkpoint {}, found {count} differences: {}; give a file with the same names, dtypes and shapes, \
         or another checkpoint that it should be like", .path.display(), short(*.like), named(.differences, *.count)
    )]
    Differs {
        /// The file.
        path: PathBuf,
        /// The checkpoint that it should be like.
        like: ManifestKey,
        /// The first differences.
        differences: Vec<String>,
        /// How many differences there are.
        count: usize,
    },
    /// The step of the state is not said.
    #[error("{}: it does not say of which step it is, found {found}; say it with --step", .path.display())]
    NoStep {
        /// The file.
        path: PathBuf,
        /// What the file says.
        found: String,
    },
    /// There is another checkpoint of this step: which of them a job goes on from could not be said.
    #[error(
        "{}: expected a step of which there is no checkpoint here, found {}; give another --step, or import it into a directory of its \
         own (with --like-dir)", .path.display(), short(*.key)
    )]
    Taken {
        /// The directory.
        path: PathBuf,
        /// The checkpoint that is there.
        key: ManifestKey,
    },
    /// The directory does not say which depot it is.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The manifest would be too long.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The pieces could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The manifest could not be committed.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

fn named(differences: &[String], count: usize) -> String {
    let more = if count > differences.len() { " …" } else { "" };
    format!("{}{more}", differences.join("; "))
}

/// The checkpoint that an imported one is like.
#[derive(Debug, Clone, Copy)]
pub struct Like<'a> {
    /// The directory that it is in.
    pub source: &'a Checkpoints,
    /// The checkpoint.
    pub key: ManifestKey,
}

/// A checkpoint that was imported.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The step and the id of the checkpoint.
    pub key: ManifestKey,
    /// The hash of its state.
    pub state: StateHash,
    /// The hash of the state that was exported, if the file says it.
    pub exported: Option<String>,
}

impl Directory {
    /// Makes a checkpoint of the state in the safetensors file `path`. What the file does not say (the job, its fingerprint) is that of the
    /// checkpoint `like`. `step` goes before what the file says.
    ///
    /// # Errors
    /// See [`ImportError`].
    pub fn import(&self, path: &Path, like: Like<'_>, step: Option<Step>) -> Result<Imported, ImportError> {
        let pattern = like.source.main().manifest(like.key).map_err(ImportError::Like)?;
        import(self, path, like, pattern, step)
    }
}

impl Checkpoints {
    /// The same, with a checkpoint of the directory itself as the pattern.
    ///
    /// # Errors
    /// See [`ImportError`].
    pub fn import(&self, path: &Path, like: ManifestKey, step: Option<Step>) -> Result<Imported, ImportError> {
        let (source, key) = (self, like);
        self.main().import(path, Like { source, key }, step)
    }
}

fn import(
    into: &Directory,
    path: &Path,
    like: Like<'_>,
    pattern: Manifest,
    step: Option<Step>,
) -> Result<Imported, ImportError> {
    let Like { source, key: like } = like;
    let layout = source.layout(&pattern)?;
    let file = Tensors::open(path)?;
    let specs: Vec<&TensorSpec> = layout.tensors.iter().map(|tensor| &tensor.spec).collect();
    let mut differences = file.differences(&specs);
    if !differences.is_empty() {
        let count = differences.len();
        differences.truncate(NAMED);
        let path = path.to_owned();
        return Err(ImportError::Differs {
            path,
            like,
            differences,
            count,
        });
    }
    let step = step.map_or_else(|| step_of(&file, path), Ok)?;
    let pin = PinId::new(0);
    let done = (|| {
        let description = describe(into, source, &pattern, pin)?;
        let pieces = put_tensors(into, &file, &layout, pin)?;
        let manifest = Manifest {
            snapshot: SnapshotId {
                step,
                ..pattern.snapshot
            },
            description,
            pieces,
            depots: vec![into.depot()?],
            placing: Placing::BY_HAND,
            ..pattern
        };
        let bytes = manifest::encode(&manifest)?;
        let key = manifest::key_of(&manifest, &bytes);
        let others = into.store().list();
        if let Some(other) = others.iter().find(|other| other.key.step == step && other.key != key) {
            return Err(ImportError::Taken {
                path: into.path().to_owned(),
                key: other.key,
            });
        }
        into.store().sync()?;
        into.store()
            .commit(&store::Manifest::new(step, all_pieces(&manifest), bytes))?;
        Ok(Imported {
            key,
            state: layout.state_hash(&manifest),
            exported: file.text(STATE).map(str::to_owned),
        })
    })();
    into.store().unpin(pin);
    done
}

fn step_of(file: &Tensors, path: &Path) -> Result<Step, ImportError> {
    let text = file.text(STEP);
    text.and_then(|text| text.parse().ok())
        .map(Step::new)
        .ok_or_else(|| ImportError::NoStep {
            path: path.to_owned(),
            found: text.map_or_else(|| format!("no {STEP}"), |text| format!("{STEP} {text:?}")),
        })
}

/// The pieces that describe the tensors are those of the pattern.
fn describe(into: &Directory, source: &Checkpoints, pattern: &Manifest, pin: PinId) -> Result<Vec<PieceHash>, ImportError> {
    for &piece in &pattern.description {
        let bytes = source.fetch(piece).map_err(LayoutError::from)?;
        into.store().put(pin, &[&bytes])?;
    }
    Ok(pattern.description.clone())
}

/// Puts the bytes of all tensors into the store, in the state's order.
fn put_tensors(into: &Directory, file: &Tensors, layout: &Layout, pin: PinId) -> Result<Vec<PieceHash>, ImportError> {
    let mut pieces = Vec::new();
    let mut group = Vec::new();
    for tensor in &layout.tensors {
        for own in 0..tensor.pieces.len() {
            let mut bytes = vec![0; tensor.piece_bytes(own)];
            file.read(&tensor.spec.name, own * PIECE_BYTES, &mut bytes)?;
            group.push(bytes);
            if group.len() == PUT_PIECES {
                pieces.append(&mut put(into, pin, &mut group)?);
            }
        }
    }
    pieces.append(&mut put(into, pin, &mut group)?);
    Ok(pieces)
}
