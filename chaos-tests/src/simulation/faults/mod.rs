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
mod sum_lost;
mod vanish;

use std::time::Duration;

use sardana_protocol::words::{Step, WorkerId};
use strum::VariantArray;

use super::calendar::Happening;
use super::network::{Cut, IDLE, Node};
use super::swarm::between;
use super::world::World;
pub(in crate::simulation) use freeze::is_seen_by_its_agent;
pub(crate) use slow::SLOWEST;

/// Between two looks at whether the moment of a fault has come.
const MOMENT: Duration = Duration::from_millis(50);

/// Declares the kinds of faults, one a line: what a kind is called, which jobs it strikes, and what it does to a cluster.
macro_rules! faults {
    ($($(#[$doc:meta])+ $kind:ident: $name:literal, $strikes:ident, $strike:ident;)*) => {
        /// A kind of fault. One list, as long as it is: a seed draws from all of them how often each comes, and what two of them do to
        /// each other is what is looked for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, VariantArray)]
        pub(crate) enum Fault {
            $($(#[$doc])+ $kind,)*
        }

        impl Fault {
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            fn strikes(self) -> Strikes {
                match self { $(Self::$kind => Strikes::$strikes,)* }
            }

            fn strike(self, world: &mut World) -> Struck {
                match self { $(Self::$kind => world.$strike(),)* }
            }
        }
    };
}

faults! {
    /// A worker's process is killed; its agent sees it.
    Kill: "kill", Counted, kill;
    /// A worker's host is gone; no agent sees it.
    Vanish: "host lost", Uncounted, vanish;
    /// Half of the fleet or all of it is taken away at once, with or without notice.
    Preempt: "mass preemption", Uncounted, preempt;
    /// A worker's process stands still for a while.
    Freeze: "freeze", Uncounted, freeze;
    /// A worker's training thread hangs, and its process beats on.
    Hang: "training thread hangs", Counted, hang;
    /// A worker's work takes many times as long for a while.
    Slow: "slow node", Counted, slow_down;
    /// A worker is asked to leave.
    Drain: "drain", Counted, drain;
    /// Many new workers come at once.
    Storm: "storm of joiners", Counted, storm;
    /// A control connection breaks.
    Cut: "control connection cut", Uncounted, cut_control;
    /// A link between two workers breaks.
    Link: "link broken", Uncounted, cut_link;
    /// Some nodes cannot reach the others for a while, nor be reached.
    Partition: "partition", Uncounted, partition;
    /// Some nodes cannot be heard for a while, or cannot hear.
    OneWay: "one-way partition", Uncounted, one_way;
    /// A host's network goes down and up many times.
    Flap: "flapping", Uncounted, begin_to_flap;
    /// Much of what is sent is lost for a while.
    Noise: "noise", Uncounted, make_noise;
    /// The coordinator's process ends, and what was not synced is lost.
    Crash: "coordinator crash", Counted, crash;
    /// The coordinator's process ends, and all of its disk is lost.
    DiskLost: "coordinator crash, disk lost", Uncounted, lose_disk;
    /// The coordinator's process stands still for a while.
    Stall: "coordinator frozen", Uncounted, stall;
    /// The coordinator's clock goes too fast or too slowly for a while.
    Skew: "clock skew", Uncounted, skew;
    /// A depot's process ends, and is back later without what was not synced.
    DepotCrash: "depot crash", Saved, crash_depot;
    /// A depot's disk is lost; it is back later, empty.
    DepotWiped: "depot's disk lost", Saved, wipe_depot;
    /// A depot's disk is full for a while.
    DepotFull: "depot full", Saved, fill_depot;
    /// A depot cannot reach some other nodes for a while, nor be reached.
    DepotCut: "depot cut off", Saved, cut_depot;
    /// A piece on a depot's disk rots.
    Rot: "piece rots", Saved, rot;
    /// A depot is given the store of another job.
    Foreign: "another job's checkpoint", Saved, foreign;
    /// All workers die at once while a checkpoint is written.
    Massacre: "all workers lost while saving", Saved, massacre;
    /// A copy of a share goes bad in memory before it is written.
    Spoil: "copy goes bad", Saved, spoil;
    /// The coordinator's process ends while a checkpoint is written, or a depot's.
    CrashSaving: "crash while saving", Saved, crash_while_saving;
    /// The first member that has the sum of a step is lost with it.
    SumLost: "the first with a sum lost", Fast, lose_sum;
}

/// A later part of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Later {
    /// The notice is over.
    Die(WorkerId),
    /// The host's network goes down once more.
    Flap { worker: WorkerId, left: u64 },
    /// The member that has a sum is lost.
    SumLost { worker: WorkerId, step: Step },
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

/// Whether a fault found what it strikes: none if it did not.
pub(crate) type Struck = Option<()>;

/// Which jobs a fault strikes, and what is known after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strikes {
    /// Any job, and it is known all the same how many gradients were computed.
    Counted,
    /// Any job.
    Uncounted,
    /// Jobs that are saved. After none of these is it unknown how many gradients were computed.
    Saved,
    /// Jobs in fast order.
    Fast,
}

impl Fault {
    /// All faults that strike any job.
    pub(crate) fn of_any_job() -> Vec<Self> {
        Self::that(|strikes| matches!(strikes, Strikes::Counted | Strikes::Uncounted))
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

    /// Whether it comes only while a checkpoint is under way.
    fn awaits_its_moment(self) -> bool {
        matches!(self, Self::Massacre | Self::Spoil | Self::CrashSaving)
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
        if self.healed {
            return;
        }
        self.story.tell(self.now(), || format!("FAULT {}", fault.name()));
        if fault.strike(self).is_some() {
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
            Later::SumLost { worker, step } => self.sum_lost(worker, step),
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
        Duration::from_millis(between(&mut self.dice, 30, 40_000))
    }

    /// Some nodes are cut off. Connections across a cut that lasts too long break.
    pub(crate) fn cut_off(&mut self, cut: Cut) {
        let now = self.now();
        self.network.tidy(now);
        self.story.tell(now, || format!("{cut:?}"));
        let lasts = cut.until.saturating_sub(now);
        if lasts > IDLE {
            for (worker, session) in self.coordinator.sessions() {
                if let Some((here, there)) = cut.gives_up(Node::Coordinator, Node::Worker(worker)) {
                    self.calendar.after(here, Happening::SessionLost { worker, session });
                    self.calendar.after(there, Happening::ControlLost { worker, session });
                }
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
                        self.link_breaks(IDLE, generation, worker, peer);
                    }
                }
            }
        }
        self.network.cuts.push(cut);
    }
}
