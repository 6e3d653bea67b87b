//! What tells states of the same step apart. In exact order nothing need: whichever workers compute a step, the sum has the same bits (BITS-1). In fast order a step
//! that is computed again, by other members, may have others; a worker that has applied the first sum, and comes back, stands at the same step with
//! another state. So a worker knows which generation's sum has led to its state: the members of a generation begin with the same state and apply the same
//! sums, so that two states of the same step to which the same generation's sum has led are the same.

use serde::{Deserialize, Serialize};

use crate::job::Order;
use crate::words::Generation;

/// The generations whose sums have led to a state. The newer one is the greater; what is not known is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lineage {
    /// That of its last update. [`Generation::NONE`] of the initial state, and always in exact order. None if it is not known.
    pub last: Option<Generation>,
    /// That of the update before.
    pub before: Option<Generation>,
}

/// Of the initial state; and of any in exact order.
impl Default for Lineage {
    fn default() -> Self {
        Self {
            last: Some(Generation::NONE),
            before: Some(Generation::NONE),
        }
    }
}

impl Lineage {
    /// Of the state that all members of `generation` come to have, or to which a sum of it has led.
    pub(crate) fn of(order: Order, generation: Generation) -> Self {
        Self::default().told_apart(order, Some(generation), None)
    }

    /// After the update by a sum of this generation, if it is known.
    pub(crate) fn led_on(self, order: Order, by: Option<Generation>) -> Self {
        self.told_apart(order, by, self.last)
    }

    /// Of a state that was copied from a snapshot: whose sums have led to it is not known.
    pub(crate) fn of_a_copy(order: Order) -> Self {
        Self::default().told_apart(order, None, None)
    }

    /// This in fast order; in exact order no two states of a step differ.
    fn told_apart(self, order: Order, last: Option<Generation>, before: Option<Generation>) -> Self {
        match order {
            Order::Exact => self,
            Order::Fast => Self { last, before },
        }
    }

    /// Whether two states of the same step are the same for certain.
    pub(crate) fn is_same(self, other: Self) -> bool {
        self.last.is_some() && self.last == other.last
    }

    /// Whether two states of the same step may be the same.
    pub(crate) fn may_be(self, other: Self) -> bool {
        self.last.is_none() || self.is_same(other)
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
        let led = first.led_on(Order::Exact, Some(g(1))).led_on(Order::Exact, None);
        assert_eq!(led, first);
        assert_eq!(Lineage::of(Order::Exact, g(3)), first);
        assert_eq!(Lineage::of_a_copy(Order::Exact), first);
        assert!(led.is_same(first));
        assert_eq!(led.before, first.last);
    }

    #[test]
    fn in_fast_order_the_generation_of_the_last_sum_tells_states_apart() {
        let before = Lineage::of(Order::Fast, g(1));
        let first = before.led_on(Order::Fast, Some(g(1)));
        let again = before.led_on(Order::Fast, Some(g(2)));
        assert!(!first.is_same(again) && first.is_same(first));
        assert_eq!([first.before, again.before], [before.last; 2]);
        assert!(again > first, "the newer one is the greater");
    }

    #[test]
    fn what_is_not_known_is_the_same_as_nothing() {
        let unknown = Lineage::of_a_copy(Order::Fast);
        let known = Lineage::of(Order::Fast, g(1));
        assert!(!unknown.is_same(unknown) && !known.is_same(unknown));
        assert!(unknown.may_be(known) && !known.may_be(unknown));
        assert!(unknown < known);
    }
}
