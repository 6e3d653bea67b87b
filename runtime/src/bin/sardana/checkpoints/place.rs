//! Where checkpoints are: a directory, or a mirror of one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use sardana::checkpoints::mirror::{Mirror, MirrorUrl, MirrorUrlError};
use tokio::runtime::Runtime;

use crate::ending::{Failure, runtime};

/// A place as a person gives it.
#[derive(Debug, Clone)]
pub(super) enum DirOrMirror {
    Directory(PathBuf),
    Mirror(MirrorUrl),
}

/// Reads one from a command line: what has a scheme is a URL, everything else a path.
pub(super) fn parser() -> impl TypedValueParser<Value = DirOrMirror> {
    OsStringValueParser::new().try_map(|text: OsString| {
        let url = text.to_str().filter(|text| MirrorUrl::is_meant(text));
        let place = url.map_or_else(
            || Ok(DirOrMirror::Directory(PathBuf::from(&text))),
            |url| url.parse().map(DirOrMirror::Mirror),
        );
        place.map_err(|error: MirrorUrlError| error)
    })
}

impl DirOrMirror {
    /// The directory that it is.
    ///
    /// # Errors
    /// When it is a mirror: says how it becomes a directory.
    pub(super) fn directory(&self) -> Result<&Path, Failure> {
        match self {
            Self::Directory(path) => Ok(path),
            Self::Mirror(url) => Err(Failure::Usage(format!(
                "expected a directory, found the mirror {url}; copy what you need of it to one first: sardana checkpoints copy {url} DIR"
            ))),
        }
    }
}

/// A mirror, and what it is asked with.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) mirror: Mirror,
    runtime: Runtime,
}

impl Remote {
    /// The mirror at `url`, which is there.
    pub(super) fn open(url: &MirrorUrl) -> Result<Self, Failure> {
        Self::new(Mirror::open(url).map_err(Failure::failed)?)
    }

    /// The same; a folder is made if it is not there.
    pub(super) fn open_or_make(url: &MirrorUrl) -> Result<Self, Failure> {
        Self::new(Mirror::open_or_make(url).map_err(Failure::failed)?)
    }

    fn new(mirror: Mirror) -> Result<Self, Failure> {
        let runtime = runtime()?;
        Ok(Self { mirror, runtime })
    }

    /// Waits for what is asked of it.
    pub(super) fn wait<T>(&self, asked: impl Future<Output = T>) -> T {
        self.runtime.block_on(asked)
    }

    /// What people call it in errors.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(self.mirror.to_string())
    }
}
