//! A store's pieces are read by another process of the same host, from the files themselves. It has nothing but their places, and trusts
//! nothing: a piece that was moved meanwhile, or is damaged, is seen by its hash, and asked for otherwise.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, DiskFile, RealDisk};
use super::error::ReadError;
use super::names::{PieceHash, Place, segment_name};
use super::read::read_piece;
use super::shared::{Shared, held};
use super::state::Standing;

/// Where some pieces are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The folder of the segments, from the root on.
    pub segments: PathBuf,
    /// Each piece's place; none if it is not there, or not known to be whole.
    pub places: Vec<Option<Place>>,
}

impl Shared {
    pub(super) fn places(&self, pieces: &[PieceHash]) -> Option<Places> {
        let segments = self.disk.is_the_hosts().then(|| self.segments.canonicalize().ok())??;
        let state = held(&self.state);
        let whole = |piece: &PieceHash| {
            let slot = state.pieces.get(piece).filter(|slot| slot.standing != Standing::Damaged);
            slot.map(|slot| slot.place)
        };
        Some(Places {
            segments,
            places: pieces.iter().map(whole).collect(),
        })
    }
}

/// Somebody else's segments, as this process sees them. The one that was read last stays open.
#[derive(Debug)]
pub struct Near {
    segments: PathBuf,
    open: Option<(u64, PathBuf, Arc<dyn DiskFile>)>,
}

impl Near {
    /// Those in this folder.
    #[must_use]
    pub fn new(segments: &Path) -> Self {
        Self {
            segments: segments.to_owned(),
            open: None,
        }
    }

    /// Reads a piece into `buffer`, which is as long as its place says.
    ///
    /// # Errors
    /// When this process cannot read it, or it is not what it should be.
    pub fn read(&mut self, piece: PieceHash, place: Place, buffer: &mut [u8]) -> Result<(), ReadError> {
        if self.open.as_ref().is_none_or(|(segment, ..)| *segment != place.segment) {
            let path = self.segments.join(segment_name(place.segment));
            let opened = RealDisk.open(&path);
            let file = opened.map_err(|error| ReadError::Disk {
                piece,
                path: path.clone(),
                offset: place.offset,
                source: std::io::Error::other(error.to_string()),
            })?;
            self.open = Some((place.segment, path, file));
        }
        let Some((_, path, file)) = &self.open else {
            return Err(ReadError::NotHeld { piece });
        };
        read_piece(&**file, path, piece, place, buffer)
    }
}
