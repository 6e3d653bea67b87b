//! The coordinator's machine: which workers are members, and which generation is current.
//!
//! ```text
//!             enough, all quiet            all Ready             all Finished, one hash
//!  Gathering ───────────────────▶ Forming ───────────▶ Running ────────────────────────▶ Done
//!      ▲                             │                  │   │ ▲
//!      │ all Halted                  │ a loss, a broken │   │ │ a boundary that was planned:
//!      └────────── Halting ◀─────────┴─ link, a return ─┘   └─┘ joiners come in, leavers go out
//!                     ▲                                 │
//!                     └─────── a pause: too few stay ───┘
//! ```
//! Changes that are known beforehand stop no member. While `Running`, a newcomer becomes a *joiner*: it copies a snapshot and follows
//! the ring (`snapshot_round`). A joiner that has caught up comes in, and a member that wants to leave goes out, with a generation
//! that is prepared beside the present one and begun by a trailer (`planning`, `leaving`); so do shards that move towards faster members
//! (`balancing`). Anything that breaks outranks all this: workers that take part, or may have begun to, halt under a number that is newer
//! still (GEN-1). Deaths during `Halting` only shorten the wait; deaths during `Forming` halt again. Joiners are called in, and waited for,
//! only where the others cannot train without them.

mod adopting;
mod balancing;
mod blaming;
mod catching_up;
mod change;
mod checkpoints;
mod conclude;
mod contradicting;
mod cooling;
mod event;
mod formation;
mod forming;
mod group;
mod halting;
mod hosts;
mod job_event;
mod leaving;
mod ledger;
mod links;
mod losses;
mod on_message;
mod overview;
mod phases;
mod planning;
mod record;
mod remembering;
mod resending;
mod roster;
mod schedule;
mod sentences;
mod silence;
mod snapshots;
mod stopping;
#[cfg(test)]
mod tests;
mod training;

use std::time::Duration;

use adopting::EarlierLife;
use balancing::Ranges;
pub use balancing::{Balance, Calm};
use blaming::Breaks;
use change::Change;
use contradicting::ModelFailure;
use cooling::Failures;
pub use event::{Arrival, Command, Event, Loss};
use formation::{Formation, Sums};
pub use job_event::{GenerationEvent, JobEvent, Need, Summary, WorkerEvent};
use ledger::{Halted, Ledger};
pub use phases::Phases;
pub use record::{EarlierRecord, JobRecord, WorkerRecord};
use remembering::Absent;
use roster::{Place, Record, Roster};
use silence::Ticks;
use training::Training;

use crate::checkpoint_manager::CheckpointManager;
pub use crate::checkpoint_manager::{CheckpointEvent, Contents, DepotEvent, SaveCounts, Saves};
use crate::job::{Compression, Order, Task};
use crate::messages::{Bounds, CoordinatorMessage, Last, Sensible};
use crate::planted::{Bug, bites};
use crate::snapshot_round::SnapshotRound;
use crate::state::StateHash;
use crate::status::Stage;
use crate::words::{Generation, Incarnation, Step, WorkerId};

/// What decides when a generation forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Fewer workers than this do not train.
    pub min: u32,
    /// How many workers the first generation waits for, within [`crate::limits::GATHER`].
    pub expected: u32,
    /// Workers beyond this are spares.
    pub max: u32,
    /// K.
    pub shards: u32,
    /// The last step.
    pub steps: Step,
    /// In which order gradients are added.
    pub order: Order,
    /// As what their f32 travel between workers.
    pub compression: Compression,
    /// Whether shards move towards faster members.
    pub balance: Balance,
    /// [`crate::job::JobIdentity::task`] and [`crate::job::JobIdentity::build`] of the job: it resumes from checkpoints of these only.
    pub task: Task,
    /// See `task`.
    pub build: StateHash,
    /// When checkpoints are taken, if they are.
    pub saves: Option<Saves>,
}

/// The coordinator's machine. Time is what has passed since any fixed moment.
#[derive(Debug)]
pub struct Membership {
    config: Config,
    phase: Phase,
    /// The newest number that was announced.
    generation: Generation,
    /// The newest number that was formed.
    formed: Generation,
    formation: Option<Formation>,
    members: Roster,
    arrivals: u64,
    ledger: Ledger,
    training: Training,
    change: Change,
    ranges: Ranges,
    stop: Stop,
    round: SnapshotRound,
    checkpoints: CheckpointManager,
    earlier: EarlierLife,
    absent: Absent,
    faults: Faults,
    now: Duration,
    ticks: Ticks,
    out: Vec<Command>,
}

/// The states of the drawing above. `since`: when the way to the next generation began.
#[derive(Debug, Clone, PartialEq)]
enum Phase {
    Gathering { since: Duration, told: Option<Need> },
    Halting { since: Duration },
    Forming { since: Duration },
    Running { resumed: Resumed },
    Done,
    Failed,
}

/// Whether the generation has applied its first update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resumed {
    NotYet,
    Yes,
}

/// What workers are charged with.
#[derive(Debug, Default)]
struct Faults {
    /// Ids that were lost as members, and are waited for longer each time.
    failures: Failures,
    /// Links that did not come about, or broke.
    breaks: Breaks,
    /// A model that failed at a worker, which another is to try.
    model_failure: Option<ModelFailure>,
}

/// Whether an operator wants the job to end, and when the closer was last asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    No,
    Wanted {
        asked: Duration,
    },
    /// Asked for while the job waited for workers: where none of them has its state, it ends at once.
    WantedWhileWaiting,
}

impl Membership {
    /// A coordinator in its life `incarnation`, at the time `now`.
    #[must_use]
    pub fn new(config: Config, incarnation: Incarnation, now: Duration) -> Self {
        let none = Generation::new(incarnation, 0);
        Self {
            config,
            phase: Phase::Gathering { since: now, told: None },
            generation: none,
            formed: none,
            formation: None,
            members: Roster::default(),
            arrivals: 0,
            ledger: Ledger::default(),
            training: Training::new(now),
            change: Change::none(now),
            ranges: Ranges::new(now),
            stop: Stop::No,
            round: SnapshotRound::new(config.saves.is_some()).adding_in(config.order),
            checkpoints: CheckpointManager::new(config.rules_of_checkpoints(), now),
            earlier: EarlierLife::default(),
            absent: Absent::default(),
            faults: Faults::default(),
            now,
            ticks: Ticks::new(now),
            out: Vec::new(),
        }
    }

    fn sums(&self, members: impl IntoIterator<Item = WorkerId>) -> Sums {
        let members: Vec<WorkerId> = members.into_iter().collect();
        let is_on_device = |worker| self.members.get(worker).is_some_and(|record| record.on_device);
        Sums {
            on_devices: members.iter().all(is_on_device),
            order: self.config.order,
            shards: self.config.shards,
            gradient_bytes: self.gradient_bytes(),
            hosts: self.hosts_of(members),
            last: self.config.saves.map_or(Last::Forgotten, |_| Last::Snapshot),
        }
    }

    /// Bytes of one gradient, as workers have said; 0 if there are none.
    fn gradient_bytes(&self) -> u64 {
        self.members.values().map(|record| record.memory.gradient).max().unwrap_or(0)
    }

    /// Whether this life has formed or adopted a generation.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.formation.is_some()
    }

    /// The newest generation that was announced.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// What is going on.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.phase {
            Phase::Gathering { .. } => Stage::Gathering,
            Phase::Halting { .. } => Stage::Halting,
            Phase::Forming { .. } => Stage::Forming,
            Phase::Running { .. } => Stage::Running,
            Phase::Done | Phase::Failed => Stage::Done,
        }
    }

    /// The newest step that any worker is known to have reached.
    #[must_use]
    pub fn reached(&self) -> Step {
        self.training.reached
    }

    /// The first step whose report is missing.
    #[must_use]
    pub fn next_report(&self) -> Step {
        self.training.next_report
    }

    /// Whether `worker` is connected as far as this machine knows.
    #[must_use]
    pub fn knows(&self, worker: WorkerId) -> bool {
        self.members.contains_key(&worker)
    }

    /// How many workers are connected.
    #[must_use]
    pub fn present(&self) -> usize {
        self.members.len()
    }

    /// Takes in one event.
    #[must_use]
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Command> {
        self.now = now;
        self.ticks.ticking = matches!(event, Event::Tick);
        self.ticks.may_end = matches!(event, Event::Tick | Event::Depot { .. });
        match event {
            Event::Arrived(arrival) => self.arrived(*arrival),
            Event::Said { worker, message } => self.said(worker, message),
            Event::Lost { worker, cause } => self.lost(worker, cause),
            Event::LeaveRequested { worker, reason } => self.leave_requested(worker, reason),
            Event::Motion { worker, motion } => self.moves(worker, motion),
            Event::StopRequested => self.stop_requested(),
            Event::Depot { depot, event } => self.manage(|it, facts| it.depot(depot, event, facts)),
            Event::Tick => self.tick(),
        }
        self.advance();
        std::mem::take(&mut self.out)
    }

    /// What can be said in this job.
    fn bounds(&self) -> Bounds {
        self.config.bounds()
    }

    fn arrived(&mut self, arrival: Arrival) {
        if let Err(senseless) = arrival.introduction.check(self.bounds()) {
            let reason = format!(
                "worker {} is not taken in: {senseless}; start the worker anew",
                arrival.worker
            );
            return self.send(arrival.worker, CoordinatorMessage::Dismiss { reason });
        }
        if let (Some(step), false) = (self.has_left(&arrival), bites(Bug::ReleaseForgotten)) {
            return self.send(arrival.worker, CoordinatorMessage::Released { step });
        }
        if self.is_dismissed_for_flapping(&arrival) {
            return;
        }
        let ahead = self.has_trained_further(&arrival.introduction);
        let in_the_past = self.place_in_the_past(&arrival);
        let (worker, training) = (arrival.worker, arrival.introduction.training);
        let standing = arrival.introduction.standing.clone();
        self.absent.missed.remove(&worker);
        let halted = if training { Halted::NotYet } else { Halted::Yes };
        self.ledger.returned(worker, &standing, halted, self.training.reached);
        self.training.reached = self.training.reached.max(standing.step);
        let step = standing.step;
        self.tell(WorkerEvent::Joined { worker, step });
        // A worker that stands where the others stand need not copy anything; the first generation stands nowhere.
        let beside = !self.is_formed() && step.next() >= self.training.reached;
        // What it says of itself holds only once it has halted: it may have been following the others until now.
        let place = match in_the_past {
            Some(place) => place,
            // It copies nothing, and has promised nothing that others know of.
            None if self.is_group() && !training => Place::Quiet(standing),
            None if training || ahead || (beside && self.formed.count() > 0) => Place::Called,
            None if self.formed.count() == 0 => Place::Quiet(standing),
            None => Place::Joining(standing),
        };
        let record = Record::new(&arrival, self.arrivals, place, self.now);
        self.arrivals += 1;
        self.insert(worker, record);
        self.tell_if_cooling(worker);
        if self.earlier.asked_before.remove(&worker) {
            let reason = "asked for before it was away, or the coordinator was started again".to_owned();
            self.leave_requested(worker, reason);
        }
        // A worker that is still in its old place has missed what was said since then.
        if (training || ahead) && self.is_formed() {
            self.disturb();
        } else if (training || beside) && self.stage() == Stage::Halting {
            let generation = self.generation;
            self.send(worker, CoordinatorMessage::Halt { generation });
        }
    }

    fn tick(&mut self) {
        self.mind_the_clock();
        self.round.stir();
        self.evict_silent();
        self.evict_stopped();
        self.give_up_broken_links();
        self.resend();
        if self.is_group() {
            return self.tend_group();
        }
        self.refute_progress();
        self.evict_stalled();
        self.ask_again_to_stop();
        self.ask_again_for_the_plan();
        self.lead(SnapshotRound::tend);
        self.tend_checkpoints();
        self.balance();
    }

    /// Whether some member has finished the job.
    fn is_ending(&self) -> bool {
        self.members.census().finished > 0
    }

    /// Whether a generation is formed or being formed.
    fn is_formed(&self) -> bool {
        matches!(self.phase, Phase::Forming { .. } | Phase::Running { .. })
    }

    fn send(&mut self, worker: WorkerId, message: CoordinatorMessage) {
        if let Some(record) = self.members.get_mut(&worker) {
            record.asked = self.now;
        }
        self.out.push(Command::Send { worker, message });
    }

    fn send_if_here(&mut self, worker: WorkerId, message: CoordinatorMessage) {
        if self.members.contains_key(&worker) {
            self.send(worker, message);
        }
    }

    fn tell(&mut self, event: impl Into<JobEvent>) {
        self.out.push(Command::Tell(event.into()));
    }
}
