//! What goes wrong, and how it is done to the cluster.

use std::net::IpAddr;
use std::time::Duration;

use sardana_protocol::status::OperatorRequest;
use strum::{IntoStaticStr, VariantNames};

use super::cluster::{COORDINATOR, Happening};
use super::run::Run;
use crate::dice::Dice;

/// One thing that goes wrong. The number n means the n-th of the workers that are there when it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantNames)]
pub(super) enum Fault {
    /// A worker's process is killed. Another is started after a while.
    #[strum(serialize = "fault: a worker killed")]
    KillWorker(u64),
    /// All workers but one are killed at once.
    #[strum(serialize = "fault: most workers killed")]
    KillMost,
    /// The coordinator is killed, and started again after this time with what it had written down.
    #[strum(serialize = "fault: the coordinator killed")]
    KillCoordinator(Duration),
    /// The same, and its disk is lost.
    #[strum(serialize = "fault: the coordinator killed, and its records lost")]
    LoseCoordinator(Duration),
    /// A worker's host is cut off from all others for so long.
    #[strum(serialize = "fault: a worker cut off")]
    CutOff(u64, Duration),
    /// Two workers do not reach each other for so long.
    #[strum(serialize = "fault: two workers cut off from each other")]
    CutPair(u64, u64, Duration),
    /// Only the worker and the coordinator do not reach each other for so long.
    #[strum(serialize = "fault: a worker cut off from the coordinator")]
    CutControl(u64, Duration),
    /// For so long no message of the worker arrives; it hears the others.
    #[strum(serialize = "fault: a worker that nobody hears")]
    Mute(u64, Duration),
    /// The coordinator is cut off from all workers for so long.
    #[strum(serialize = "fault: the coordinator cut off")]
    CutCoordinator(Duration),
    /// For so long, of 1,000 datagrams so many are lost, and so many doubled.
    #[strum(serialize = "fault: a storm")]
    Storm(Duration, u64, u64),
    /// For so long datagrams take up to so much longer, each its own time.
    #[strum(serialize = "fault: datagrams out of order")]
    Shuffle(Duration, Duration),
    /// For so long nothing larger passes than what any network carries.
    #[strum(serialize = "fault: a narrow path")]
    Narrow(Duration),
    /// A worker does nothing for so long; its network answers.
    #[strum(serialize = "fault: a worker frozen")]
    Freeze(u64, Duration),
    /// One more worker comes.
    #[strum(serialize = "fault: one worker more")]
    Grow,
    /// An operator drains a worker.
    #[strum(serialize = "fault: a worker drained")]
    Drain(u64),
}

impl Fault {
    /// What a seed draws for so long.
    pub(super) fn draw_all(dice: &mut Dice, within: Duration) -> Vec<(Duration, Self)> {
        let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let count = 1 + dice.below(8);
        let mut faults: Vec<_> = (0..count)
            .map(|_| (Duration::from_millis(dice.below(within)), Self::draw(dice)))
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        faults
    }

    fn draw(dice: &mut Dice) -> Self {
        let (who, other) = (dice.below(64), dice.below(64));
        // Less than a link's patience, more than the silence that counts as death, and more than the idle timeout.
        let millis = dice.pick(&[300, 2_000, 6_000, 14_000]).unwrap_or(300);
        let long = Duration::from_millis(millis + dice.below(millis));
        match dice.below(17) {
            0..=2 => Self::KillWorker(who),
            3 => Self::KillMost,
            4 => Self::KillCoordinator(long),
            5 => Self::LoseCoordinator(long),
            6 => Self::CutOff(who, long),
            7 => Self::CutPair(who, other, long),
            8 => Self::CutControl(who, long),
            9 => Self::Mute(who, long),
            10 => Self::CutCoordinator(long),
            11 => Self::Storm(long, 50 + dice.below(250), dice.below(100)),
            12 => Self::Shuffle(long, Duration::from_millis(5 + dice.below(60))),
            13 => Self::Narrow(long),
            14 => Self::Freeze(who, long),
            15 => Self::Grow,
            _ => Self::Drain(who),
        }
    }
}

/// From which host to which nothing passes.
type Cuts = Vec<(IpAddr, IpAddr)>;

fn both_ways(one: IpAddr, other: IpAddr) -> Cuts {
    vec![(one, other), (other, one)]
}

impl Run {
    /// Lets something go wrong. It counts only once it has.
    pub(super) fn strike(&mut self, fault: Fault) {
        let name: &'static str = fault.into();
        self.tell(&format!("{name}: {fault:?}"));
        if self.strikes(fault) {
            self.count("faults");
            self.count(name);
        } else {
            self.tell("it strikes nothing");
        }
    }

    /// Whether there is what a fault strikes.
    fn strikes(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::KillWorker(who) => self.kill(who),
            Fault::KillMost => {
                let most = 1..self.cluster.workers.len();
                most.filter(|_| self.kill(0)).count() > 0
            }
            Fault::KillCoordinator(after) => self.kill_coordinator(after),
            Fault::LoseCoordinator(after) => {
                let struck = self.kill_coordinator(after);
                self.cluster.lose_records();
                struck
            }
            Fault::CutOff(who, long) => self.cut(who, long, both_ways),
            Fault::CutPair(who, other, long) => match self.ip(who).zip(self.ip(other)) {
                Some((one, other)) if one != other => self.begin_to_cut(long, both_ways(one, other)),
                Some(_) | None => false,
            },
            Fault::CutControl(who, long) => {
                let control = |own, other| {
                    if other == COORDINATOR.ip() {
                        both_ways(own, other)
                    } else {
                        Vec::new()
                    }
                };
                self.cut(who, long, control)
            }
            Fault::Mute(who, long) => self.cut(who, long, |own, other| vec![(own, other)]),
            Fault::CutCoordinator(long) => {
                let cuts = self.hosts().into_iter().flat_map(|other| both_ways(COORDINATOR.ip(), other));
                self.begin_to_cut(long, cuts.collect())
            }
            Fault::Storm(long, lost, twice) => {
                self.cluster.air.turn(|weather| (weather.lost, weather.twice) = (lost, twice));
                self.begin(long, Vec::new())
            }
            Fault::Shuffle(long, jitter) => {
                self.cluster.air.turn(|weather| weather.jitter = jitter);
                self.begin(long, Vec::new())
            }
            Fault::Narrow(long) => {
                self.cluster.air.turn(|weather| weather.mtu = super::weather::LEAST_MTU);
                self.begin(long, Vec::new())
            }
            Fault::Freeze(who, long) => {
                let Some(member) = self.choose(who).and_then(|serial| self.cluster.workers.get(&serial)) else {
                    return false;
                };
                member.freeze(long);
                self.begin(long, Vec::new())
            }
            Fault::Grow => {
                self.cluster.start_worker();
                true
            }
            Fault::Drain(who) => {
                let id = self.choose(who).and_then(|serial| self.cluster.workers.get(&serial)?.id);
                let (Some(life), Some(id)) = (&self.cluster.coordinator, id) else {
                    return false;
                };
                let whom = id.to_string();
                life.coordinator.steering().request(OperatorRequest::Drain { whom });
                true
            }
        }
    }

    fn kill(&mut self, who: u64) -> bool {
        let Some(serial) = self.choose(who) else {
            return false;
        };
        self.cluster.kill_worker(serial);
        self.tell(&format!("worker {serial} is killed"));
        self.replace();
        true
    }

    fn kill_coordinator(&mut self, after: Duration) -> bool {
        let killed = self.cluster.kill_coordinator();
        if killed {
            self.open += 1;
            self.cluster.later(after, Happening::StartCoordinator);
        }
        killed
    }

    /// Cuts a worker off from all others, as `how` says.
    fn cut(&mut self, who: u64, long: Duration, how: impl Fn(IpAddr, IpAddr) -> Cuts) -> bool {
        let Some(own) = self.ip(who) else {
            return false;
        };
        let others = self
            .hosts()
            .into_iter()
            .chain([COORDINATOR.ip()])
            .filter(|&other| other != own);
        let cuts = others.flat_map(|other| how(own, other)).collect();
        self.begin_to_cut(long, cuts)
    }

    /// Nothing passes from some hosts to others for so long.
    fn begin_to_cut(&mut self, long: Duration, cuts: Cuts) -> bool {
        !cuts.is_empty() && self.begin(long, cuts)
    }

    /// Something goes on for so long.
    fn begin(&mut self, long: Duration, cuts: Cuts) -> bool {
        self.numbered += 1;
        let number = self.numbered;
        self.cluster.air.turn(|weather| {
            weather.cuts.insert(number, cuts);
        });
        self.open += 1;
        self.cluster.later(long, Happening::Over(number));
        true
    }

    /// What went on is over. Weather of which there were two kinds at once is as it was before both.
    pub(super) fn over(&mut self, number: u64) {
        let before = self.cluster.circumstances.weather.clone();
        self.cluster.air.turn(|weather| {
            weather.cuts.remove(&number);
            (weather.lost, weather.twice, weather.jitter, weather.mtu) =
                (before.lost, before.twice, before.jitter, before.mtu);
        });
        self.open -= 1;
        self.tell("a fault is over");
    }

    fn hosts(&self) -> Vec<IpAddr> {
        self.cluster.workers.values().map(|member| member.host.ip()).collect()
    }

    fn ip(&self, who: u64) -> Option<IpAddr> {
        Some(self.cluster.workers.get(&self.choose(who)?)?.host.ip())
    }
}
