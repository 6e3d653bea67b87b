//! The writer's end of a window: pieces are shown to a depot on this host, instead of being sent to it.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use sardana_net::environment::Environment;
use sardana_protocol::checkpoint::{DepotAddress, DepotId};

use super::asking::{Asking, NowAndThen};
use super::client::{Depots, Reach};
use super::error::DepotError;
use super::limits::{PANE_BYTES, REQUEST_BYTES, WORTH_SHOWING};
use super::near::is_here;
use super::talk::{Answer, Shown};
use super::window::{PANES, Window};

impl Depots {
    /// A window for so many bytes, if the depot may see it, and it makes sense.
    pub(super) fn window(&self, depot: DepotAddress, bytes: usize) -> Option<Arc<Window>> {
        // In a simulation no process sees another one's memory.
        if bytes < WORTH_SHOWING
            || self
                .unseeing
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(&depot.depot)
            || self.reach == Reach::Network
            || matches!(self.environment, Environment::Simulated(_))
            || !is_here(depot.address)
        {
            return None;
        }
        let made = Window::make();
        made.map(Arc::new)
            .map_err(|error| tracing::debug!(%error, "pieces cannot be shown to a checkpoint actor of this host"))
            .ok()
    }
}

impl Depots {
    /// From now on the bytes are sent to this depot.
    pub(super) fn show_no_more(&self, depot: DepotId) {
        self.unseeing.lock().unwrap_or_else(PoisonError::into_inner).insert(depot);
    }
}

impl Asking {
    /// Shows these pieces, as many at a time as fit into a pane.
    pub(super) async fn show<P: Fn()>(
        &mut self,
        environment: &Environment,
        window: &Arc<Window>,
        pieces: &[Bytes],
        progress: &mut NowAndThen<P>,
    ) -> Result<(), DepotError> {
        let (mut left, mut number) = (pieces, 0);
        while !left.is_empty() {
            if number >= PANES {
                self.hear_seen(progress).await?;
            }
            let (next, rest) = left.split_at(how_many(left));
            left = rest;
            let shown = Shown {
                pieces: u32::try_from(next.len()).unwrap_or(u32::MAX),
            };
            let (window, next, pane) = (Arc::clone(window), next.to_vec(), number % PANES);
            let filled = environment.blocking(move || window.show(pane, &next)).await;
            let depot = self.depot;
            let filled = filled.ok_or(DepotError::Ending { depot })?;
            filled.map_err(|source| DepotError::Window { depot, source })?;
            self.say(&shown, REQUEST_BYTES).await?;
            progress.now();
            number += 1;
        }
        for _ in 0..number.min(PANES) {
            self.hear_seen(progress).await?;
        }
        Ok(())
    }

    /// The depot has looked at the pane that was filled first.
    async fn hear_seen<P: Fn()>(&mut self, progress: &mut NowAndThen<P>) -> Result<(), DepotError> {
        let answer = self.answer(progress).await?;
        if answer == Answer::Seen {
            Ok(())
        } else {
            Err(self.senseless("that it has seen what was shown", &answer))
        }
    }
}

/// How many of these fit into a pane: at least one.
fn how_many(left: &[Bytes]) -> usize {
    let mut filled = 0;
    let fits = left.iter().take_while(|piece| {
        filled += piece.len();
        filled <= PANE_BYTES
    });
    fits.count().max(1).min(left.len())
}
