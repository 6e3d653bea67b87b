//! One simulated worker process: its machine, and a stand-in for the trainer, the buffers and the ring's end around it.

use sardana_protocol::job::JobSpec;
use sardana_protocol::member::{Command, Event, Lacking, Member, NetworkCommand, Work};
use sardana_protocol::messages::{MemberAddress, StepReport, Trailer, WorkerMessage};
use sardana_protocol::words::{Generation, Pace, ShardRange, Step};

use super::joining::{Joining, Keeping, KeptSum};
use super::law::{Law, hash_of};
use super::stores::Saves;
use crate::model::{self, Piece};
use crate::ring::RingEnd;

pub(crate) struct Process {
    pub(crate) member: Member,
    pace: Pace,
    pub(crate) ring: Option<RingEnd>,
    /// The generation whose links are being made.
    pub(crate) linking: Option<Generation>,
    pub(crate) fetching: Option<Fetching>,
    /// The ring to come, and the generation whose links are being made for it.
    pub(crate) next: Option<RingEnd>,
    pub(crate) next_linking: Option<Generation>,
    /// The ring that a trailer has ended: what it has is still sent on.
    ended: Option<Generation>,
    pub(crate) joining: Joining,
    pub(crate) keeping: Keeping,
    pub(super) saves: Saves,
    pub(super) state: u64,
    buffers: Vec<Piece>,
    pub(super) sum: Option<KeptSum>,
    accepted: Option<Data>,
}

/// What a worker wants from a donor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fetching {
    pub(crate) generation: Generation,
    pub(crate) step: Step,
    pub(crate) donor: MemberAddress,
    what: Lacking,
}

/// Data that comes with an event.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    Sum(Step, Vec<(u32, u64)>, Trailer),
    State(u64),
}

impl Process {
    pub(crate) fn new(spec: &JobSpec, pace: Pace) -> Self {
        Self {
            pace,
            member: Member::new(spec, 6),
            ring: None,
            linking: None,
            fetching: None,
            next: None,
            next_linking: None,
            ended: None,
            joining: Joining::default(),
            keeping: Keeping::default(),
            saves: Saves::default(),
            state: model::ZERO,
            buffers: Vec::new(),
            sum: None,
            accepted: None,
        }
    }

    /// How fast it is, once it has computed something.
    pub(crate) fn pace(&self) -> Option<Pace> {
        (self.member.tally().total > 0).then_some(self.pace)
    }

    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Does what the machine commands; what it says comes back. `data` came with the event under way.
    pub(crate) fn obey(&mut self, command: Command, data: &mut Option<Data>) -> Option<WorkerMessage> {
        match command {
            Command::Send(message) => return Some(message),
            Command::Save(save) => self.saves.save(*save, self.keeping.held()),
            Command::Network(command) => self.obey_over_the_network(command),
            Command::Connect(form) => {
                self.ended = None;
                self.linking = Some(form.generation);
                self.ring = Some(RingEnd::new(*form));
            }
            Command::Begin { step } => {
                let ring = self.ring.as_mut().expect("a ring begins only once it is connected");
                ring.begun = Some(step);
                ring.offered.clear();
            }
            Command::Offer { piece } => {
                let held = self.buffer(piece);
                self.ring.as_mut().expect("offers go to a ring").offered.push(held);
            }
            Command::Retain { pieces } => self.buffers.retain(|held| pieces.contains(&held.shards)),
            Command::SumAlone { pieces, trailer } => {
                let gradients = pieces.into_iter().flat_map(|piece| self.buffer(piece).gradients).collect();
                self.accepted = Some(Data::Sum(self.member.step(), gradients, trailer));
            }
            Command::Accept { trailer } => self.accept(data.take(), trailer),
            Command::CloseWith { trailer } => {
                let ring = self.ring.as_mut().expect("a closer has a ring");
                ring.closing = ring.closing.and(trailer);
            }
            Command::Prepare(form) => {
                self.next_linking = Some(form.generation);
                self.next = Some(RingEnd::new(*form));
            }
            Command::LayAside => self.joining.aside = data.take(),
            Command::AcceptAside { .. } => self.accepted = self.joining.aside.take(),
            Command::Snapshot { snapshot, shares } => self.keeping.take(snapshot, &shares, self.state),
            Command::KeepSum { step } => self.keep_sum(step),
            Command::LetGo { shares, sums_before } => self.keeping.let_go(shares, sums_before),
        }
        None
    }

    fn obey_over_the_network(&mut self, command: NetworkCommand) {
        match command {
            NetworkCommand::Abort { generation } => {
                self.linking = None;
                self.fetching = None;
                self.ended = None;
                self.ring = self.ring.take().filter(|ring| ring.form.generation != generation);
            }
            NetworkCommand::Switch { generation, step } => self.switch(generation, step),
            NetworkCommand::Unprepare => (self.next_linking, self.next) = (None, None),
            NetworkCommand::MakeRoom { shares } => self.keeping.makes_room = !shares.is_empty(),
            NetworkCommand::Admit { joiners } => self.keeping.admitted = joiners,
            NetworkCommand::Fetch {
                generation,
                what,
                step,
                donor,
            } => {
                self.fetching = Some(Fetching {
                    generation,
                    step,
                    donor,
                    what,
                });
            }
            NetworkCommand::Copy(snapshot) => self.joining.copying = Some(*snapshot),
            NetworkCommand::Follow { step, snapshot } => self.joining.following = Some((step, *snapshot)),
            NetworkCommand::EndCopy => self.joining = Joining::default(),
            NetworkCommand::EndSave => self.saves.end(),
            NetworkCommand::Restore { generation, restore, .. } => self.saves.restore(generation, restore),
            NetworkCommand::EndRestore => {}
        }
    }

    fn accept(&mut self, data: Option<Data>, trailer: Trailer) {
        self.accepted = data;
        if let Some(Data::Sum(_, _, closed)) = &mut self.accepted {
            *closed = trailer;
        }
    }

    fn keep_sum(&mut self, step: Step) {
        let newest = self.sum.clone().expect("what is kept was applied");
        assert_eq!(newest.0, step);
        self.keeping.sums.insert(step, newest);
    }

    fn switch(&mut self, generation: Generation, step: Step) {
        self.ended = self.ring.as_ref().map(|ring| ring.form.generation);
        self.joining = Joining::default();
        self.next_linking = None;
        self.ring = self
            .next
            .take()
            .filter(|next| next.form.generation == generation)
            .map(|mut next| {
                next.form.step = step;
                next
            });
    }

    /// Whether what it has of this generation still reaches the next in the ring.
    pub(crate) fn passes_on(&self, generation: Generation) -> bool {
        let current = self.ring.as_ref().is_some_and(|ring| ring.form.generation == generation);
        current || self.ended == Some(generation)
    }

    /// Links that are being made, of the present ring or of the one to come.
    pub(crate) fn next_links(&mut self) -> Option<(Generation, &RingEnd)> {
        if let (Some(generation), Some(ring)) = (self.linking.take(), &self.ring) {
            return Some((generation, ring));
        }
        Some((self.next_linking.take()?, self.next.as_ref()?))
    }

    fn buffer(&self, piece: ShardRange) -> Piece {
        let held = self.buffers.iter().find(|held| held.shards == piece);
        held.expect("what is given away is held").clone()
    }

    /// The trainer does its next piece of work; none if there is nothing to do.
    pub(crate) fn work(&mut self, law: &Law) -> Option<Event> {
        Some(match self.member.next_work() {
            Work::Wait => return None,
            Work::Gradient { step, piece, shard } => self.gradient(law, step, piece, shard),
            Work::Apply { step } => self.apply(law, step),
            Work::Load { step } => self.load(law, step),
            Work::Conclude { step } => {
                law.same_state(step, self.state);
                Event::Concluded {
                    hash: hash_of(self.state),
                    results: vec![("steps".to_owned(), 1.0)],
                }
            }
        })
    }

    fn gradient(&mut self, law: &Law, step: Step, piece: ShardRange, shard: u32) -> Event {
        law.same_state(step, self.state);
        if shard == piece.start() {
            self.buffers.retain(|held| held.shards != piece);
            self.buffers.push(Piece {
                shards: piece,
                gradients: Vec::new(),
            });
        }
        if let Some(held) = self.buffers.iter_mut().find(|held| held.shards == piece) {
            held.gradients.push((shard, model::gradient(self.state, step, shard)));
        }
        Event::Computed { step, piece, shard }
    }

    fn apply(&mut self, law: &Law, step: Step) -> Event {
        let Some(Data::Sum(summed, gradients, trailer)) = self.accepted.take() else {
            panic!("no sum to apply, seed {}", law.seed);
        };
        assert_eq!(summed, step, "seed {}", law.seed);
        law.each_shard_once(step, &gradients);
        self.state = model::apply(self.state, &gradients);
        law.same_state(step.next(), self.state);
        self.sum = Some((step, gradients, trailer));
        let report = StepReport {
            step,
            samples: 10,
            sums: vec![],
        };
        Event::Applied { report }
    }

    fn load(&mut self, law: &Law, step: Step) -> Event {
        let Some(Data::State(state)) = self.accepted.take() else {
            panic!("no state to load, seed {}", law.seed);
        };
        law.same_state(step, state);
        self.state = state;
        self.sum = None;
        Event::Loaded
    }

    /// What this process, as a donor, has of what is wanted.
    pub(crate) fn donate(&self, wanted: &Fetching) -> Option<Data> {
        match wanted.what {
            Lacking::Sum => {
                let (step, gradients, trailer) = self.sum.as_ref().filter(|(held, _, _)| *held == wanted.step)?;
                Some(Data::Sum(*step, gradients.clone(), *trailer))
            }
            Lacking::State => (self.member.step() == wanted.step).then_some(Data::State(self.state)),
        }
    }
}
