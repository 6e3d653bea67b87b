//! What goes wrong: one file for each kind of fault. A run draws its own kinds and how often each comes.

mod crash;
mod cut;
mod depot_crash;
mod depot_cut;
mod depot_full;
mod depot_wiped;
mod drain;
mod flap;
mod foreign;
mod freeze;
mod hang;
mod kill;
mod link;
mod massacre;
mod noise;
mod one_way;
mod partition;
mod preempt;
mod rot;
mod skew;
mod slow;
mod spoil;
mod stall;
mod storm;
mod vanish;

use std::time::Duration;

use sardana_protocol::words::WorkerId;
use strum::VariantArray;

use super::calendar::Happening;
use super::network::{Cut, IDLE, Node};
use super::world::{Faults, World};
pub(in crate::simulation) use freeze::is_seen_by_its_agent;
pub(crate) use slow::SLOWEST;

/// Between two looks at whether the moment of a fault has come.
const MOMENT: Duration = Duration::from_millis(50);

/// A kind of fault. One list, as long as it is: a seed draws from all of them how often each comes, and what two of them do to each other is
/// what is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, VariantArray)]
pub(crate) enum Fault {
    /// A worker's process is killed; its agent sees it.
    Kill,
    /// A worker's host is gone; no agent sees it.
    Vanish,
    /// Half of the fleet or all of it is taken away at once, with or without notice.
    Preempt,
    /// A worker's process stands still for a while.
    Freeze,
    /// A worker's training thread hangs, and its process beats on.
    Hang,
    /// A worker's work takes many times as long for a while.
    Slow,
    /// A worker is asked to leave.
    Drain,
    /// Many new workers come at once.
    Storm,
    /// A control connection breaks.
    Cut,
    /// A link between two workers breaks.
    Link,
    /// Some nodes cannot reach the others for a while, nor be reached.
    Partition,
    /// Some nodes cannot be heard for a while, or cannot hear.
    OneWay,
    /// A host's network goes down and up many times.
    Flap,
    /// Much of what is sent is lost for a while.
    Noise,
    /// The coordinator's process ends, and what was not synced is lost.
    Crash,
    /// The coordinator's process ends, and all of its disk is lost.
    DiskLost,
    /// The coordinator's process stands still for a while.
    Stall,
    /// The coordinator's clock goes too fast or too slowly for a while.
    Skew,
    /// A depot's process ends, and is back later without what was not synced.
    DepotCrash,
    /// A depot's disk is lost; it is back later, empty.
    DepotWiped,
    /// A depot's disk is full for a while.
    DepotFull,
    /// A depot cannot reach some other nodes for a while, nor be reached.
    DepotCut,
    /// A piece on a depot's disk rots.
    Rot,
    /// A depot is given the store of another job.
    Foreign,
    /// All workers die at once while a checkpoint is written.
    Massacre,
    /// A copy of a share goes bad in memory before it is written.
    Spoil,
    /// The coordinator's process ends while a checkpoint is written, or a depot's.
    CrashSaving,
}

/// A later part of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Later {
    /// The notice is over.
    Die(WorkerId),
    /// The host's network goes down once more.
    Flap { worker: WorkerId, left: u64 },
    /// A worker is as fast as before.
    Recover(WorkerId),
    /// The network is as good as before.
    Calm,
    /// The coordinator's clock is right again.
    Unskew,
    /// A depot is back.
    DepotBack(usize),
    /// A depot has room again.
    DepotEmptied(usize),
}

/// Whether a fault found what it strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Struck {
    Yes,
    Nobody,
}

/// Which jobs a fault strikes, and what is known after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strikes {
    /// Any job, and it is known all the same how many gradients were computed.
    Counted,
    /// Any job.
    Uncounted,
    /// Jobs that are saved. After none of these is it unknown how many gradients were computed.
    Saved,
}

impl Fault {
    /// All faults that strike any job.
    pub(crate) fn of_any_job() -> Vec<Self> {
        Self::that(|strikes| strikes != Strikes::Saved)
    }

    /// Faults of any job after which it is known how many gradients were computed.
    pub(crate) fn counted() -> Vec<Self> {
        Self::that(|strikes| strikes == Strikes::Counted)
    }

    /// Faults of jobs that are saved.
    pub(crate) fn of_saves() -> Vec<Self> {
        Self::that(|strikes| strikes == Strikes::Saved)
    }

    fn that(wanted: impl Fn(Strikes) -> bool) -> Vec<Self> {
        Self::VARIANTS
            .iter()
            .copied()
            .filter(|fault| wanted(fault.strikes()))
            .collect()
    }

    fn strikes(self) -> Strikes {
        match self {
            Self::Kill | Self::Hang | Self::Slow | Self::Drain | Self::Storm | Self::Crash => Strikes::Counted,
            Self::Vanish
            | Self::Preempt
            | Self::Freeze
            | Self::Cut
            | Self::Link
            | Self::Partition
            | Self::OneWay
            | Self::Flap
            | Self::Noise
            | Self::DiskLost
            | Self::Stall
            | Self::Skew => Strikes::Uncounted,
            Self::DepotCrash
            | Self::DepotWiped
            | Self::DepotFull
            | Self::DepotCut
            | Self::Rot
            | Self::Foreign
            | Self::Massacre
            | Self::Spoil
            | Self::CrashSaving => Strikes::Saved,
        }
    }

    /// Whether it comes only while a checkpoint is under way.
    fn awaits_its_moment(self) -> bool {
        matches!(self, Self::Massacre | Self::Spoil | Self::CrashSaving)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Vanish => "host lost",
            Self::Preempt => "mass preemption",
            Self::Freeze => "freeze",
            Self::Hang => "training thread hangs",
            Self::Slow => "slow node",
            Self::Drain => "drain",
            Self::Storm => "storm of joiners",
            Self::Cut => "control connection cut",
            Self::Link => "link broken",
            Self::Partition => "partition",
            Self::OneWay => "one-way partition",
            Self::Flap => "flapping",
            Self::Noise => "noise",
            Self::Crash => "coordinator crash",
            Self::DiskLost => "coordinator crash, disk lost",
            Self::Stall => "coordinator frozen",
            Self::Skew => "clock skew",
            Self::DepotCrash => "depot crash",
            Self::DepotWiped => "depot's disk lost",
            Self::DepotFull => "depot full",
            Self::DepotCut => "depot cut off",
            Self::Rot => "piece rots",
            Self::Foreign => "another job's checkpoint",
            Self::Massacre => "all workers lost while saving",
            Self::Spoil => "copy goes bad",
            Self::CrashSaving => "crash while saving",
        }
    }
}

impl World {
    /// Some time from now a fault of this kind comes.
    pub(crate) fn strike_again(&mut self, fault: Fault) {
        let drawn = self.swarm.faults.iter().find(|(kind, _)| *kind == fault);
        let Some(&(_, mean)) = drawn else { return };
        let gap = self.within(2 * mean);
        self.calendar.after(gap, Happening::Strike(fault));
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        if self.faults == Faults::Ended {
            return;
        }
        self.story.tell(self.now(), || format!("FAULT {}", fault.name()));
        let struck = match fault {
            Fault::Kill => self.kill(),
            Fault::Vanish => self.vanish(),
            Fault::Preempt => self.preempt(),
            Fault::Freeze => self.freeze(),
            Fault::Hang => self.hang(),
            Fault::Slow => self.slow_down(),
            Fault::Drain => self.drain(),
            Fault::Storm => self.storm(),
            Fault::Cut => self.cut_control(),
            Fault::Link => self.cut_link(),
            Fault::Partition => self.partition(),
            Fault::OneWay => self.one_way(),
            Fault::Flap => self.begin_to_flap(),
            Fault::Noise => self.make_noise(),
            Fault::Crash => self.crash(),
            Fault::DiskLost => self.lose_disk(),
            Fault::Stall => self.stall(),
            Fault::Skew => self.skew(),
            Fault::DepotCrash => self.crash_depot(),
            Fault::DepotWiped => self.wipe_depot(),
            Fault::DepotFull => self.fill_depot(),
            Fault::DepotCut => self.cut_depot(),
            Fault::Rot => self.rot(),
            Fault::Foreign => self.foreign(),
            Fault::Massacre => self.massacre(),
            Fault::Spoil => self.spoil(),
            Fault::CrashSaving => self.crash_while_saving(),
        };
        if struck == Struck::Yes {
            self.counts.struck(fault.name());
        } else if fault.awaits_its_moment() {
            return self.calendar.after(MOMENT, Happening::Strike(fault));
        }
        self.strike_again(fault);
    }

    pub(crate) fn later(&mut self, later: Later) {
        match later {
            Later::Die(worker) => self.take_away(worker),
            Later::Flap { worker, left } => self.flap(worker, left),
            Later::Recover(worker) => self.recover(worker),
            Later::Calm => self.calm(),
            Later::Unskew => {
                let now = self.now();
                self.coordinator.skew(now, 1_000);
            }
            Later::DepotBack(place) => self.depot_is_back(place),
            Later::DepotEmptied(place) => self.depots[place].full = false,
        }
    }

    /// How long something lasts: often short, now and then long enough that timeouts end first.
    fn lasting(&mut self) -> Duration {
        Duration::from_millis(super::swarm::between(&mut self.dice, 30, 40_000))
    }

    /// Some nodes are cut off. Connections across a cut that lasts too long break.
    pub(crate) fn cut_off(&mut self, cut: Cut) {
        let now = self.now();
        self.network.tidy(now);
        self.story.tell(now, || format!("{cut:?}"));
        let lasts = cut.until.saturating_sub(now);
        if lasts > IDLE {
            for (worker, session) in self.coordinator.sessions() {
                let (up, down) = (
                    cut.stops(Node::Worker(worker), Node::Coordinator),
                    cut.stops(Node::Coordinator, Node::Worker(worker)),
                );
                // The end that hears nothing gives up first; the other hears nothing from then on.
                let (heard, hears) = match (up, down) {
                    (false, false) => continue,
                    (true, true) => (IDLE, IDLE),
                    (true, false) => (IDLE, 2 * IDLE),
                    (false, true) => (2 * IDLE, IDLE),
                };
                self.calendar.after(heard, Happening::SessionLost { worker, session });
                self.calendar.after(hears, Happening::ControlLost { worker, session });
            }
            self.cut_depots_off(&cut);
            let rings: Vec<_> = self
                .processes
                .iter()
                .filter_map(|(&worker, process)| Some((worker, process.ring_members()?)))
                .collect();
            for (worker, (generation, peers)) in rings {
                for peer in peers {
                    let (one, other) = (Node::Worker(worker), Node::Worker(peer));
                    if cut.stops(one, other) || cut.stops(other, one) {
                        let broken = Happening::LinkBroken {
                            worker,
                            generation,
                            peer,
                        };
                        self.calendar.after(IDLE, broken);
                    }
                }
            }
        }
        self.network.cuts.push(cut);
    }
}
