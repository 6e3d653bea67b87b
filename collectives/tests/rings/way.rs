//! The ways in which the gradients of a job are added, and numbers that add up to the same in each.

use sardana_protocol::job::Order;
use sardana_protocol::plan::{Owners, Plan, Visit};

use crate::dance::{Gradient, Values};

/// How the gradients of a job are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Ordered,
    Star,
    Direct,
    Fast,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Ordered, Self::Star, Self::Direct, Self::Fast];

    pub(crate) fn plan(self, world: u32, visits: &[Visit]) -> Plan {
        match self {
            Self::Ordered => Plan::new(Order::Exact, world, visits),
            Self::Star => Plan::direct(world, visits, Owners::Closer),
            Self::Direct => Plan::direct(world, visits, Owners::All),
            Self::Fast => Plan::new(Order::Fast, world, visits),
        }
    }
}

impl Gradient {
    /// The same in small whole numbers, which add up to the same in any order.
    pub(crate) fn whole(mut self) -> Self {
        let whole = |value: f64| (value % 16.0).trunc() + 0.0;
        for values in &mut self.tensors {
            match values {
                Values::F32(values) => values.iter_mut().for_each(|value| *value = whole(f64::from(*value)) as f32),
                Values::F64(values) => values.iter_mut().for_each(|value| *value = whole(*value)),
            }
        }
        self.auxiliary.iter_mut().for_each(|value| *value = whole(*value));
        self
    }
}
