//! How long it takes one coordinator to enrol many hosts that come at once: wall time, and processor time of both ends together.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use sardana_actors::coordinator::{self, CoordinatorConfig, Past, Succession};
use sardana_net::enrol::{JoinFile, Moment, Registrar, Terms, enrol};
use sardana_net::trust::{Authority, Role};
use sardana_protocol::membership::Balance;
use sardana_protocol::words::{Incarnation, JobId};
use sardana_storage::private::{Missing, PrivateFolder};
use tokio::task::JoinSet;

const CLIENTS: u32 = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let state = PrivateFolder::open(&folder.path().join("state"), Missing::Create)?;
    let authority = Arc::new(Authority::new(JobId::new([1; 16]))?);
    for (name, registrar) in [
        ("memory", Registrar::new(Arc::clone(&authority))),
        ("disk", Registrar::kept(Arc::clone(&authority), &state)?),
    ] {
        runtime.block_on(measure(name, &authority, registrar))?;
    }
    Ok(())
}

async fn measure(name: &str, authority: &Arc<Authority>, registrar: Registrar) -> Result<(), Box<dyn std::error::Error>> {
    let now = Moment::of(SystemTime::now());
    let terms = Terms {
        role: Role::Worker,
        expires: Moment::new(now.seconds() + 3_600),
        uses: CLIENTS,
    };
    let invitation = registrar.invite(terms, now)?;
    let config = CoordinatorConfig {
        registrar: Arc::new(registrar),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        incarnation: Incarnation::new(1),
        past: Past::None,
        succession: Succession::Resume,
        records: None,
        min: 1,
        expected: 1,
        max: 1,
        balance: Balance::default(),
        saves: None,
    };
    let (coordinator, _events) = coordinator::start(config).await?;
    let join = Arc::new(JoinFile::new(invitation, authority, vec![coordinator.address()]));
    let (begun, processor) = (Instant::now(), processor_time());
    let mut coming = JoinSet::new();
    for _ in 0..CLIENTS {
        let join = Arc::clone(&join);
        coming.spawn(async move {
            let enrolled = enrol(&join, Role::Worker).await;
            enrolled.map(|_| begun.elapsed())
        });
    }
    let mut ends = coming.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (wall, processor) = (begun.elapsed(), processor_time() - processor);
    ends.sort();
    let median = ends[ends.len() / 2];
    println!(
        "enrolment/{name}/{CLIENTS}: {wall:.2?} in all, {median:.2?} in the median, {processor:.2?} of processor, {:.2?} each",
        processor / CLIENTS
    );
    coordinator.end().await;
    Ok(())
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}
