//! Workers' connections over real QUIC on loopback: links meet whichever end comes first, and what is not wanted is refused.

mod bounds;
mod fetching;
mod following;
mod joining;
#[cfg(target_os = "linux")]
mod near;

use std::ops::Deref;
use std::time::Duration;

use sardana_collectives::links::LinkSender;
use sardana_collectives::links::frame::{FrameHeader, FrameKind, PlanSlot};
use sardana_collectives::ring::{PlanLinks, RingLinks};
use sardana_collectives::runs::Runs;
use sardana_net::trust::{Authority, Role};
use sardana_net::wire::write_frame;
use sardana_protocol::job::Order;
use sardana_protocol::messages::Form;
use sardana_protocol::plan::{HopId, Plan, Visit};
use sardana_protocol::samples;
use sardana_protocol::state::StatePieces;
use sardana_protocol::words::{Incarnation, JobId, Rank, ShardRange, Step};
use tokio::time::timeout;

use super::limits::{BATCH_BYTES, STREAM_HELLO_BYTES};
use super::links::LinkHello;
use super::table::{LinkKey, Slot as Which};
use super::*;
use crate::testing::{self, LOOPBACK, PATIENCE, soon, until};
use crate::worker::StepDriver;

const SHARDS: u32 = 8;

fn driver() -> Arc<StepDriver> {
    // Commands are not done here.
    testing::driver(&samples::spec()).0
}

/// A state of 19 bytes in five pieces.
fn pieces() -> Arc<StatePieces> {
    Arc::new(StatePieces::new([4, 4, 4, 4, 3]))
}

/// A state that comes in three batches, and how it is cut.
fn large() -> (Arc<StatePieces>, Bytes) {
    let pieces = StatePieces::new([BATCH_BYTES + 5, BATCH_BYTES, 77_777]);
    let state: Vec<u8> = (0..pieces.bytes()).map(|at| (at * 31 % 251) as u8).collect();
    (Arc::new(pieces), state.into())
}

/// One worker: its connections, and the step driver that keeps what the others fetch.
struct Worker {
    peers: Arc<Peers>,
    driver: Arc<StepDriver>,
}

impl Deref for Worker {
    type Target = Arc<Peers>;

    fn deref(&self) -> &Arc<Peers> {
        &self.peers
    }
}

/// Workers 0, 1, … of one job, and a generation that has them all in that order.
fn workers(count: u64) -> (Vec<Worker>, Ring) {
    workers_with(count, |_| pieces())
}

/// Likewise, each with a state of its own cut.
fn workers_with(count: u64, pieces: impl Fn(u64) -> Arc<StatePieces>) -> (Vec<Worker>, Ring) {
    workers_linked(count, LinkChoice::Auto, pieces)
}

/// Likewise, with links of this choice.
fn workers_linked(count: u64, links: LinkChoice, pieces: impl Fn(u64) -> Arc<StatePieces>) -> (Vec<Worker>, Ring) {
    let authority = Authority::new(JobId::new([4; 16])).unwrap();
    let listen = |id| {
        let credentials = authority.issue(Role::Worker, id).unwrap();
        let driver = driver();
        let keeper = Arc::clone(&driver);
        let peers = Peers::listen_on(
            Environment::Host,
            &credentials,
            LOOPBACK,
            (links, Reach::default()),
            keeper,
            pieces(id),
        )
        .unwrap();
        Worker { peers, driver }
    };
    let workers: Vec<Worker> = (0..count).map(listen).collect();
    let member = |peers: &Worker| MemberAddress {
        worker: peers.own,
        address: peers.local_address().unwrap(),
    };
    let of = count as u32;
    let share = SHARDS / of;
    let visit = |rank: u32| Visit {
        rank: Rank::new(rank),
        shards: ShardRange::new(rank * share, if rank + 1 == of { SHARDS } else { (rank + 1) * share }),
    };
    let ring = Ring {
        members: workers.iter().map(member).collect(),
        visits: (0..of).map(visit).collect(),
        generation: generation(1),
    };
    (workers, ring)
}

/// A frame of three bytes of the first generation.
fn header(hop: HopId, plan: PlanSlot) -> FrameHeader {
    FrameHeader {
        generation: generation(1),
        step: Step::ZERO,
        plan,
        hop,
        kind: FrameKind::Sum,
        chunk: 0,
        payload_bytes: 3,
    }
}

/// A generation as all its members are told of it.
#[derive(Clone)]
struct Ring {
    generation: Generation,
    members: Vec<MemberAddress>,
    visits: Vec<Visit>,
}

impl Ring {
    fn form(&self, rank: u32) -> Form {
        let visits = [self.visits.clone(), self.visits.clone()];
        Form::all(self.generation, Order::Exact, Step::ZERO, self.members.clone(), visits).swap_remove(rank as usize)
    }

    fn plan(&self) -> Plan {
        Plan::new(Order::Exact, self.members.len() as u32, &self.visits)
    }

    /// The first member alone, with all shards.
    fn alone(&self) -> Form {
        let visits = vec![Visit {
            rank: Rank::ZERO,
            shards: ShardRange::new(0, SHARDS),
        }];
        let members = self.members[..1].to_vec();
        Self {
            members,
            visits,
            ..*self
        }
        .form(0)
    }
}

fn generation(count: u64) -> Generation {
    Generation::new(Incarnation::new(1), count)
}

/// The number of peers that a worker has no link with tells which worker is at fault.
#[tokio::test]
async fn all_who_make_no_link_are_told_of_together() {
    let (workers, ring) = workers(3);
    // No task waits in vain for five seconds: where nothing else happens, time goes on by itself.
    tokio::time::pause();
    let failures = timeout(10 * PATIENCE, workers[1].link(&ring.form(1))).await.unwrap();
    let mut peers: Vec<u64> = failures.unwrap_err().iter().map(|error| error.peer().get()).collect();
    peers.sort_unstable();
    assert_eq!(peers, [0, 2]);
}

async fn link(peers: &Arc<Peers>, ring: &Ring, rank: u32) -> Result<RingLinks, LinkingError> {
    let linked = soon(peers.link(&ring.form(rank))).await;
    linked.map_err(|mut failures| failures.remove(0))
}

/// The name of the first link that leads to `to`, and its sender.
fn link_to(ring: &Ring, to: u32) -> (LinkKey, WorkerId) {
    let plan = ring.plan();
    let hop = plan.hops().iter().find(|hop| hop.to == Rank::new(to)).unwrap();
    let key = LinkKey {
        generation: ring.generation,
        slot: Which::First,
        hop: hop.id,
    };
    (key, ring.members[hop.from.index()].worker)
}

/// Says by hand that a link begins here.
async fn claim(from: &Arc<Peers>, to: MemberAddress, key: LinkKey, name: WorkerId) -> quinn::SendStream {
    let connection = from.dial(to).await.unwrap();
    let mut stream = connection.open_uni().await.unwrap();
    let hello = LinkHello {
        job: from.credentials.job(),
        key,
        from: name,
    };
    write_frame(&mut stream, &hello, STREAM_HELLO_BYTES).await.unwrap();
    stream
}

fn links_of(links: &mut RingLinks, slot: PlanSlot) -> &mut PlanLinks {
    match slot {
        PlanSlot::First => &mut links.first,
        PlanSlot::Steady => &mut links.steady,
    }
}

#[tokio::test]
async fn every_hop_of_a_generation_leads_where_the_plan_says() {
    for count in 2..=4 {
        let (workers, ring) = workers(count);
        let linking = workers.iter().zip(0..).map(|(peers, rank)| {
            let (peers, ring) = (Arc::clone(peers), ring.clone());
            tokio::spawn(async move { link(&peers, &ring, rank).await.unwrap() })
        });
        let mut ends = Vec::new();
        for linked in linking.collect::<Vec<_>>() {
            ends.push(linked.await.unwrap());
        }
        for hop in ring.plan().hops() {
            for slot in [PlanSlot::First, PlanSlot::Steady] {
                let header = header(hop.id, slot);
                let sum = b"sum";
                let from = links_of(&mut ends[hop.from.index()], slot).outgoing.get_mut(&hop.id).unwrap();
                from.send(&header, |payload| payload.copy_from_slice(sum)).await.unwrap();
                let to = links_of(&mut ends[hop.to.index()], slot).incoming.get_mut(&hop.id).unwrap();
                assert_eq!(to.receive(&header).await.unwrap().to_vec(), sum[..]);
            }
        }
        assert!(
            workers
                .iter()
                .all(|peers| peers.table.parked() == 0 && peers.table.waiting() == 0)
        );
    }
}

#[tokio::test]
async fn a_link_of_a_generation_not_yet_known_is_parked() {
    let (workers, ring) = workers(2);
    let early = {
        let (peers, ring) = (Arc::clone(&workers[0].peers), ring.clone());
        tokio::spawn(async move { link(&peers, &ring, 0).await })
    };
    until(|| workers[1].table.parked() == 2).await;
    // A worker that lets go of links ends them, also for a peer that has not heard of them yet.
    let late = link(&workers[1], &ring, 1).await.unwrap();
    early.await.unwrap().unwrap();
    drop(late);
    assert_eq!(workers[1].table.parked(), 0);
}

#[tokio::test]
async fn what_is_older_than_the_fence_is_refused_parked_or_not() {
    let (workers, ring) = workers(2);
    let (key, sender) = link_to(&ring, 1);
    let parked = claim(&workers[0], ring.members[1], key, sender).await;
    until(|| workers[1].table.parked() == 1).await;
    workers[1].fence(generation(2));
    assert_eq!(workers[1].table.parked(), 0);
    soon(parked.stopped()).await.unwrap();
    let late = claim(&workers[0], ring.members[1], key, sender).await;
    soon(late.stopped()).await.unwrap();
    // A task that would wait for it does not.
    let error = link(&workers[1], &ring, 1).await.unwrap_err();
    assert!(
        matches!(error, LinkingError::Over { peer } if peer == WorkerId::new(0)),
        "{error}"
    );
    assert_eq!(workers[1].table.waiting(), 0);
    // A task that waits already is told.
    let newer = Ring {
        generation: generation(3),
        ..ring.clone()
    };
    let waiting = {
        let (peers, newer) = (Arc::clone(&workers[1].peers), newer.clone());
        tokio::spawn(async move { link(&peers, &newer, 1).await })
    };
    until(|| workers[1].table.waiting() == 2).await;
    workers[1].fence(generation(4));
    let error = soon(waiting).await.unwrap().unwrap_err();
    assert!(matches!(error, LinkingError::Over { .. }), "{error}");
}

#[tokio::test]
async fn nobody_takes_the_place_of_anothers_link() {
    let (workers, ring) = workers(3);
    let (key, sender) = link_to(&ring, 1);
    let intruder = workers
        .iter()
        .find(|peers| peers.own != sender && peers.own != WorkerId::new(1))
        .unwrap();
    // Under its own name before and after the right one, and under a false one.
    let _before = claim(intruder, ring.members[1], key, intruder.own).await;
    until(|| workers[1].table.parked() == 1).await;
    let false_name = claim(intruder, ring.members[1], key, sender).await;
    soon(false_name.stopped()).await.unwrap();
    let right = claim(&workers[sender.get() as usize], ring.members[1], key, sender).await;
    until(|| workers[1].table.parked() == 2).await;
    let header = header(key.hop, PlanSlot::First);
    let write = |payload: &mut [u8]| payload.copy_from_slice(b"sum");
    let mut right = LinkSender::quic(right);
    right.send(&header, write).await.unwrap();
    let mut link = workers[1].table.expect(key, sender).await.unwrap();
    assert_eq!(link.receive(&header).await.unwrap().to_vec(), b"sum");

    let next = LinkKey {
        generation: generation(2),
        ..key
    };
    let mut waiting = workers[1].table.expect(next, sender);
    let intruding = claim(intruder, ring.members[1], next, intruder.own).await;
    soon(intruding.stopped()).await.unwrap();
    assert!(waiting.try_recv().is_err());
    let _right = claim(&workers[sender.get() as usize], ring.members[1], next, sender).await;
    soon(waiting).await.unwrap();
}

#[tokio::test]
async fn who_is_no_member_any_more_is_cut_off_on_all_connections() {
    let (workers, ring) = workers(2);
    // Each dials the other at once: the first needs it for links, the second for a transfer.
    let (one, two) = tokio::join!(workers[0].dial(ring.members[1]), workers[1].dial(ring.members[0]));
    let (one, two) = (one.unwrap(), two.unwrap());
    let open = || {
        let slots = workers[0].slots.lock().unwrap();
        let slot = &slots[&WorkerId::new(1)];
        slot.earlier.lock().unwrap().len() + usize::from(slot.live.read(Option::is_some))
    };
    until(|| workers[0].endpoint.open_connections() == open()).await;
    let name = |group, members: &[MemberAddress]| workers[0].name(group, members.iter().map(|member| member.worker));
    // A peer that was never named may be named soon.
    name(PeerGroup::Present, &ring.members[..1]);
    assert_eq!(workers[0].parted(), []);
    // A peer that is still named for another reason stays.
    name(PeerGroup::Present, &ring.members);
    name(PeerGroup::Joiners, &ring.members[1..]);
    name(PeerGroup::Present, &ring.members[..1]);
    assert_eq!(workers[0].parted(), []);
    name(PeerGroup::Joiners, &[]);
    let parted = workers[0].parted();
    assert_eq!(parted, [WorkerId::new(1)]);
    name(PeerGroup::Prepared, &ring.members);
    workers[0].part(&parted);
    assert!(
        one.close_reason().is_none() && two.close_reason().is_none(),
        "named again in the meantime"
    );
    name(PeerGroup::Prepared, &[]);
    workers[0].part(&workers[0].parted());
    soon(one.closed()).await;
    soon(two.closed()).await;
}

#[tokio::test]
async fn after_a_link_that_never_came_the_next_one_takes_a_new_connection() {
    let (workers, ring) = workers(2);
    let next = |count| Ring {
        generation: generation(count),
        ..ring.clone()
    };
    let both = async |count| {
        let ring = next(count);
        let (one, two) = tokio::join!(link(&workers[0], &ring, 0), link(&workers[1], &ring, 1));
        (one.unwrap(), two.unwrap())
    };
    let used = || {
        let slots = workers[1].slots.lock().unwrap();
        let live = slots[&WorkerId::new(0)].live.read(Clone::clone);
        live.unwrap().stable_id()
    };
    let _first = both(2).await;
    let before = used();
    let _second = both(3).await;
    assert_eq!(used(), before, "one serves all links");
    // The first makes no link: for the second it is the same whether it does not, or nothing of it arrives.
    tokio::time::pause();
    let late = link(&workers[1], &next(4), 1).await.map(|_| ());
    assert!(matches!(late, Err(LinkingError::TooSlow { .. })), "{late:?}");
    tokio::time::resume();
    let _third = both(5).await;
    let after = used();
    assert_ne!(after, before, "what the first one has may be lost");
    let _fourth = both(6).await;
    assert_eq!(used(), after, "the new one serves");
}
