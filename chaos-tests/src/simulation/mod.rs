//! Simulated clusters: the machines of `protocol`, the very code that ships, in virtual time, on a network, a disk and hosts that do
//! their worst. One seed decides everything, and replays it.
//!
//! - [`play`]: one run; [`campaign`]: many, on all processors, until enough hours have passed;
//! - [`load`]: a run whose large state must move over slow links before the others can go on;
//! - [`break_port`]: a run in which one worker cannot be linked with any more;
//! - [`preempt`]: a run in which workers are lost, leave and come without end, and checkpoints must come all the same;
//! - [`churn`]: a run in which a worker is killed every moment, and training must go on all the same;
//! - [`group`]: a run of a group, whose members make collective calls of their own, in a world of its own;
//! - [`outlive`]: a run with thousands of workers that come and are lost: nothing may grow; [`leave_undisturbed`]: one that loses none;
//! - `world`: the cluster, with its depots; `calendar`: virtual time; `network`: which node reaches which; `swarm`: what a seed draws;
//! - `faults`: what goes wrong, one file each; `invariants`: what must hold all the same, one file each;
//! - `required`: what a campaign must have checked and struck to count, and how much it may have excused;
//! - [`hostile`]: peers that lie, to the machines alone and from among honest ones;
//! - `planted`: bugs that it must find, with the feature `planted-bugs`;
//! - [`coverage`]: which transitions were reached, by its `marks`; [`story`]: what happened, event by event; `model`: a stand-in for training.
//!
//! It must not know the machines' insides: it gives them events, does what they command, and looks at their phases.

pub mod campaign;
pub mod coverage;
pub mod hostile;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod story;
pub mod tally;

mod calendar;
mod churned;
mod expected;
mod faults;
mod grouped;
mod heavy;
mod invariants;
mod marks;
mod model;
mod network;
mod outlived;
mod port;
mod preempted;
mod required;
mod run;
mod seldom;
mod swarm;
mod undisturbed;
mod world;

pub use churned::{Churned, churn};
pub use grouped::{Grouped, group};
pub use heavy::{Heavy, PlacedAnew, load, place_anew};
pub use invariants::Violation;
pub use outlived::{Outlived, Sizes, outlive};
pub use port::{Broken, Port, break_port};
pub use preempted::{Preempted, preempt};
pub use run::{Played, play};
pub use seldom::{Asked, StoodStill, come_back_to_a_newcomer, stand_still, work_without_end};
pub use undisturbed::{Undisturbed, leave_undisturbed};
