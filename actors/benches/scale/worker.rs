//! A worker that answers at once: its own machine, with a training thread, links, transfers and memory that take no time.

use std::net::SocketAddr;

use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::job::JobSpec;
use sardana_protocol::limits::PIECE_BYTES;
use sardana_protocol::member::{Command, Event, Followed, Heartbeat, Member, NetworkCommand, SavedShare, Work};
use sardana_protocol::membership::Arrival;
use sardana_protocol::memory::GradientMemory;
use sardana_protocol::messages::{CoordinatorMessage, Save, StepReport, Trailer, WorkerMessage};
use sardana_protocol::snapshot::{Share, SnapshotId};
use sardana_protocol::state::{StateHash, StateSize, share_hash};
use sardana_protocol::words::{Generation, Incarnation, Step, WorkerId};

/// Pieces of the state, however many workers there are.
pub(crate) const PIECES: u64 = 4_096;

/// A piece of every state: that all are alike shows in nothing that is counted here.
const PIECE: PieceHash = PieceHash::new([9; 32]);

/// How many sums a member keeps for workers that follow.
const KEEPS: u32 = 1_000;

/// What a worker has said, and what it wants of the ring.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) messages: Vec<WorkerMessage>,
    pub(crate) closing: Option<Trailer>,
}

pub(crate) struct Worker {
    pub(crate) member: Member,
    /// The sum that it waits for beside the ring.
    pub(crate) follows: Option<Step>,
    /// The snapshot that it copies.
    copies: Option<SnapshotId>,
    /// The shares that it has copied last.
    held: Vec<Share>,
}

impl Worker {
    pub(crate) fn new(job: &JobSpec) -> Self {
        Self {
            member: Member::new(job, KEEPS),
            follows: None,
            copies: None,
            held: Vec::new(),
        }
    }

    pub(crate) fn arrives(&mut self, worker: WorkerId, shards: u32, incarnation: Incarnation) -> Arrival {
        let mut nothing = Said::default();
        self.happens(Event::Introducing, &mut nothing);
        let introduction = self.member.introduction();
        let report_from = Step::ZERO;
        let welcome = Event::Welcomed {
            incarnation,
            report_from,
        };
        self.happens(welcome, &mut nothing);
        Arrival {
            worker,
            address: SocketAddr::from(([10, 0, 0, 1], 40_000)),
            capacity: shards,
            memory: GradientMemory::unbounded(1),
            host_hash: None,
            on_device: false,
            introduction,
        }
    }

    /// The coordinator says this.
    pub(crate) fn told(&mut self, message: CoordinatorMessage) -> Said {
        let mut said = Said::default();
        self.happens(Event::Ordered(message), &mut said);
        said
    }

    /// A heartbeat is due.
    pub(crate) fn beats(&mut self) -> Said {
        let mut said = Said::default();
        let heartbeat = Heartbeat::Due(None);
        self.happens(Event::Beat { heartbeat }, &mut said);
        said
    }

    /// The ring has closed the sum of a step.
    pub(crate) fn summed(&mut self, generation: Generation, step: Step, trailer: Trailer) -> Said {
        let mut said = Said::default();
        let event = Event::Summed {
            generation,
            step,
            trailer,
        };
        self.happens(event, &mut said);
        said
    }

    /// What it copies is there.
    pub(crate) fn copied(&mut self) -> Said {
        let mut said = Said::default();
        if let Some(snapshot) = self.copies.take() {
            self.happens(Event::Copied { snapshot }, &mut said);
        }
        said
    }

    /// The sum that it follows with is there.
    pub(crate) fn followed(&mut self, step: Step, trailer: Trailer, keeper_at: Step) -> Said {
        let mut said = Said::default();
        self.follows = None;
        let event = Event::Followed(Followed {
            step,
            generation: Generation::NONE,
            trailer,
            keeper_at,
        });
        self.happens(event, &mut said);
        said
    }

    fn happens(&mut self, event: Event, said: &mut Said) {
        let mut events = vec![event];
        while !events.is_empty() {
            for event in std::mem::take(&mut events) {
                for command in self.member.handle(event) {
                    self.obeys(command, said, &mut events);
                }
            }
            if events.is_empty() {
                events.extend(self.works());
            }
        }
    }

    fn works(&mut self) -> Option<Event> {
        Some(match self.member.next_work() {
            Work::Wait => return None,
            Work::Gradient { step, piece, shard, .. } => Event::Computed { step, piece, shard },
            Work::Apply { step } => Event::Applied {
                report: StepReport {
                    step,
                    samples: 1,
                    sums: vec![],
                },
            },
            Work::Load { .. } => Event::Loaded,
            Work::Conclude { .. } => Event::Concluded {
                hash: StateHash::new([1; 32]),
                results: vec![],
            },
        })
    }

    fn obeys(&mut self, command: Command, said: &mut Said, events: &mut Vec<Event>) {
        match command {
            Command::Send(message) => said.messages.push(message),
            Command::Connect(form) | Command::Prepare(form) => events.push(Event::LinksReady {
                generation: form.generation,
            }),
            Command::Snapshot { snapshot, shares } => {
                self.held.clone_from(&shares);
                let shares = shares.into_iter().map(|share| (share.index, hash_of(share))).collect();
                events.push(Event::Snapshotted { snapshot, shares });
            }
            Command::Network(command) => events.extend(self.over_the_network(command)),
            Command::Save(save) => events.extend(self.writes(&save)),
            Command::CloseWith { trailer } => said.closing = Some(trailer),
            Command::Begin { .. }
            | Command::Offer { .. }
            | Command::Retain { .. }
            | Command::SumAlone { .. }
            | Command::Accept { .. }
            | Command::LayAside
            | Command::AcceptAside { .. }
            | Command::KeepSum { .. }
            | Command::LetGo { .. } => {}
        }
    }

    /// What comes at once of what it does over the network.
    fn over_the_network(&mut self, command: NetworkCommand) -> Option<Event> {
        match command {
            NetworkCommand::MakeRoom { shares } => return (!shares.is_empty()).then_some(Event::RoomMade),
            NetworkCommand::Fetch { generation, what, .. } => {
                let step = what.step();
                return Some(Event::Fetched { generation, step });
            }
            NetworkCommand::Restore { generation, restore, .. } => {
                let step = restore.key.step;
                return Some(Event::Fetched { generation, step });
            }
            NetworkCommand::Copy(snapshot) => self.copies = Some(snapshot.id),
            NetworkCommand::Follow { sum, .. } => self.follows = Some(sum.step),
            NetworkCommand::EndCopy | NetworkCommand::Switch { .. } => (self.copies, self.follows) = (None, None),
            NetworkCommand::Abort { .. }
            | NetworkCommand::Unprepare
            | NetworkCommand::Admit { .. }
            | NetworkCommand::EndSave
            | NetworkCommand::EndRestore => {}
        }
        None
    }

    /// Writes the shares that it is to write.
    fn writes(&self, save: &Save) -> Vec<Event> {
        let written = |share: &Share| {
            Event::Saved(Box::new(SavedShare {
                snapshot: save.snapshot,
                attempt: save.attempt,
                share: share.index,
                bytes: bytes_of(*share),
                description: vec![PIECE],
                state: StateSize {
                    pieces: PIECES,
                    bytes: PIECES * PIECE_BYTES as u64,
                },
                pieces: pieces_of(*share),
            }))
        };
        let wanted = self.held.iter().filter(|share| save.shares.contains(&share.index));
        wanted.map(written).collect()
    }
}

fn pieces_of(share: Share) -> Vec<PieceHash> {
    let (start, end) = share.pieces(PIECES);
    (start..end).map(|_| PIECE).collect()
}

fn bytes_of(share: Share) -> u64 {
    pieces_of(share).len() as u64 * PIECE_BYTES as u64
}

fn hash_of(share: Share) -> StateHash {
    share_hash(bytes_of(share), &pieces_of(share))
}
