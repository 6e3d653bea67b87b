//! How often things were named, by the million: the names are literals, and few.

use super::coverage::Reached;

/// Counts by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks(Vec<(Reached, u64)>);

impl Marks {
    /// Once more. The same literal lies at the same place, and those that are named often move to the front: so this is rarely more
    /// than a look.
    pub(crate) fn mark(&mut self, name: Reached) {
        match self.0.iter().position(|(known, _)| same_place(*known, name)) {
            Some(index) => {
                self.0[index].1 += 1;
                self.0.swap(index, index.saturating_sub(1));
            }
            None => self.0.push((name, 1)),
        }
    }

    /// All of them. A literal that lies at two places comes twice.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Reached, u64)> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (name, times) in other.counts() {
            match self.0.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known += times,
                None => self.0.push((name, times)),
            }
        }
    }
}

fn same_place(one: Reached, other: Reached) -> bool {
    std::ptr::eq(one.0, other.0) && std::ptr::eq(one.1, other.1) && std::ptr::eq(one.2, other.2)
}
