//! Which checkpoint is meant.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sardana_protocol::checkpoint::ManifestKey;

use super::directory::Checkpoints;
use super::list::{Completeness, Entry, Listing};

/// Digits of an id that are enough to be asked for by them.
const ID_DIGITS: usize = 6;

/// A checkpoint as a person names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The newest that can be used.
    Newest,
    /// The checkpoint of a step (`300` or `s300`), or the one whose id begins so.
    Named(String),
}

impl FromStr for Which {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "newest" => Self::Newest,
            _ => Self::Named(text.to_owned()),
        })
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest => f.write_str("newest"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// What the checkpoint is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// All of its bytes.
    State,
    /// What its manifest says.
    Manifest,
}

/// Why no checkpoint was found. The user names another one, or more directories.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// There is no checkpoint in this directory.
    #[error("{}: there are no checkpoints in it yet", .0.display())]
    Empty(PathBuf),
    /// There is no checkpoint of this step or id.
    #[error(
        "{}: expected a checkpoint of the step, or with the id, {name:?} (or give `newest`), found {}", .path.display(), list(.found)
    )]
    NotThere {
        /// The directory.
        path: PathBuf,
        /// The step or id that was asked for.
        name: String,
        /// The checkpoints that are there.
        found: Vec<ManifestKey>,
    },
    /// Several checkpoints have this step, or ids that begin so.
    #[error("{name:?} may mean any of {}; give more of the id", list(.found))]
    Ambiguous {
        /// The step or id that was asked for.
        name: String,
        /// The checkpoints that it may be.
        found: Vec<ManifestKey>,
    },
    /// None of the checkpoints is complete.
    #[error("{}: none of its checkpoints can be used: {}", .path.display(), .reasons.join("; "))]
    NoneUsable {
        /// The directory.
        path: PathBuf,
        /// What is wrong with each checkpoint.
        reasons: Vec<String>,
    },
}

fn list(keys: &[ManifestKey]) -> String {
    // The newest say most.
    const SHOWN: usize = 8;
    let shown: Vec<String> = keys.iter().rev().take(SHOWN).map(|key| short(*key)).collect();
    let more = keys.len().saturating_sub(SHOWN);
    match (shown.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => shown.join(", "),
        (false, more) => format!("{} and {more} older ones", shown.join(", ")),
    }
}

/// A checkpoint as a person reads it: its step, and enough of its id.
#[must_use]
pub fn short(key: ManifestKey) -> String {
    format!("{} ({})", key.step, short_id(key))
}

/// Enough of a checkpoint's id to ask for it.
#[must_use]
pub fn short_id(key: ManifestKey) -> String {
    key.id.to_string().chars().take(12).collect()
}

impl Checkpoints {
    /// The checkpoint that is meant.
    ///
    /// # Errors
    /// See [`FindError`].
    pub fn find(&self, which: &Which, wanted: Wanted) -> Result<ManifestKey, FindError> {
        self.list().find(self.main().path(), which, wanted)
    }
}

impl Listing {
    /// The one of these checkpoints that is meant. People call the place where they are `path`.
    ///
    /// # Errors
    /// See [`FindError`].
    pub fn find(&self, path: &Path, which: &Which, wanted: Wanted) -> Result<ManifestKey, FindError> {
        match which {
            Which::Newest => self.newest(path, wanted),
            Which::Named(name) => self.named(path, name),
        }
    }

    fn named(&self, path: &Path, name: &str) -> Result<ManifestKey, FindError> {
        let all: Vec<ManifestKey> = self.entries.iter().map(|one| one.key).collect();
        let step: Option<u64> = name.strip_prefix('s').unwrap_or(name).parse().ok();
        let of_step: Vec<_> = all.iter().copied().filter(|key| Some(key.step.get()) == step).collect();
        let found = if of_step.is_empty() && name.len() >= ID_DIGITS {
            let is_it = |key: &ManifestKey| key.id.to_string().starts_with(&name.to_lowercase());
            all.iter().copied().filter(is_it).collect()
        } else {
            of_step
        };
        let (path, name) = (path.to_owned(), name.to_owned());
        match found[..] {
            [key] => Ok(key),
            [] if all.is_empty() => Err(FindError::Empty(path)),
            [] => Err(FindError::NotThere { path, name, found: all }),
            [..] => Err(FindError::Ambiguous { name, found }),
        }
    }

    fn newest(&self, path: &Path, wanted: Wanted) -> Result<ManifestKey, FindError> {
        let path = path.to_owned();
        let entries = &self.entries;
        if entries.is_empty() {
            return Err(FindError::Empty(path));
        }
        let fits = |entry: &&Entry| match (&entry.completeness, wanted) {
            (Completeness::Whole, _) | (Completeness::Spread { .. }, Wanted::Manifest) => true,
            (Completeness::Harmed(_), _) | (Completeness::Spread { .. }, Wanted::State) => false,
        };
        if let Some(entry) = entries.iter().rev().find(fits) {
            return Ok(entry.key);
        }
        let reasons = entries
            .iter()
            .rev()
            .map(|entry| format!("{}: {}", short(entry.key), entry.completeness));
        Err(FindError::NoneUsable {
            path,
            reasons: reasons.collect(),
        })
    }
}
