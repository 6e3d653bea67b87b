//! One simulated worker process: its machine, and a stand-in for the training thread, the buffers and the ring's end around it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use sardana_protocol::job::{JobSpec, Order};
use sardana_protocol::lineage::{Lineage, WantedSum};
use sardana_protocol::member::{Lacking, Member, Work};
use sardana_protocol::messages::{Form, MemberAddress, Motion, Trailer, WorkerMessage};
use sardana_protocol::plan::{HopEnd, HopId, Part};
use sardana_protocol::words::{Generation, Rank, ShardRange, Step, WorkerId};

use super::direct::Finished;
use super::joining::Joining;
use super::keeping::Keeping;
use super::moving::Moved;
use super::restoring::Restoring;
use super::round::in_its_order;
use super::saving::Saves;
use crate::simulation::model::{self, Gradients, Sum};
use crate::simulation::network::IDLE;

/// What a worker's process has. One type, as long as it is: all that its end takes along.
pub(crate) struct Process {
    pub(crate) started: Duration,
    pub(crate) member: Member,
    pub(crate) control: Control,
    /// Said while there is no connection: the next one carries it.
    pub(crate) outbox: Vec<WorkerMessage>,
    /// When the last message over this connection arrives.
    pub(crate) upstream: Duration,
    /// When its machine comes to the last of what its tasks have left for it.
    pub(crate) mailed: Duration,
    pub(crate) working: Option<Work>,
    /// When it began that work.
    pub(crate) began: Duration,
    /// The longest that it did of late: when that ended, and how long it took.
    pub(crate) did: (Duration, Duration),
    /// Bytes that it has fetched or loaded, when that was last counted, and when it last moved some.
    pub(crate) moved: Moved,
    /// The buffer that the training thread writes to.
    pub(crate) driver: Option<Gradients>,
    /// The generation whose ring was offered the piece that this completes.
    pub(crate) awaited_by: Option<Generation>,
    /// The gradient that it does after that, if it was begun beside it.
    pub(crate) beside: Option<Beside>,
    pub(crate) buffers: BTreeMap<ShardRange, Gradients>,
    pub(crate) frozen_until: Option<Duration>,
    /// Whether it runs or stands still, as its agent has last said.
    pub(crate) seen: Motion,
    /// Whether its training thread hangs: what it does is never done.
    pub(crate) hung: bool,
    /// Its work takes so many times as long.
    pub(crate) slow: u32,
    /// How fast its clock goes, in thousandths.
    pub(crate) rate: u64,
    pub(crate) ring: Option<RingEnd>,
    /// The ring to come.
    pub(crate) next: Option<RingEnd>,
    pub(crate) fetching: Option<Fetching>,
    pub(crate) joining: Joining,
    pub(crate) keeping: Keeping,
    /// What it writes to depots.
    pub(crate) saves: Saves,
    /// The checkpoint that it loads.
    pub(crate) restoring: Option<Restoring>,
    pub(crate) state: u64,
    /// The newest sum that was, or is being, applied.
    pub(crate) sum: Option<Sum>,
    pub(crate) accepted: Option<Data>,
    /// Whether a flush of reports is due already.
    pub(crate) reports_due: bool,
}

/// A gradient that is begun before the one before it is there.
#[derive(Debug, Clone)]
pub(crate) struct Beside {
    pub(crate) work: Work,
    pub(crate) piece: ShardRange,
    /// The buffer that is written to. None if that is the buffer of the one before, of the same piece.
    pub(crate) driver: Option<Gradients>,
    pub(crate) awaited_by: Option<Generation>,
}

/// A worker's control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Control {
    #[default]
    Dialing,
    /// A hello is on its way.
    Greeting(u64),
    Joined(u64),
}

impl Control {
    /// The session that it has, or asks for.
    pub(super) fn session(self) -> Option<u64> {
        match self {
            Self::Dialing => None,
            Self::Greeting(session) | Self::Joined(session) => Some(session),
        }
    }
}

/// What a worker wants from a donor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fetching {
    pub(crate) serial: u64,
    pub(crate) since: Duration,
    pub(crate) generation: Generation,
    pub(crate) donor: MemberAddress,
    pub(crate) what: Lacking,
}

/// Data that comes with an event.
#[derive(Debug, Clone, Default)]
pub(crate) enum Data {
    #[default]
    None,
    Sum(Sum),
    State(u64),
}

/// One member's end of a generation's ring.
#[derive(Debug, Clone)]
pub(crate) struct RingEnd {
    pub(crate) form: Form,
    /// Since when its links are being made.
    pub(crate) since: Duration,
    pub(crate) links: Links,
    pub(crate) begun: Option<Step>,
    pub(crate) offered: BTreeMap<ShardRange, Gradients>,
    pub(crate) closing: Trailer,
    /// What has come over each hop and waits: the running sum, or what ranks have brought to this owner.
    pub(crate) arrived: BTreeMap<(Step, HopId), Gradients>,
    /// The last step whose sum was begun here, at rank 0, or to which this rank has brought its gradients.
    pub(crate) started: Option<Step>,
    /// The last step of which this owner has added up its chunk.
    pub(crate) added: Option<Step>,
    /// The chunks of the step under way that are finished.
    pub(crate) told: Vec<Finished>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    Making,
    Made,
    Broken,
}

impl RingEnd {
    pub(crate) fn new(form: Form, since: Duration) -> Self {
        Self {
            form,
            since,
            links: Links::Making,
            begun: None,
            offered: BTreeMap::new(),
            closing: Trailer::Continue,
            arrived: BTreeMap::new(),
            started: None,
            added: None,
            told: Vec::new(),
        }
    }

    /// What it does in a step.
    pub(crate) fn part(&self, step: Step) -> &Part {
        if step == self.form.step {
            &self.form.first
        } else {
            &self.form.steady
        }
    }

    /// Whether all of this rank's pieces of the step are here.
    pub(crate) fn is_ready_for(&self, step: Step) -> bool {
        let mut runs = self.part(step).shards().into_iter();
        self.begun == Some(step) && runs.all(|run| self.pieces_of(run).is_some())
    }

    /// The pieces that make up `shards`, if all of them are here.
    fn pieces_of(&self, shards: ShardRange) -> Option<Vec<ShardRange>> {
        let (mut next, mut pieces) = (shards.start(), Vec::new());
        while next < shards.end() {
            let piece = self.piece_from(next)?;
            pieces.push(piece);
            next = piece.end();
        }
        Some(pieces)
    }

    fn piece_from(&self, shard: u32) -> Option<ShardRange> {
        let from = ShardRange::new(shard, shard);
        let (&piece, _) = self.offered.range(from..).next()?;
        (piece.start() == shard).then_some(piece)
    }

    /// Adds the gradients of `shards`, which are here.
    pub(crate) fn add(&self, shards: ShardRange, sum: &mut Gradients) {
        for piece in self.pieces_of(shards).into_iter().flatten() {
            sum.extend(self.offered.get(&piece).into_iter().flatten());
        }
    }

    /// The worker at the other end of a hop.
    pub(crate) fn member(&self, end: HopEnd) -> Option<WorkerId> {
        self.form.peer(end.peer).map(|member| member.worker)
    }

    /// The workers that this rank has links with.
    pub(crate) fn neighbours(&self) -> Vec<WorkerId> {
        let parts = [&self.form.first, &self.form.steady];
        let ranks: BTreeSet<Rank> = parts.into_iter().flat_map(Part::peers).collect();
        let members = ranks.into_iter().filter_map(|rank| self.form.peer(rank));
        members.map(|member| member.worker).collect()
    }
}

impl Process {
    pub(crate) fn new(spec: &JobSpec, keeps: u32, rate: u64, started: Duration) -> Self {
        Self {
            started,
            member: Member::new(spec, keeps),
            control: Control::Dialing,
            outbox: Vec::new(),
            upstream: Duration::ZERO,
            mailed: Duration::ZERO,
            working: None,
            began: Duration::ZERO,
            did: (Duration::ZERO, Duration::ZERO),
            moved: Moved::default(),
            driver: None,
            awaited_by: None,
            beside: None,
            buffers: BTreeMap::new(),
            frozen_until: None,
            seen: Motion::Runs,
            hung: false,
            slow: 1,
            rate,
            ring: None,
            next: None,
            fetching: None,
            joining: Joining::default(),
            keeping: Keeping::default(),
            saves: Saves::default(),
            restoring: None,
            state: model::ZERO,
            sum: None,
            accepted: None,
            reports_due: false,
        }
    }

    /// Its ring of this generation, present or to come.
    pub(crate) fn ring_of(&mut self, generation: Generation) -> Option<&mut RingEnd> {
        let rings = [&mut self.ring, &mut self.next].into_iter().flatten();
        let mut wanted = rings.filter(|ring| ring.form.generation == generation);
        wanted.next()
    }

    /// The workers that it is linked with, and in which generation.
    pub(crate) fn ring_members(&self) -> Option<(Generation, Vec<WorkerId>)> {
        let ring = self.ring.as_ref()?;
        Some((ring.form.generation, ring.neighbours()))
    }

    /// The buffer for a gradient: a new one for the first shard of a piece, and else what the piece has.
    pub(super) fn buffer_for(&mut self, piece: ShardRange, shard: u32) -> Option<Gradients> {
        if shard == piece.start() {
            Some(Vec::new())
        } else {
            self.buffers.remove(&piece)
        }
    }

    /// The generation whose ring it is in.
    pub(crate) fn ring_generation(&self) -> Option<Generation> {
        self.ring.as_ref().map(|ring| ring.form.generation)
    }

    pub(crate) fn is_linking(&self, generation: Generation) -> bool {
        let mut rings = [&self.ring, &self.next].into_iter().flatten();
        rings.any(|ring| ring.form.generation == generation && ring.links != Links::Broken)
    }

    /// What this process, as a donor, has of what is wanted.
    pub(crate) fn donate(&self, wanted: &Fetching) -> Option<Data> {
        match wanted.what {
            Lacking::Sum(wanted) => Some(Data::Sum(self.sum_of(wanted)?.clone())),
            Lacking::State(step) => (self.member.step() == step).then_some(Data::State(self.state)),
        }
    }

    /// Whether it has the sum of this step, as one of those to come or as the newest.
    pub(crate) fn has_sum_of(&self, step: Step) -> bool {
        let comes = [self.accepted.as_ref(), Some(&self.joining.aside)];
        let comes = comes.into_iter().flatten().filter_map(|data| match data {
            Data::Sum(sum) => Some(sum),
            Data::State(_) | Data::None => None,
        });
        comes.chain(&self.sum).any(|sum| sum.step == step)
    }

    /// The sum, if it is here.
    pub(crate) fn sum_of(&self, wanted: WantedSum) -> Option<&Sum> {
        let sums = [self.sum.as_ref(), self.keeping.sums.get(&wanted.step)];
        sums.into_iter().flatten().find(|sum| sum.is(wanted))
    }

    /// Its training thread has done what it was doing.
    pub(crate) fn done_at(&mut self, now: Duration) {
        let (ended, lasted) = self.did;
        let lasts = now.saturating_sub(self.began);
        if lasts >= lasted || now.saturating_sub(ended) > IDLE {
            self.did = (now, lasts);
        }
    }

    /// Only the training thread hands out a state.
    pub(crate) fn owes_forever(&self, wanted: &Fetching) -> bool {
        self.hung && matches!(wanted.what, Lacking::State(_))
    }

    /// Whether it has computed as many gradients in the first step of its generation as it owes there, whatever became of them.
    pub(crate) fn seems_done(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| {
            let owes: u32 = ring.form.first.shards().into_iter().map(ShardRange::len).sum();
            let step = self.member.step();
            step == ring.form.step && self.member.tally().computed_in(step) >= owes
        })
    }

    pub(crate) fn take_sum(&mut self, step: Step) -> Option<Sum> {
        match self.accepted.take() {
            Some(Data::Sum(sum)) if sum.step == step => {
                let lineage = self.member.coming_lineage();
                Some(Sum { lineage, ..sum })
            }
            Some(Data::Sum(_) | Data::State(_) | Data::None) | None => None,
        }
    }

    /// Adds up all pieces: there is no ring.
    pub(crate) fn add_up_alone(&mut self, order: Order, pieces: &[ShardRange], trailer: Trailer) {
        let mut gradients = Gradients::new();
        for piece in pieces {
            gradients.extend(self.buffers.remove(piece).into_iter().flatten());
        }
        if order == Order::Fast {
            gradients = in_its_order(self.member.generation(), gradients);
        }
        self.accepted = Some(Data::Sum(Sum {
            step: self.member.step(),
            gradients: Rc::from(gradients),
            trailer,
            lineage: Lineage::default(),
        }));
    }
}
