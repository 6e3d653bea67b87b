//! How often things were named, by the million: the names are literals, and few.

/// Counts by list and name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks(Vec<(&'static str, &'static str, u64)>);

impl Marks {
    /// Once more. The same literal lies at the same place, and those that are named often move to the front: so this is rarely more
    /// than a look.
    pub(crate) fn mark(&mut self, list: &'static str, name: &'static str) {
        let known = self
            .0
            .iter()
            .position(|(one, other, _)| std::ptr::eq(*one, list) && std::ptr::eq(*other, name));
        match known {
            Some(index) => {
                self.0[index].2 += 1;
                self.0.swap(index, index.saturating_sub(1));
            }
            None => self.0.push((list, name, 1)),
        }
    }

    /// All of them. A literal that lies at two places comes twice.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (list, name, times) in other.counts() {
            let known = self.0.iter_mut().find(|(one, two, _)| *one == list && *two == name);
            match known {
                Some((_, _, known)) => *known += times,
                None => self.0.push((list, name, times)),
            }
        }
    }
}
