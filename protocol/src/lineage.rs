//! What tells states of the same step apart. In exact order nothing need: whichever workers compute a step, the sum has the same bits (BITS-1). In fast order a step
//! that is computed again, by other members, may have others; a worker that has applied the first sum, and comes back, stands at the same step with
//! another state. So a worker knows which generation's sum has led to its state: the members of a generation begin with the same state and apply the same
//! sums, so that two states of the same step to which the same generation's sum has led are the same.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::job::Order;
use crate::planted::{Bug, bites};
use crate::words::{Generation, Step};

/// The generations whose sums have led to a state. The newer one is the greater; what is not known is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lineage {
    /// That of its last update. [`Generation::NONE`] of the initial state, and always in exact order. Of a state that was read from a checkpoint, the
    /// generation that began with it.
    pub last: Generation,
    /// That of the update before. None if it is not known, as of a state that was copied, or read from a checkpoint.
    pub before: Option<Generation>,
}

/// A step's sum, of those that there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedSum {
    /// The step.
    pub step: Step,
    /// What it is to be added to: the state that the sum of this generation has led to, its [`Lineage::last`].
    pub before: Generation,
}

impl fmt::Display for WantedSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the sum of {}", self.step)?;
        if self.before > Generation::NONE {
            write!(f, " after one of {}", self.before)?;
        }
        Ok(())
    }
}

/// Of the initial state; and of any in exact order.
impl Default for Lineage {
    fn default() -> Self {
        Self {
            last: Generation::NONE,
            before: Some(Generation::NONE),
        }
    }
}

impl Lineage {
    /// Of a state to which a sum of `generation` has led, such as its snapshots are of; or with which it has begun, of a checkpoint. (The snapshot at the end of
    /// a job may be of a generation that has summed nothing. A worker that copies that has the right state, and is taken for one that has another.)
    pub(crate) fn of(order: Order, generation: Generation) -> Self {
        Self::default().told_apart(order, generation, None)
    }

    /// After the update by a sum of this generation.
    pub(crate) fn led_on(self, order: Order, by: Generation) -> Self {
        self.told_apart(order, by, Some(self.last))
    }

    /// This in fast order; in exact order no two states of a step differ.
    fn told_apart(self, order: Order, last: Generation, before: Option<Generation>) -> Self {
        match order {
            Order::Exact => self,
            Order::Fast => Self { last, before },
        }
    }

    /// Whether two states of the same step are the same.
    pub(crate) fn is_same(self, other: Self) -> bool {
        self.last == other.last || bites(Bug::StatesAlike)
    }

    /// Whether the update that has led here was added to the state that the sum of `before` had led to.
    #[must_use]
    pub fn leads_on_from(self, before: Generation) -> bool {
        self.before == Some(before) || bites(Bug::OthersSum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Incarnation;

    fn g(count: u64) -> Generation {
        Generation::new(Incarnation::new(1), count)
    }

    #[test]
    fn in_exact_order_all_states_of_a_step_are_the_same() {
        let first = Lineage::default();
        let led = first.led_on(Order::Exact, g(1)).led_on(Order::Exact, g(2));
        assert_eq!(led, first);
        assert_eq!(Lineage::of(Order::Exact, g(3)), first);
        assert!(led.is_same(first));
        assert!(led.leads_on_from(first.last));
    }

    #[test]
    fn in_fast_order_the_generation_of_the_last_sum_tells_states_apart() {
        let before = Lineage::of(Order::Fast, g(1));
        let first = before.led_on(Order::Fast, g(1));
        let again = before.led_on(Order::Fast, g(2));
        assert!(!first.is_same(again) && first.is_same(first));
        assert!(first.leads_on_from(before.last) && again.leads_on_from(before.last));
        assert!(!before.leads_on_from(g(1)), "what came before it is not known");
        assert!(again > first, "the newer one is the greater");
    }
}
