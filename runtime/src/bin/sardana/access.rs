//! The way from what a person gives to a coordinator.

use std::path::{Path, PathBuf};

use clap::Args;
use sardana::hosts::{Keyring, default_keyring, default_place, find_running};
use sardana::operator::{Access, Way};

use crate::ending::Failure;

/// Where the keys of join files are kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct KeyringPlace {
    /// Where the key that a join file is used with is kept, so that the file serves again until it expires: a folder of your own, made if it
    /// is not there. By default sardana/keyring in $XDG_STATE_HOME, or in ~/.local/state.
    #[arg(long, value_name = "DIR")]
    keyring: Option<PathBuf>,
}

impl KeyringPlace {
    /// The keyring.
    pub(crate) fn open(&self) -> Result<Keyring, Failure> {
        match &self.keyring {
            Some(folder) => Keyring::open(folder).map_err(Failure::failed),
            None => default_keyring().map_err(Failure::failed),
        }
    }
}

/// Access to the job of the join file at `join`, or to the only job that this user runs on this host.
pub(crate) async fn find(join: Option<&Path>, place: &KeyringPlace) -> Result<Access, Failure> {
    let way = match join {
        Some(path) => Way {
            join: path.to_owned(),
            keyring: place.open()?,
        },
        None => {
            let place = default_place().map_err(Failure::failed)?;
            let join = find_running(&place).await.map_err(Failure::failed)?;
            // Its key is kept beside the file: both are of use only while the job runs.
            let keyring = Keyring::within(place);
            Way { join, keyring }
        }
    };
    Access::by(way).await.map_err(Failure::failed)
}
