//! A job in which one worker's own port breaks for good: no other worker reaches it, or it reaches no other, or both. All speak with the
//! coordinator as before. Only a worker that the others cannot link with is left out.

use std::collections::BTreeSet;
use std::time::Duration;

use sardana_protocol::words::WorkerId;
use strum::VariantArray;

use super::invariants::Violation;
use super::network::{Cut, Node, Way};
use super::swarm::Swarm;
use super::world::World;

/// What does not pass any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum Port {
    /// What the worker sends to others.
    Out,
    /// What others send to it.
    In,
    /// Both.
    Both,
}

/// What becomes of such a job.
#[derive(Debug)]
pub struct Broken {
    /// Whether the worker with the broken port was left out.
    pub broken_left_out: bool,
    /// How many other workers were.
    pub healthy_left_out: usize,
    /// How long it took until as many workers as before trained without it.
    pub whole: Option<Duration>,
    /// Steps that were applied since.
    pub steps: u64,
    /// What did not hold, if something did not.
    pub violation: Option<Violation>,
}

/// Links are tried some times, each for seconds, and a successor copies the state.
const WITHIN: Duration = Duration::from_secs(1_800);

/// No other worker is left out afterwards.
const AFTERWARDS: Duration = Duration::from_secs(300);

/// Plays the run of `seed`: one of so many workers has a port that breaks like that.
#[must_use]
pub fn break_port(seed: u64, workers: u32, port: Port) -> Broken {
    let mut world = World::drawn(seed, |dice| Swarm::healthy(dice, workers));
    let all = workers as usize;
    world.until(WITHIN, |world| world.members() == all && world.advances >= 3);
    let broken = world.pick();
    world.break_port_of(broken, port);
    let before = world.advances;
    let is_whole = |world: &World| {
        let out = broken.is_some_and(|broken| world.dismissed.contains(&broken));
        (out || all == 2) && world.members() == all && world.advances > before + 5
    };
    let whole = world.until(WITHIN, is_whole);
    world.until(AFTERWARDS, |_| false);
    let (left_out, others): (Vec<WorkerId>, Vec<WorkerId>) =
        world.dismissed.iter().partition(|worker| Some(**worker) == broken);
    Broken {
        broken_left_out: !left_out.is_empty(),
        healthy_left_out: others.into_iter().collect::<BTreeSet<_>>().len(),
        whole,
        steps: world.advances - before,
        violation: world.broken,
    }
}

impl World {
    fn break_port_of(&mut self, worker: Option<WorkerId>, port: Port) {
        let way = match port {
            Port::Out => Way::ToWorkers,
            Port::In => Way::FromWorkers,
            Port::Both => Way::Workers,
        };
        // Longer than any run.
        let until = self.now() + Duration::from_secs(1 << 30);
        let inside = worker.into_iter().map(Node::Worker).collect();
        self.cut_off(Cut { inside, way, until });
    }
}
