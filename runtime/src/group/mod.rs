//! Collective operations for programs that train in their own way, between the threads of one process or between processes that come and go.
//!
//! # Processes
//!
//! A process [joins](join) a job as every worker does: an agent has started it (`sardana run -n 4 -- ./program`, `sardana agent`), or
//! `SARDANA_JOIN` names a join file. The coordinator forms generations of the processes that are there, and [`Member::next`] hands out the
//! [`Group`] of each:
//!
//! ```no_run
//! use sardana::group::{Config, GroupError, Group, Order, Reduction, join};
//!
//! fn train(group: &mut Group, model: &mut [f32]) -> Result<(), GroupError> {
//!     group.broadcast(model, sardana::Rank::ZERO)?;
//!     for _ in 0..1_000 {
//!         let mut gradient = vec![0.1; model.len()]; // What this rank makes of its part of the batch.
//!         group.all_reduce(&mut gradient, Reduction::Mean, Order::Exact)?;
//!         model.iter_mut().zip(gradient).for_each(|(value, slope)| *value -= slope);
//!     }
//!     Ok(())
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mut member = join(&Config::new("mine"))?;
//!     let mut model = vec![0.0; 1_000];
//!     while let Some(mut group) = member.next()? {
//!         let trained = train(&mut group, &mut model);
//!         match trained.and_then(|()| member.finish(group)) {
//!             Ok(()) => break,
//!             Err(error) if error.generation_is_over() => {} // On to the next one.
//!             Err(error) => return Err(error.into()),
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! - *Who comes, leaves, crashes or hangs* ends the generation: on all its ranks the operation under way, or the next one, returns an error with
//!   [`GroupError::generation_is_over`], at once where a death is known (an agent sees its processes end). The process goes on; it asks for the
//!   next group, in which the ranks that were there keep their order and newcomers come last.
//! - *What ranks have computed* only they know. When a generation ends, one rank may have the result of an operation that others were refused, and
//!   newcomers have nothing. So agree first in each new group: on how far the farthest rank is, by `all_reduce` with [`Reduction::Max`], and then
//!   `broadcast` what it has, as the program `group` in `examples/` does. (Above, all begin again.)
//! - *The end.* [`Member::finish`] on all ranks ends the job; [`Member::leave`] lets this process go while the others go on; dropped, it is gone
//!   without a word. After `sardana drain` or `sardana stop` [`Member::next`] returns none, and the process ends well. What the program does after [`Member::finish`], or after
//!   [`Member::next`] has returned none, as saving the model, its agent waits for. It ends a process that has not come so far 5 seconds after the job is over,
//!   and any 25 seconds after the agent itself was asked to leave its host: one whose operations are farther apart than that may be killed between them.
//! - *Mistakes.* A process of another program, with other [settings](Config::settings), or of a job that trains is refused by
//!   [`Member::next`], and told in what it differs. End a process that cannot go on with [`MemberError::exit_code`]: by it the agent knows whether another one
//!   would fare better.
//!
//! While fewer processes are there than the job wants at least (`--min`), [`Member::next`] blocks; those beyond `--max` wait there for a place. How
//! long a rank takes between two operations is its own affair: one that computes for ever holds the others up until an operator kills it.
//!
//! # Operations
//!
//! All ranks of a [`Group`] make the same calls in the same order. An operation returns on a rank once all ranks have called it and this rank has its
//! result; until then it blocks the thread, which needs no runtime. [`Element`] and [`Reduction`] say what is reduced; [`Order::Exact`] combines
//! in rank order, whatever the length. [`horovod`] has the names that Horovod has. For threads of one process there is
//! [`Group::in_process`], which needs no job.

mod error;
mod member;

pub use sardana_collectives::group::*;

pub use error::MemberError;
pub use member::{Member, join};

use sardana_protocol::job::{JobIdentity, JobSpec};
use sardana_protocol::state::StateHash;

use crate::fingerprint;

/// What the processes of a group have in common, besides their program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    name: String,
    settings: String,
}

impl Config {
    /// Of a group that people call `name`, of at most 256 bytes.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            settings: String::new(),
        }
    }

    /// What must be equal in all processes, in any form, such as learning rate and data. Only its hash is compared.
    #[must_use]
    pub fn settings(mut self, settings: impl Into<String>) -> Self {
        self.settings = settings.into();
        self
    }

    fn identity(&self) -> std::io::Result<JobIdentity> {
        Ok(JobIdentity {
            spec: JobSpec::group(self.name.clone()),
            state_zero: StateHash::of(b""),
            fingerprint: fingerprint::of_a_group(StateHash::of(self.settings.as_bytes()))?,
        })
    }
}
