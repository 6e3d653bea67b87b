//! Two workers with a ring, and another one prepared beside it.

use ractor::{ActorProcessingErr, ActorRef};
use sardana_collectives::gradient::{GradientBuffer, WriteMode};
use sardana_collectives::ring::RingInput;
use sardana_net::trust::{Authority, Role};
use sardana_protocol::messages::{Form, MemberAddress, Trailer};
use sardana_protocol::plan::Visit;
use sardana_protocol::words::{Generation, Incarnation, Rank, ShardRange, WorkerId};

use super::super::actor::Message;
use super::super::rings::Rings;
use super::*;

/// Takes what a ring tells its worker.
struct Listener;

impl Actor for Listener {
    type Msg = Message;
    type State = mpsc::UnboundedSender<Message>;
    type Arguments = mpsc::UnboundedSender<Message>;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        told: mpsc::UnboundedSender<Message>,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(told)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        told: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        told.send(message).unwrap();
        Ok(())
    }
}

struct Shell {
    rings: Rings,
    driver: Arc<StepDriver>,
    peers: Arc<Peers>,
    actor: ActorRef<Message>,
    told: mpsc::UnboundedReceiver<Message>,
}

impl Shell {
    async fn start(authority: &Authority, id: u64) -> Self {
        let credentials = authority.issue(Role::Worker, id).unwrap();
        let (driver, _) = driver();
        let peers = Peers::listen(&credentials, LOOPBACK, Arc::clone(&driver), pieces()).unwrap();
        let (sender, told) = mpsc::unbounded_channel();
        let (actor, _) = Actor::spawn(None, Listener, sender).await.unwrap();
        let rings = Rings::new(&spec(), Arc::clone(&driver), Arc::clone(&peers));
        Self {
            rings,
            driver,
            peers,
            actor,
            told,
        }
    }

    async fn told(&mut self) -> Message {
        soon(self.told.recv()).await.unwrap()
    }

    async fn ready(&mut self, expected: Generation) {
        let told = self.told().await;
        assert!(
            matches!(told, Message::LinksReady { generation } if generation == expected),
            "{told:?}"
        );
    }

    fn connect(&mut self, generation: &Orders, rank: usize) -> mpsc::UnboundedSender<RingInput> {
        let (sender, inbox) = mpsc::unbounded_channel();
        self.rings.connect(&self.actor, generation.forms[rank].clone(), inbox);
        sender
    }

    fn prepare(&mut self, generation: &Orders, rank: usize) -> mpsc::UnboundedSender<RingInput> {
        let (sender, inbox) = mpsc::unbounded_channel();
        self.rings.prepare(&self.actor, generation.forms[rank].clone(), inbox);
        sender
    }
}

/// Three workers of one job, and where they are.
async fn three() -> ([Shell; 3], [MemberAddress; 3]) {
    let authority = Authority::new(JOB).unwrap();
    let start = |id| Shell::start(&authority, id);
    let shells = [start(1).await, start(2).await, start(3).await];
    let address = |place: usize| MemberAddress {
        worker: WorkerId::new(place as u64 + 1),
        address: shells[place].peers.local_address().unwrap(),
    };
    let members = [0, 1, 2].map(address);
    (shells, members)
}

fn generation(count: u64) -> Generation {
    Generation::new(Incarnation::new(1), count)
}

/// A generation, as it is told to each of its members.
struct Orders {
    visits: Vec<Visit>,
    forms: Vec<Form>,
}

fn orders(count: u64, members: &[MemberAddress]) -> Orders {
    let of = members.len() as u32;
    let visit = |rank: u32| Visit {
        rank: Rank::new(rank),
        shards: ShardRange::new(4 * rank / of, 4 * (rank + 1) / of),
    };
    let visits: Vec<Visit> = (0..of).map(visit).collect();
    let both = [visits.clone(), visits.clone()];
    Orders {
        visits,
        forms: Form::all(generation(count), spec().order, Step::ZERO, members.to_vec(), both),
    }
}

/// A ring's end at one worker: gives the ring the gradients of a step, and sees when it has let go of them: then the sum is complete.
struct End<'a>(&'a Shell, &'a mpsc::UnboundedSender<RingInput>, Visit);

impl End<'_> {
    fn give(&self, step: u64) -> GradientBuffer {
        let Self(shell, inbox, visit) = self;
        let step = Step::new(step);
        let mut buffer = GradientBuffer::zeros(shell.driver.layout());
        let mut writer = buffer.writer(shell.driver.layout(), WriteMode::Store);
        writer.write_f64(0, &[1.0, 2.0, 3.0]).unwrap();
        writer.samples(1).unwrap();
        writer.finish().unwrap();
        let into = GradientBuffer::zeros(shell.driver.layout());
        inbox.send(RingInput::Begin { step, into }).unwrap();
        // From shard 0 on it is one running sum, elsewhere each shard's own.
        let pieces = match visit.shards.start() {
            0 => vec![visit.shards],
            _ => visit.shards.iter().map(ShardRange::one).collect(),
        };
        for shards in pieces {
            let gradient = buffer.complete();
            inbox.send(RingInput::Piece { step, shards, gradient }).unwrap();
        }
        buffer
    }
}

/// Sums one step over all these ends.
async fn sum(ends: &[End<'_>], step: u64) {
    let gradients: Vec<_> = ends.iter().map(|end| end.give(step)).collect();
    until(|| gradients.iter().all(|gradient| gradient.is_unread())).await;
}

#[tokio::test]
async fn a_ring_is_prepared_beside_the_one_that_runs_and_takes_over_at_its_step() {
    let ([mut one, mut two, mut joiner], members) = three().await;
    let first = orders(1, &members[..2]);
    let (at_one, at_two) = (one.connect(&first, 0), two.connect(&first, 1));
    one.ready(generation(1)).await;
    two.ready(generation(1)).await;
    let running = |one: &Shell, two: &Shell, step| {
        let ends = [End(one, &at_one, first.visits[0]), End(two, &at_two, first.visits[1])];
        let gradients = ends.map(|end| end.give(step));
        async move { until(|| gradients.iter().all(|gradient| gradient.is_unread())).await }
    };
    running(&one, &two, 0).await;

    // One of the members is late to hear of it: its links wait for it, and the ring goes on.
    let second = orders(2, &members);
    let (next_one, next_joiner) = (one.prepare(&second, 0), joiner.prepare(&second, 2));
    running(&one, &two, 1).await;
    let next_two = two.prepare(&second, 1);
    for shell in [&mut one, &mut two, &mut joiner] {
        shell.ready(generation(2)).await;
    }
    running(&one, &two, 2).await;

    // The closer switches; the last sum still goes around, although both are told of the switch at once.
    let switch = Trailer::Switch(generation(2));
    at_two.send(RingInput::CloseWith(switch)).unwrap();
    let last = running(&one, &two, 3);
    for shell in [&mut one, &mut two, &mut joiner] {
        shell.rings.switch(generation(2), Step::new(4));
    }
    let ends = [
        End(&one, &next_one, second.visits[0]),
        End(&two, &next_two, second.visits[1]),
        End(&joiner, &next_joiner, second.visits[2]),
    ];
    for step in 4..7 {
        sum(&ends, step).await;
    }
    last.await;
    for shell in [&mut one, &mut two, &mut joiner] {
        assert!(shell.told.try_recv().is_err(), "nothing has gone wrong");
    }
}

#[tokio::test]
async fn who_leaves_is_cut_off_only_once_the_last_sum_is_passed_on() {
    let ([mut one, mut two, mut leaver], members) = three().await;
    let first = orders(1, &members);
    let inboxes = [one.connect(&first, 0), two.connect(&first, 1), leaver.connect(&first, 2)];
    for shell in [&mut one, &mut two, &mut leaver] {
        shell.ready(generation(1)).await;
    }
    let second = orders(2, &members[..2]);
    let (next_one, next_two) = (one.prepare(&second, 0), two.prepare(&second, 1));
    for shell in [&mut one, &mut two] {
        shell.ready(generation(2)).await;
    }
    // The workers that stay switch before the leaver, which closes the sums, has done so.
    inboxes[2].send(RingInput::CloseWith(Trailer::Switch(generation(2)))).unwrap();
    let gradients: Vec<_> = [&one, &two]
        .iter()
        .zip(&inboxes)
        .zip(&first.visits)
        .map(|((shell, inbox), visit)| End(shell, inbox, *visit).give(0))
        .collect();
    for shell in [&mut one, &mut two] {
        shell.rings.switch(generation(2), Step::new(1));
    }
    let last = End(&leaver, &inboxes[2], first.visits[2]).give(0);
    until(|| gradients.iter().chain([&last]).all(|gradient| gradient.is_unread())).await;
    // It has passed everything on, and then the others close.
    soon(leaver.rings.leave().unwrap()).await.unwrap();
    until(|| leaver.peers.connections() == 0).await;
    sum(
        &[End(&one, &next_one, second.visits[0]), End(&two, &next_two, second.visits[1])],
        1,
    )
    .await;
    for shell in [&mut one, &mut two, &mut leaver] {
        assert!(shell.told.try_recv().is_err(), "nothing has gone wrong");
    }
}

#[tokio::test]
async fn what_was_prepared_in_vain_leaves_the_present_ring_alone() {
    let ([mut one, mut two, joiner], members) = three().await;
    let first = orders(1, &members[..2]);
    let (at_one, at_two) = (one.connect(&first, 0), two.connect(&first, 1));
    one.ready(generation(1)).await;
    two.ready(generation(1)).await;
    // The joiner goes before it has made its links.
    joiner.peers.close("it ends").await;
    let second = orders(2, &members);
    let (_next_one, _next_two) = (one.prepare(&second, 0), two.prepare(&second, 1));
    // Its neighbour misses it, the worker at the other end does not.
    one.ready(generation(2)).await;
    let told = two.told().await;
    let Message::LinkBroken { generation: of, peer } = told else {
        panic!("{told:?}");
    };
    assert_eq!((of, peer), (generation(2), WorkerId::new(3)));
    one.rings.unprepare();
    two.rings.unprepare();
    // What was prepared may also be replaced, by a generation that begins alone.
    let third = orders(3, &members[..1]);
    let next_one = one.prepare(&third, 0);
    one.ready(generation(3)).await;
    let ends = [End(&one, &at_one, first.visits[0]), End(&two, &at_two, first.visits[1])];
    for step in 0..3 {
        sum(&ends, step).await;
    }
    one.rings.switch(generation(3), Step::new(3));
    until(|| next_one.is_closed()).await;
    assert!(one.told.try_recv().is_err(), "alone there is nothing to sum over links");
}
