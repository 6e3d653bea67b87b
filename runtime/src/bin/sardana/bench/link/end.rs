//! One end of the link that is measured: a process with a worker's certificate, and the part of a worker that makes links.

use std::io::{self, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use sardana::model::{Dtype, TensorSpec};
use sardana::{Job, Order, Step, links};
use sardana_actors::peers::{PeerGroup, Peers};
use sardana_actors::worker::StepDriver;
use sardana_collectives::layout::Layout;
use sardana_collectives::ring::PlanLinks;
use sardana_net::environment::Environment;
use sardana_net::trust::Credentials;
use sardana_net::wire::limits::BUNDLE_BYTES;
use sardana_net::wire::{FrameError, read_frame_blocking, write_frame_blocking};
use sardana_protocol::messages::{Form, LinkKind, MemberAddress};
use sardana_protocol::plan::Visit;
use sardana_protocol::state::StatePieces;
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, WorkerId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::traffic::{End, Frames, Incoming, Outgoing, Side, Traffic};
use crate::bench::wires::Wire;
use crate::ending::{Failure, runtime};

/// What an end is told first, on its standard input; afterwards come [`Traffic`]s, until the input ends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) credentials: Credentials,
}

/// What a link of this kind is compared with.
pub(super) const fn limit(kind: LinkKind) -> Wire {
    match kind {
        LinkKind::SharedMemory => Wire::Memory,
        LinkKind::Quic | LinkKind::InProcess => Wire::Tcp,
    }
}

/// Most bytes of what an end and the process that started it tell each other at once.
pub(super) const TOLD_BYTES: usize = BUNDLE_BYTES;

/// Is one end, until its input ends.
pub(in crate::bench) fn carry_out() -> Result<(), Failure> {
    let start = if io::stdin().is_terminal() {
        None
    } else {
        told().unwrap_or_default()
    };
    let Some(Start { credentials }) = start else {
        return Err(Failure::Usage("this is what `sardana bench link` starts".to_owned()));
    };
    runtime()?.block_on(serve(credentials))
}

async fn serve(credentials: Credentials) -> Result<(), Failure> {
    let own = WorkerId::new(credentials.id());
    let peers = listen(&credentials)?;
    tell(&peers.local_address().map_err(Failure::failed)?)?;
    let Some(members) = hear::<[MemberAddress; 2]>().await? else {
        return Ok(());
    };
    // Those of the first step's plan carry nothing, but must stay: let go of at once, they would break before the other end has them.
    let (mut end, _first) = link(&peers, own, members).await?;
    tell(&end.outgoing.link.kind())?;
    while let Some(traffic) = hear::<Traffic>().await? {
        tell(&end.carry(traffic).await.map_err(Failure::failed)?)?;
    }
    peers.close("all is measured").await;
    Ok(())
}

/// This end's connections, as a worker has them. It keeps no state that anybody could ask for.
fn listen(credentials: &Credentials) -> Result<Arc<Peers>, Failure> {
    let job = Job::builder("link").data(1, 1).shards(1).steps(1).workers(2).build();
    let job = job.map_err(Failure::failed)?;
    let layout = Layout::new(vec![TensorSpec::new("nothing", Dtype::F32, &[1])], 0).map_err(Failure::failed)?;
    let (keeper, _) = StepDriver::new(job.spec(), Arc::new(layout), None);
    let paths = links().map_err(Failure::failed)?;
    let place = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let pieces = Arc::new(StatePieces::new([4]));
    Peers::listen_on(Environment::Host, credentials, place, paths, keeper, pieces).map_err(Failure::failed)
}

/// Makes the links of a generation of these two, in which a running sum goes there and the finished one comes back: those of its steady plan,
/// and those of its first one.
async fn link(peers: &Arc<Peers>, own: WorkerId, members: [MemberAddress; 2]) -> Result<(End, PlanLinks), Failure> {
    peers.name(PeerGroup::Present, members.map(|member| member.worker));
    let generation = Generation::new(Incarnation::new(1), 1);
    let visits: Vec<Visit> = [0, 1]
        .map(|rank| Visit {
            rank: Rank::new(rank),
            shards: ShardRange::new(rank, rank + 1),
        })
        .into();
    let rank = usize::from(members[0].worker != own);
    let forms = Form::all(generation, Order::Exact, Step::ZERO, members.into(), [visits.clone(), visits]);
    let form = forms.get(rank).expect("each of the two members has a form");
    let links = peers.link(form).await.map_err(|failures| {
        let words: Vec<String> = failures.iter().map(ToString::to_string).collect();
        Failure::Failed(words.join("; "))
    })?;
    let PlanLinks {
        mut outgoing,
        mut incoming,
    } = links.steady;
    let ends = outgoing.pop_first().zip(incoming.pop_first());
    let ((there, sender), (back, receiver)) =
        ends.ok_or_else(|| Failure::Failed("the plan of two ranks has no link each way: report it".to_owned()))?;
    let end = End {
        side: if rank == 0 { Side::Asks } else { Side::Answers },
        outgoing: Outgoing {
            link: sender,
            frames: Frames::new(generation, there),
        },
        incoming: Incoming {
            link: receiver,
            frames: Frames::new(generation, back),
        },
    };
    Ok((end, links.first))
}

fn tell<T: Serialize>(value: &T) -> Result<(), Failure> {
    write_frame_blocking(&mut io::stdout().lock(), value, TOLD_BYTES).map_err(Failure::failed)
}

fn told<T: DeserializeOwned>() -> Result<Option<T>, FrameError> {
    read_frame_blocking(&mut io::stdin().lock(), TOLD_BYTES)
}

/// What the process that started this one says next, while the connections live on. None when it says no more.
async fn hear<T: DeserializeOwned + Send + 'static>() -> Result<Option<T>, Failure> {
    let told = tokio::task::spawn_blocking(told::<T>).await.map_err(Failure::failed)?;
    told.map_err(Failure::failed)
}
