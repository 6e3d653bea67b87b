//! The machine of a worker whose program makes collective calls of its own: which generation it is in, and what it promises. Knows nothing of
//! operations, nor of what they compute.
//!
//! ```text
//!            Form               LinksReady             GivenUp
//!  halted ─────────▶ linking ──────────────▶ member ───────────▶ member that has given up
//!    ▲                  │ LinkBroken           │  Done ─▶ done        │
//!    └──────────────────┴──────────────────────┴───────────┴─────────┘  Halt
//! ```
//! `Halted` is a promise as every worker gives it: no link of an older generation is made or taken in afterwards (GEN-3). What an operation
//! has brought by then its rank keeps; so ranks may be one operation apart when a generation ends, and their program has to agree where it goes on.

use super::seat::{Links, Seat, can_be_executed};
use crate::job::Order;
use crate::lineage::Lineage;
use crate::messages::{CatchUp, CoordinatorMessage, Form, Introduction, Ring, Standing, Tally, WorkerMessage};
use crate::planted::{Bug, bites};
use crate::state::StateHash;
use crate::words::{Generation, Incarnation, Step, WorkerId};

/// The machine.
#[derive(Debug, Clone, Default)]
pub struct GroupMember {
    /// The newest generation that was promised to, or joined.
    generation: Generation,
    /// The highest incarnation of a coordinator that is known.
    incarnation: Incarnation,
    seat: Option<Taken>,
    /// Why it wants to leave, if it does.
    leaving: Option<String>,
}

/// A seat that is taken.
#[derive(Debug, Clone)]
struct Taken {
    seat: Seat,
    part: Part,
}

/// What the program makes of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It takes part.
    Takes,
    /// An operation has failed, or it wants the next generation.
    GivenUp,
    /// All its work is done.
    Done,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum GroupEvent {
    /// A coordinator has welcomed this worker.
    Welcomed {
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// The coordinator has sent this message. Only `Halt` and `Form` change something; others are about the process.
    Ordered(CoordinatorMessage),
    /// The links of the generation are made.
    LinksReady {
        /// The generation.
        generation: Generation,
    },
    /// A link could not be made, or the connection under it is lost.
    LinkBroken {
        /// The generation of the link.
        generation: Generation,
        /// The worker that it led to.
        peer: WorkerId,
    },
    /// The group of this generation is broken, or its program wants the next one.
    GivenUp {
        /// The generation.
        generation: Generation,
    },
    /// The program has done all its work, in this generation, and so have all its other ranks.
    Done {
        /// The generation.
        generation: Generation,
    },
    /// The program wants to leave.
    Leave {
        /// Why, for people.
        reason: String,
    },
    /// A heartbeat is due.
    Beat,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum GroupCommand {
    /// Tell the coordinator.
    Send(WorkerMessage),
    /// Make the links of this generation, then say [`GroupEvent::LinksReady`] or [`GroupEvent::LinkBroken`].
    Connect(Box<Form>),
    /// This generation is over: end its group, and let no link of a generation before `next` in.
    Abort {
        /// The generation that is over, if this worker was in one.
        generation: Option<Generation>,
        /// The one that comes.
        next: Generation,
    },
}

impl Taken {
    fn is_of(&self, generation: Generation) -> bool {
        self.seat.form.generation == generation
    }

    fn generation(&self) -> Generation {
        self.seat.form.generation
    }

    /// What the coordinator has to know of it; said again with each heartbeat, as it may not have heard.
    fn said(&self) -> impl Iterator<Item = WorkerMessage> + use<'_> {
        let generation = self.generation();
        let of_part = match self.part {
            Part::Takes => None,
            Part::GivenUp if !bites(Bug::GivenUpFinishes) => Some(WorkerMessage::GivenUp { generation }),
            Part::GivenUp | Part::Done => Some(WorkerMessage::Finished {
                generation,
                step: Step::ZERO,
                hash: StateHash::new([0; 32]),
                results: Vec::new(),
                tally: Tally::default(),
            }),
        };
        self.seat.broken_said().chain(of_part)
    }
}

impl GroupMember {
    /// What a hello says of this worker.
    #[must_use]
    pub fn introduction(&self) -> Introduction {
        let told = self.seat.as_ref().map(|taken| {
            let mut told = taken.seat.told();
            if taken.part == Part::GivenUp {
                told.ring = Ring::Broken;
            }
            told
        });
        Introduction {
            generation: self.generation,
            incarnation: self.incarnation,
            training: told.is_some(),
            seat: told,
            standing: standing(),
        }
    }

    /// The newest generation that this worker is a member of or has promised to.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Takes in one event.
    #[must_use]
    pub fn handle(&mut self, event: GroupEvent) -> Vec<GroupCommand> {
        let mut out = Vec::new();
        match event {
            GroupEvent::Welcomed { incarnation } => self.incarnation = self.incarnation.max(incarnation),
            GroupEvent::Ordered(CoordinatorMessage::Halt { generation }) => self.halt(generation, &mut out),
            GroupEvent::Ordered(CoordinatorMessage::Form(form)) => self.form(*form, &mut out),
            // What a training worker is told, or what is about the process.
            GroupEvent::Ordered(
                CoordinatorMessage::Prepare(_)
                | CoordinatorMessage::CloseWith { .. }
                | CoordinatorMessage::Serve(_)
                | CoordinatorMessage::Save(_)
                | CoordinatorMessage::SaveOver { .. }
                | CoordinatorMessage::Copy(_)
                | CoordinatorMessage::Released { .. }
                | CoordinatorMessage::Renewed { .. }
                | CoordinatorMessage::Complete { .. }
                | CoordinatorMessage::Dismiss { .. },
            ) => {}
            GroupEvent::LinksReady { generation } => {
                if let Some(taken) = self.seated(generation).filter(|taken| taken.seat.links == Links::Pending) {
                    taken.seat.links = Links::Ready;
                    out.extend(taken.seat.links_said().map(GroupCommand::Send));
                }
            }
            GroupEvent::LinkBroken { generation, peer } => {
                if let Some(taken) = self.seated(generation) {
                    out.push(GroupCommand::Send(taken.seat.broken_with(peer)));
                }
            }
            GroupEvent::GivenUp { generation } => self.becomes(generation, Part::GivenUp, &mut out),
            GroupEvent::Done { generation } => self.becomes(generation, Part::Done, &mut out),
            GroupEvent::Leave { reason } => {
                out.push(GroupCommand::Send(WorkerMessage::Leave { reason: reason.clone() }));
                self.leaving = Some(reason);
            }
            GroupEvent::Beat => self.beat(&mut out),
        }
        out
    }

    fn seated(&mut self, generation: Generation) -> Option<&mut Taken> {
        self.seat.as_mut().filter(|taken| taken.is_of(generation))
    }

    fn becomes(&mut self, generation: Generation, part: Part, out: &mut Vec<GroupCommand>) {
        // What was given up is not done, and what is done is not given up but by a halt.
        if let Some(taken) = self.seated(generation).filter(|taken| taken.part == Part::Takes) {
            taken.part = part;
            out.extend(taken.said().map(GroupCommand::Send));
        }
    }

    fn halt(&mut self, generation: Generation, out: &mut Vec<GroupCommand>) {
        let fenced = generation.incarnation() < self.incarnation;
        // The answer may not have been heard.
        let again = generation == self.generation && self.seat.is_none();
        if fenced || (generation <= self.generation && !again) {
            return;
        }
        self.generation = generation;
        let over = if bites(Bug::SeatKept) {
            self.seat.clone()
        } else {
            self.seat.take()
        };
        if !bites(Bug::GroupGoesOn) {
            out.push(GroupCommand::Abort {
                generation: over.map(|taken| taken.generation()),
                next: generation,
            });
        }
        out.push(GroupCommand::Send(WorkerMessage::Halted {
            generation,
            standing: standing(),
        }));
    }

    fn form(&mut self, form: Form, out: &mut Vec<GroupCommand>) {
        let generation = form.generation;
        if let Some(taken) = self.seated(generation) {
            out.extend(taken.seat.links_said().map(GroupCommand::Send));
            return;
        }
        let old = generation < self.generation || generation.incarnation() < self.incarnation;
        // What no sound coordinator sends is not answered.
        let sound = form.catch_up == CatchUp::None && can_be_executed(&form, Order::Fast, 0);
        if old || self.seat.is_some() || !sound {
            return;
        }
        self.generation = generation;
        self.seat = Some(Taken {
            seat: Seat::new(form.clone()),
            part: Part::Takes,
        });
        out.push(GroupCommand::Connect(Box::new(form)));
    }

    fn beat(&self, out: &mut Vec<GroupCommand>) {
        let leaving = self.leaving.clone().map(|reason| WorkerMessage::Leave { reason });
        let is_said = |taken: &&Taken| taken.part != Part::Done || !bites(Bug::DoneSaidOnce);
        let of_seat = self.seat.iter().filter(is_said).flat_map(Taken::said);
        let alive = WorkerMessage::Progress {
            generation: self.generation,
            step: Step::ZERO,
            tally: Tally::default(),
            moved: 0,
            pace: None,
            reports: Vec::new(),
        };
        out.extend(leaving.into_iter().chain(of_seat).chain([alive]).map(GroupCommand::Send));
    }
}

/// Where a worker stands that has nothing.
fn standing() -> Standing {
    Standing {
        step: Step::ZERO,
        lineage: Lineage::default(),
        kept: Vec::new(),
        sum: None,
        stop_at: None,
        tally: Tally::default(),
    }
}
