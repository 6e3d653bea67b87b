//! Connections over a line: one that carries as much as it can, one that carries so many bytes, and one that carries small messages.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use quinn::{Connection, Endpoint, RecvStream};
use sardana_net::quic::{Door, Reach, accept, bind_peer_on, connect, widen};
use sardana_net::trust::{Authority, PeerIdentity, Role};
use sardana_protocol::words::{JobId, WorkerId};
use tokio::time::{Instant, sleep_until};

use crate::kinds::Controller;
use crate::line::{Host, Line, Side};

const DEADLINE: Duration = Duration::from_secs(60);

const JOB: JobId = JobId::new([9; 16]);

/// What a message has.
const MESSAGE_BYTES: usize = 200;

/// From one message to the next.
const MESSAGE_EVERY: Duration = Duration::from_millis(50);

/// A connection with its endpoints: what is sent from `giving` queues on the line with what others send.
pub(crate) struct Pair {
    pub(crate) giving: Connection,
    taking: Connection,
    _endpoints: [Endpoint; 2],
}

/// What a connection did in a while.
pub(crate) struct Carried {
    pub(crate) bytes: u64,
    /// Of what was sent.
    pub(crate) lost_share: f64,
    /// The round trip as its giver had it, sampled each 10 ms.
    pub(crate) round_trip: Duration,
}

impl Pair {
    pub(crate) async fn connect(line: &Arc<Line>, number: u8, controller: Controller, reach: Reach) -> Result<Self> {
        let authority = Authority::new(JOB)?;
        let credentials =
            [Side::Giver, Side::Taker].map(|side| authority.issue(Role::Worker, u64::from(side == Side::Taker) + 1));
        let [giver, taker] = credentials;
        let (giver, taker) = (giver?, taker?);
        let bind = |credentials, side| {
            let host = Host {
                line: Arc::clone(line),
                side,
                number,
                congestion: controller.congestion(),
            };
            let address = host.address();
            anyhow::Ok((bind_peer_on(&host.environment(), credentials, address, reach)?, address))
        };
        let ((listening, address), (dialling, _)) = (bind(&giver, Side::Giver)?, bind(&taker, Side::Taker)?);
        let identity = PeerIdentity::worker(JOB, WorkerId::new(1));
        let (dialled, accepted) = tokio::join!(connect(&dialling, address, identity, DEADLINE), async {
            let knock = Door::new(listening.clone()).next().await.context("somebody comes")?;
            anyhow::Ok(accept(knock, &giver, DEADLINE).await?)
        });
        let (giving, _) = accepted?;
        widen(&giving, reach);
        Ok(Self {
            giving,
            taking: dialled?,
            _endpoints: [listening, dialling],
        })
    }

    /// As much as is carried until then, on one stream.
    pub(crate) async fn fill(&self, until: Instant) -> Result<Carried> {
        let mut receiving = self.stream(u64::MAX).await?;
        let (mut sum, mut samples) = (Duration::ZERO, 0);
        let sampling = async {
            while Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(10)).await;
                sum += self.giving.rtt();
                samples += 1;
            }
        };
        let mut bytes = 0;
        let reading = async {
            loop {
                let chunk = receiving.read_chunk(usize::MAX, true).await?.context("the stream goes on")?;
                bytes += chunk.bytes.len() as u64;
            }
        };
        tokio::select! {
            () = sampling => {}
            read = reading => { let _: Result<()> = read; }
        }
        let stats = self.giving.stats().path;
        Ok(Carried {
            bytes,
            lost_share: stats.lost_packets as f64 / stats.sent_packets.max(1) as f64,
            round_trip: sum / samples.max(1),
        })
    }

    /// How long so many bytes take on a stream of their own, from the request for them.
    pub(crate) async fn transfer(&self, bytes: u64) -> Result<Duration> {
        let began = Instant::now();
        let mut receiving = self.stream(bytes).await?;
        let mut received = 0;
        while let Some(chunk) = receiving.read_chunk(usize::MAX, true).await? {
            received += chunk.bytes.len() as u64;
        }
        anyhow::ensure!(received == bytes, "{received} bytes of {bytes} arrived");
        Ok(began.elapsed())
    }

    /// How long small messages take until their answers are there, sorted.
    pub(crate) async fn messages(&self, until: Instant) -> Result<Vec<Duration>> {
        let (mut took, mut next) = (Vec::new(), Instant::now());
        while next < until {
            sleep_until(next).await;
            let sent = Instant::now();
            let mut receiving = self.stream(MESSAGE_BYTES as u64).await?;
            receiving.read_to_end(MESSAGE_BYTES).await?;
            took.push(sent.elapsed());
            next = Instant::now() + MESSAGE_EVERY;
        }
        took.sort_unstable();
        Ok(took)
    }

    /// Asks for so many bytes, and gives them.
    async fn stream(&self, bytes: u64) -> Result<RecvStream> {
        let (mut ask, receiving) = self.taking.open_bi().await?;
        ask.write_all(&[0]).await?;
        ask.finish()?;
        let giving = self.giving.clone();
        tokio::spawn(async move {
            let (mut sending, mut asked) = giving.accept_bi().await?;
            asked.read_to_end(1).await?;
            let chunk = bytes::Bytes::from(vec![0; 1 << 16]);
            let mut left = bytes;
            while left > 0 {
                let part = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
                sending.write_chunk(chunk.slice(..part)).await?;
                left -= part as u64;
            }
            sending.finish()?;
            anyhow::Ok(())
        });
        Ok(receiving)
    }
}
