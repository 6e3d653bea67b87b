//! Certified peers that lie. Each role says anything that its messages can say, to the machines alone and from among honest members: no
//! machine ends, none of them grows, and the honest finish the job in its state.
//!
//! - [`besiege_coordinator`], [`besiege_worker`]: a machine alone; [`Siege`]: a cluster, in which some peers lie, and its numbers;
//! - `corpus`: a message of each kind; `changing`: what is made of it; `among`: which peers lie when.
//!
//! What a worker can do all the same is the limit of trust: see ARCHITECTURE.md. A run that ends by it names the peer that lied.

mod among;
mod changing;
mod coordinator;
mod corpus;
mod siege;
mod worker;

use std::num::NonZeroU64;

use sardana_protocol::checkpoint::{Every, Keep};
use sardana_protocol::membership::Saves;

pub(crate) use among::Liars;
pub use coordinator::besiege_coordinator;
pub use siege::{End, Siege, Withstood};
pub use worker::besiege_worker;

/// When checkpoints are taken.
pub(in crate::simulation) fn saves() -> Saves {
    Saves {
        every: Every::Steps(NonZeroU64::MIN.saturating_add(2)),
        replicas: 2,
        keep: Keep::default(),
    }
}
