//! What one QUIC stream between two endpoints of a job carries when nothing else goes on.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sardana_net::environment::Environment;
use sardana_net::quic::{Door, Reach, accept, bind_peer_on, connect};
use sardana_net::trust::{Authority, PeerIdentity, Role};
use sardana_protocol::words::{JobId, WorkerId};
use tokio::runtime::{Builder, Runtime};

const DEADLINE: Duration = Duration::from_secs(60);

const JOB: JobId = JobId::new([9; 16]);

/// MiB per second of one stream of `bytes`, from the request for it to its last byte. Each end has a thread of its own, and an endpoint at
/// `local` that takes the other for as far as `reach` says; the end that asks dials what `through` says of the other end's address.
pub(crate) fn bandwidth(
    bytes: usize,
    (local, reach): (IpAddr, Reach),
    through: impl FnOnce(SocketAddr) -> Result<SocketAddr>,
) -> Result<f64> {
    let authority = Authority::new(JOB)?;
    let (giving, taking) = (authority.issue(Role::Worker, 1)?, authority.issue(Role::Worker, 2)?);
    let local = SocketAddr::from((local, 0));
    let server = runtime()?;
    let endpoint = server.block_on(async { bind_peer_on(&Environment::Host, &giving, local, reach) })?;
    let address = through(SocketAddr::from((Ipv4Addr::LOCALHOST, endpoint.local_addr()?.port())))?;
    let serving = std::thread::spawn(move || {
        server.block_on(async {
            let knock = Door::new(endpoint.clone()).next().await.context("somebody comes")?;
            let (connection, _) = accept(knock, &giving, DEADLINE).await?;
            let data = vec![1_u8; bytes];
            let (mut send, mut receive) = connection.accept_bi().await?;
            receive.read_to_end(1).await?;
            send.write_all(&data).await?;
            send.finish()?;
            let _ = send.stopped().await;
            anyhow::Ok(())
        })
    });
    let took = runtime()?.block_on(async {
        let endpoint = bind_peer_on(&Environment::Host, &taking, local, reach)?;
        let giver = PeerIdentity::worker(JOB, WorkerId::new(1));
        let connection = connect(&endpoint, address, giver, DEADLINE).await?;
        let mut data = vec![0_u8; bytes];
        let (mut send, mut receive) = connection.open_bi().await?;
        let began = Instant::now();
        send.write_all(&[0]).await?;
        send.finish()?;
        receive.read_exact(&mut data).await?;
        anyhow::Ok(began.elapsed())
    })?;
    serving.join().map_err(|_| anyhow::anyhow!("the giving end panicked"))??;
    Ok(bytes as f64 / f64::from(1 << 20) / took.as_secs_f64())
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
