//! What is known of the keys that came last, in a bounded number. Must not know what that is.

use std::collections::BTreeMap;
use std::fmt;

/// A map that forgets the key that was put in first when there are too many.
pub(super) struct Lately<K, V> {
    most: usize,
    known: BTreeMap<K, (u64, V)>,
    /// Which key came when.
    order: BTreeMap<u64, K>,
    count: u64,
    forgot: bool,
}

/// Only how many: thousands of names tell a person nothing.
impl<K, V> fmt::Debug for Lately<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (known, most) = (self.known.len().max(self.order.len()), self.most);
        write!(f, "{known} of at most {most}")
    }
}

impl<K: Ord + Copy, V> Lately<K, V> {
    /// Knows at most so many.
    pub(super) const fn new(most: usize) -> Self {
        Self {
            most,
            known: BTreeMap::new(),
            order: BTreeMap::new(),
            count: 0,
            forgot: false,
        }
    }

    /// The newest. What was known of it before comes back.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.count += 1;
        let before = self.known.insert(key, (self.count, value));
        if let Some((number, _)) = &before {
            self.order.remove(number);
        }
        self.order.insert(self.count, key);
        if self.known.len() > self.most
            && let Some((_, first)) = self.order.pop_first()
        {
            self.known.remove(&first);
            self.forgot = true;
        }
        before.map(|(_, value)| value)
    }

    /// Unless it is known, the newest.
    pub(super) fn insert_new(&mut self, key: K, value: V) {
        if !self.contains(&key) {
            self.insert(key, value);
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let (number, value) = self.known.remove(key)?;
        self.order.remove(&number);
        Some(value)
    }

    /// Forgets the keys of which `keep` says no.
    pub(super) fn retain(&mut self, keep: impl Fn(&K, &V) -> bool) {
        self.known.retain(|key, (_, value)| keep(key, value));
        let known = &self.known;
        self.order.retain(|_, key| known.contains_key(key));
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.known.get(key).map(|(_, value)| value)
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.known.contains_key(key)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.known.values().map(|(_, value)| value)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether any was ever forgotten.
    pub(super) const fn has_forgotten(&self) -> bool {
        self.forgot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_known_however_many_came() {
        let mut lately = Lately::new(3);
        for key in 0..10_000 {
            assert_eq!(lately.insert(key, key), None);
            assert!(lately.len() <= 3 && lately.order.len() == lately.len());
        }
        assert!(lately.has_forgotten() && !lately.contains(&9_996));
        assert_eq!(lately.values().copied().collect::<Vec<_>>(), [9_997, 9_998, 9_999]);
        // Said again it is the newest; what is removed makes room.
        assert_eq!(lately.insert(9_997, 1), Some(9_997));
        lately.insert_new(9_998, 0);
        lately.insert(1, 1);
        assert_eq!((lately.get(&9_998), lately.get(&9_997)), (None, Some(&1)));
        assert_eq!(lately.remove(&9_997), Some(1));
        lately.insert(2, 2);
        assert_eq!(lately.len(), 3);
        assert_eq!(lately.order.len(), 3);
    }
}
