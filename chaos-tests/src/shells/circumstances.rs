//! What a seed draws before anything happens: how many workers train what, on which network, and what goes wrong when.

use std::time::Duration;

use sardana::{Balance, Step};
use sardana_net::trust::limits::{CERTIFICATE_VALIDITY, RENEW_FROM_PERCENT};

use super::faults::Fault;
use super::weather::Weather;
use crate::dice::{Dice, mix};
use crate::setup::Setup;

/// How much goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing: a calm network, and no process dies.
    None,
    /// What the seed draws.
    Faults,
    /// Nothing but that the coordinator goes away, just before certificates are renewed, and comes back after this time.
    Away(Duration),
    /// The same, with certificates that have run out by then.
    AwayTooLong(Duration),
    /// Nothing but that one bit of one worker's state is wrong: the checks must find it.
    WrongBit,
}

/// One run's circumstances.
#[derive(Debug, Clone)]
pub struct Circumstances {
    /// What is trained, and by how many workers.
    pub setup: Setup,
    /// How long a gradient takes.
    pub gradient: Duration,
    /// How long an update takes.
    pub update: Duration,
    /// How long it takes to start a worker in the place of one that ended.
    pub restart: Duration,
    /// For how long certificates hold.
    pub validity: Duration,
    /// The update that goes wrong on one worker, by one bit.
    pub wrong: Option<Step>,
    /// What goes wrong, in order.
    pub(super) faults: Vec<(Duration, Fault)>,
    pub(super) weather: Weather,
}

impl Circumstances {
    /// What `seed` draws.
    #[must_use]
    pub fn draw(seed: u64, trouble: Trouble) -> Self {
        let mut dice = Dice::new(mix(seed ^ 0x5e11));
        let workers = 2 + small(&mut dice, 4);
        let shards = 4 + small(&mut dice, 6);
        let gradient = Duration::from_millis(1 + dice.below(60));
        // Half a minute or less, if nothing goes wrong.
        let lasts = Duration::from_millis(5_000 + dice.below(25_000));
        let step = gradient * shards.div_ceil(workers) + Duration::from_millis(20);
        let setup = Setup {
            workers,
            min: 1 + small(&mut dice, 2),
            shards,
            steps: u64::try_from(lasts.as_millis() / step.as_millis())
                .unwrap_or(1)
                .clamp(30, 400),
            samples: 400,
            batch: 40,
            elements: 100 + dice.below(1_500) as usize,
            ballast: 8 * dice.below(12_000) as usize,
            balance: if dice.below(2) == 0 {
                Balance::default()
            } else {
                Balance::Off
            },
            ..Setup::new(workers)
        };
        let mut circumstances = Self {
            gradient,
            update: Duration::from_millis(1 + dice.below(10)),
            restart: Duration::from_millis(200 + dice.below(4_000)),
            validity: CERTIFICATE_VALIDITY,
            wrong: (trouble == Trouble::WrongBit).then(|| Step::new(5)),
            faults: Vec::new(),
            weather: weather(&mut dice),
            setup,
        };
        match trouble {
            Trouble::None | Trouble::WrongBit => circumstances.weather.calm_down(),
            Trouble::Away(long) => circumstances.leave_alone(long),
            Trouble::AwayTooLong(long) => {
                circumstances.validity = long / 2;
                circumstances.leave_alone(long);
            }
            Trouble::Faults => circumstances.faults = Fault::draw_all(&mut dice, lasts),
        }
        circumstances
    }
}

impl Circumstances {
    /// The coordinator goes away for so long, in a job of few steps that outlasts it.
    fn leave_alone(&mut self, long: Duration) {
        let at = self.validity / 100 * RENEW_FROM_PERCENT - Duration::from_secs(1);
        self.weather.calm_down();
        self.faults = vec![(at, Fault::KillCoordinator(long))];
        self.setup.balance = Balance::Off;
        self.gradient = Duration::from_secs(8);
        let step = self.gradient * self.setup.shards.div_ceil(self.setup.workers) + self.update;
        let lasts = at + long + Duration::from_secs(10 * 60);
        self.setup.steps = u64::try_from(lasts.as_millis() / step.as_millis()).unwrap_or(1);
    }
}

fn weather(dice: &mut Dice) -> Weather {
    Weather {
        geography: dice.bits(),
        farthest: Duration::from_micros(dice.pick(&[0, 500, 5_000, 30_000]).unwrap_or(0)),
        jitter: Duration::from_micros(dice.pick(&[0, 0, 200, 3_000]).unwrap_or(0)),
        lost: dice.pick(&[0, 0, 10, 50]).unwrap_or(0),
        twice: dice.pick(&[0, 0, 20]).unwrap_or(0),
        mtu: usize::try_from(dice.pick(&[1_200, 1_280, 1_472, 9_000]).unwrap_or(1_472)).unwrap_or(1_472),
        cuts: std::collections::BTreeMap::new(),
    }
}

fn small(dice: &mut Dice, below: u64) -> u32 {
    u32::try_from(dice.below(below)).unwrap_or(0)
}
