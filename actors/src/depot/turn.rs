//! Turns: so many streams are served at the same time, and others wait for theirs. A stream that has had its turn lets the others in before it
//! goes on, so that each of a thousand comes forward, and none that is slow keeps the others out.

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::stream::{End, Talk};

/// A turn, from when it has come until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Semaphore,
    permit: Option<SemaphorePermit<'a>>,
    since: Instant,
}

impl<'a> Turn<'a> {
    /// Waits for a turn. Each stream that is served moves or is given up, so that it comes; a client that is gone is noticed meanwhile.
    pub(super) async fn wait(turns: &'a Semaphore, talk: &mut Talk) -> Result<Self, End> {
        let mut turn = Self {
            turns,
            permit: None,
            since: Instant::now(),
        };
        turn.let_others_in(talk).await?;
        Ok(turn)
    }

    /// Ends a turn that has lasted so long that others are to have theirs, and waits for the next one, behind all that wait already.
    pub(super) async fn let_others_in_if_over(&mut self, talk: &mut Talk) -> Result<(), End> {
        if self.since.elapsed() >= talk.server.patience.wait_every {
            self.let_others_in(talk).await?;
        }
        Ok(())
    }

    async fn let_others_in(&mut self, talk: &mut Talk) -> Result<(), End> {
        self.permit = None;
        // They are never closed.
        self.permit = talk.waiting_its_turn(self.turns.acquire()).await?.ok();
        self.since = Instant::now();
        Ok(())
    }
}
