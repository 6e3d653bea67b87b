//! A few bytes that each rank of a fast ring tells all others: around the ring, over N - 1 hops. Knows not what they say.

use std::future::Future;

use sardana_protocol::words::Rank;
use tokio::sync::mpsc::unbounded_channel;

use super::RingError;
use super::passage::{Incoming, Outgoing, Passage};

/// The two links of a rank in a fast ring.
pub(super) type Around = (Incoming, Outgoing);

/// Tells all others `own`, as soon as it is there, and calls `heard` with what each of them tells: `bytes` bytes each. What is heard before `own` is there
/// is passed on behind it.
pub(super) async fn tell_all(
    passage: Passage<'_>,
    (from, to): &mut Around,
    bytes: usize,
    own: impl Future<Output = Result<Vec<u8>, RingError>>,
    mut heard: impl FnMut(Rank, Vec<u8>),
) -> Result<(), RingError> {
    let (rank, ranks) = (passage.config.rank.get(), passage.config.world_size);
    let others = ranks - 1;
    let (pass, mut passed) = unbounded_channel();
    let hearing = async {
        for round in 0..others {
            let words = from.hear(passage, round, bytes).await?;
            if round + 1 < others {
                // The other future ends only with an error, which ends this one too.
                let _ = pass.send(words.clone());
            }
            // Below twice MAX_WORKERS.
            heard(Rank::new((rank + ranks - 1 - round) % ranks), words);
        }
        Ok(())
    };
    let telling = async {
        to.tell(passage, 0, &own.await?).await?;
        for round in 1..others {
            if let Some(words) = passed.recv().await {
                to.tell(passage, round, &words).await?;
            }
        }
        Ok(())
    };
    tokio::try_join!(hearing, telling)?;
    Ok(())
}
