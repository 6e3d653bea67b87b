//! The store of a depot, which may be exchanged for itself, opened anew. Must not know what is kept in it, nor when that is done.
//!
//! ```text
//!          a write or sync fails                   it is shut and opened anew
//!   open ───────────────────────▶ spoiled: it is only ─────────────────────────▶ open
//!                                 read from            │ ▲
//!                                 it cannot be opened  ▼ │ tried again
//!                                                     shut: nothing is given
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sardana_net::environment::Environment;
use sardana_storage::store::{Finding, OpenError, Opened, PinId, Store};
use tokio::sync::{Notify, OwnedRwLockReadGuard, RwLock};

/// How a depot opens its store: at its start, and again after it has failed.
#[derive(Clone)]
pub struct Opener(Arc<Open>);

type Open = dyn Fn(&Path) -> Result<Opened, OpenError> + Send + Sync;

impl Opener {
    /// Like this: for tests, which have disks of their own.
    pub fn new(open: impl Fn(&Path) -> Result<Opened, OpenError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    pub(super) fn open(&self, folder: &Path) -> Result<Opened, OpenError> {
        (self.0)(folder)
    }
}

impl Default for Opener {
    /// On the machine's own disks.
    fn default() -> Self {
        Self::new(Store::open)
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").finish_non_exhaustive()
    }
}

/// The store while it is lent; none if it is shut.
pub(super) type Lent = OwnedRwLockReadGuard<Option<Store>>;

/// Where the store is.
#[derive(Debug)]
pub(super) struct Shelf {
    store: Arc<RwLock<Option<Store>>>,
    spoiled: Notify,
}

impl Shelf {
    pub(super) fn new(store: Store) -> Self {
        Self {
            store: Arc::new(RwLock::new(Some(store))),
            spoiled: Notify::new(),
        }
    }

    /// The store. It is not shut before this is dropped; while it is being exchanged this waits.
    pub(super) async fn lend(&self) -> Lent {
        Arc::clone(&self.store).read_owned().await
    }

    /// Called after each use: the task that waits for a failure is told.
    pub(super) fn used(&self, store: &Store) {
        if store.poisoned().is_some() {
            self.spoiled.notify_one();
        }
    }

    /// Waits until the store has failed. Returns why.
    pub(super) async fn failed(&self) -> String {
        loop {
            self.spoiled.notified().await;
            let lent = self.store.read().await;
            if let Some(reason) = lent.as_ref().and_then(Store::poisoned) {
                return reason.to_owned();
            }
        }
    }

    /// Nothing is kept for the sake of `pin` any more. A store that is being exchanged forgets all pins.
    pub(super) fn unpin(&self, pin: PinId) {
        if let Ok(lent) = self.store.try_read()
            && let Some(store) = &*lent
        {
            store.unpin(pin);
        }
    }

    /// Shuts the store once it is not used any more, and opens it anew: what was noticed. If that fails it stays shut.
    ///
    /// # Errors
    /// Why it cannot be opened, or not be written to.
    pub(super) async fn exchange(
        &self,
        environment: &Environment,
        opener: &Opener,
        folder: PathBuf,
    ) -> Result<Vec<Finding>, String> {
        let mut place = Arc::clone(&self.store).write_owned().await;
        let opener = opener.clone();
        let opened = environment.blocking(move || {
            // It lets go of the folder's lock first.
            *place = None;
            let opened = opener.open(&folder).map_err(|error| error.to_string())?;
            let poisoned = opened.store.poisoned().map(str::to_owned);
            *place = Some(opened.store);
            poisoned.map_or(Ok(opened.findings), Err)
        });
        opened.await.unwrap_or_else(|| Err("this process ends".to_owned()))
    }
}
