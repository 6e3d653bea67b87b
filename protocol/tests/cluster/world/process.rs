//! One simulated worker process: its machine, and a stand-in for the trainer, the buffers and the ring's end around it.

use sardana_protocol::job::JobSpec;
use sardana_protocol::member::{Command, Event, Member, Work};
use sardana_protocol::messages::{CatchUp, MemberAddress, StepReport, WorkerMessage};
use sardana_protocol::words::{Generation, ShardRange, Step};

use super::law::{Law, hash_of};
use crate::model::{self, Piece};
use crate::ring::RingEnd;

pub(crate) struct Process {
    pub(crate) member: Member,
    pub(crate) ring: Option<RingEnd>,
    /// The generation whose links are being made.
    pub(crate) linking: Option<Generation>,
    pub(crate) fetching: Option<Fetching>,
    state: u64,
    buffers: Vec<Piece>,
    sum: Option<(Step, Vec<(u32, u64)>)>,
    accepted: Option<Data>,
}

/// What a worker wants from a donor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fetching {
    pub(crate) generation: Generation,
    pub(crate) step: Step,
    pub(crate) donor: MemberAddress,
    what: CatchUp,
}

/// Data that comes with an event.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    Sum(Step, Vec<(u32, u64)>),
    State(u64),
}

impl Process {
    pub(crate) fn new(spec: &JobSpec) -> Self {
        Self {
            member: Member::new(spec),
            ring: None,
            linking: None,
            fetching: None,
            state: model::ZERO,
            buffers: Vec::new(),
            sum: None,
            accepted: None,
        }
    }

    /// Does what the machine commands; what it says comes back. `data` came with the event under way.
    pub(crate) fn obey(&mut self, command: Command, data: &mut Option<Data>) -> Option<WorkerMessage> {
        match command {
            Command::Send(message) => return Some(message),
            Command::Connect(form) => {
                self.linking = Some(form.generation);
                self.ring = Some(RingEnd::new(*form));
            }
            Command::Abort { generation } => {
                self.linking = None;
                self.fetching = None;
                self.ring = self.ring.take().filter(|ring| ring.form.generation != generation);
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
            Command::SumAlone { pieces } => {
                let gradients = pieces.into_iter().flat_map(|piece| self.buffer(piece).gradients).collect();
                self.accepted = Some(Data::Sum(self.member.step(), gradients));
            }
            Command::Accept => self.accepted = data.take(),
            Command::CloseWithStop => self.ring.as_mut().expect("a closer has a ring").stop = true,
            Command::Fetch {
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
        }
        None
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
        let Some(Data::Sum(summed, gradients)) = self.accepted.take() else {
            panic!("no sum to apply, seed {}", law.seed);
        };
        assert_eq!(summed, step, "seed {}", law.seed);
        law.each_shard_once(step, &gradients);
        self.state = model::apply(self.state, &gradients);
        law.same_state(step.next(), self.state);
        self.sum = Some((step, gradients));
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
            CatchUp::Sum { .. } => {
                let (step, gradients) = self.sum.as_ref().filter(|(held, _)| *held == wanted.step)?;
                Some(Data::Sum(*step, gradients.clone()))
            }
            CatchUp::State { .. } => (self.member.step() == wanted.step).then_some(Data::State(self.state)),
            CatchUp::None => None,
        }
    }
}
