//! How many pieces are put or read at once: few at first, so that a depot that others wait for can let them in soon, and more as long as they
//! go quickly, since each round costs a round trip.

use tokio::time::Instant;

use super::limits::{ROUND_FIRST, ROUND_PIECES, WAIT_EVERY};

/// The rounds of one stream, or of one reading.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    last: Option<(usize, Instant)>,
}

impl Rounds {
    /// Pieces of the next round, at most.
    pub(super) fn next(&self) -> usize {
        self.last.map_or(ROUND_FIRST, |(pieces, since)| {
            let quick = since.elapsed() < WAIT_EVERY;
            if quick { (pieces * 2).min(ROUND_PIECES) } else { ROUND_FIRST }
        })
    }

    /// A round of so many pieces begins.
    pub(super) fn begins(&mut self, pieces: usize) {
        self.last = Some((pieces, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rounds_grow_while_they_are_quick() {
        let mut rounds = Rounds::default();
        let mut found = Vec::new();
        for _ in 0..12 {
            found.push(rounds.next());
            rounds.begins(rounds.next());
            advance(WAIT_EVERY / 2).await;
        }
        assert_eq!((found[0], found[1], found[11]), (ROUND_FIRST, 2 * ROUND_FIRST, ROUND_PIECES));
        advance(WAIT_EVERY).await;
        assert_eq!(rounds.next(), ROUND_FIRST, "it was slow");
    }
}
