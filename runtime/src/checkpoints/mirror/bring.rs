//! Before a job begins: what it would go on from may be in its mirror only.

use std::path::Path;
use std::sync::Arc;

use sardana_protocol::checkpoint::ManifestKey;
use sardana_protocol::words::Step;

use super::super::copy::Copied;
use super::super::directory::{Checkpoints, OpenError};
use super::super::find::short;
use super::super::list::{Completeness, Entry};
use super::Mirror;
use super::error::BringError;
use super::lanes::blocking;

/// A checkpoint that was brought, or why none was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Brought {
    /// The step of the newest checkpoint here before.
    pub local: Option<Step>,
    /// The checkpoint that was brought, if the mirror had a newer one.
    pub key: Option<ManifestKey>,
    /// How much was copied for it.
    pub copied: Copied,
    /// Still newer checkpoints that cannot be used, and why.
    pub passed_over: Vec<(ManifestKey, String)>,
    /// Why nothing is known of the mirror. There is something to go on from here.
    pub unknown: Option<String>,
}

impl Mirror {
    /// Brings the newest complete checkpoint into the directory `dir`, which is made if it is not there, if it is newer than all that are
    /// there. No process may have the directory open.
    ///
    /// # Errors
    /// See [`BringError`].
    pub async fn bring_newest(&self, dir: &Path) -> Result<Brought, BringError> {
        let path = dir.to_owned();
        let (here, local) = blocking(move || {
            let here = Checkpoints::open_or_make(&path)?;
            // The rest of a spread one is on other hosts, which are asked once they are there.
            let usable = |entry: &&Entry| !matches!(entry.completeness, Completeness::Harmed(_));
            let entries = here.list().entries;
            let local = entries.iter().filter(usable).map(|entry| entry.key.step).max();
            Ok::<_, OpenError>((Arc::new(here), local))
        })
        .await?;
        let brought = self.bring_into(&here, local).await;
        // The last reference closes it, and that may take a moment.
        blocking(move || drop(here)).await;
        brought
    }

    async fn bring_into(&self, here: &Checkpoints, local: Option<Step>) -> Result<Brought, BringError> {
        let mut brought = Brought {
            local,
            ..Brought::default()
        };
        let manifests = match self.manifests().await {
            Ok(manifests) => manifests,
            Err(error) if local.is_some() => {
                brought.unknown = Some(error.to_string());
                return Ok(brought);
            }
            Err(source) => {
                let url = self.to_string();
                return Err(BringError::Unknown { url, source });
            }
        };
        for (key, _) in manifests.into_iter().rev().filter(|(key, _)| Some(key.step) > local) {
            match self.fetch(key, here.main().store(), |_| {}).await {
                Ok(copied) => {
                    brought.key = Some(key);
                    brought.copied = copied;
                    return Ok(brought);
                }
                Err(error) => brought.passed_over.push((key, error.to_string())),
            }
        }
        if local.is_none() && !brought.passed_over.is_empty() {
            let named = brought
                .passed_over
                .iter()
                .map(|(key, reason)| format!("{}: {reason}", short(*key)));
            let (url, reasons) = (self.to_string(), named.collect());
            return Err(BringError::NoneUsable { url, reasons });
        }
        Ok(brought)
    }
}
