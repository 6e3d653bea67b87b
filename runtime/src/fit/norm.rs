//! Euclidean norms whose bits depend on the values alone: in f64, in tiles of a fixed length, which are added by a fixed tree; a tile in eight lanes by place.

const LANES: usize = 8;

/// Elements that are added up by themselves.
pub(super) const TILE: usize = 16_384;

/// A sum of squares under way. Runs may be of any length; where they are cut does not matter.
#[derive(Clone, Debug, Default)]
pub(super) struct Squares {
    lanes: [f64; LANES],
    /// Elements so far of the tile under way.
    count: usize,
    tiles: Tree,
}

/// A sum under way of terms by a tree that only their number decides.
#[derive(Clone, Debug, Default)]
struct Tree {
    /// Sums of as many terms as each bit of `count` says that is 1, from the highest on.
    sums: Vec<f64>,
    count: u64,
}

impl Squares {
    /// Adds the squares of the next elements.
    pub(super) fn add(&mut self, mut values: &[f32]) {
        while !values.is_empty() {
            if self.count == TILE {
                self.tiles.add(lane_sum(&std::mem::take(&mut self.lanes)));
                self.count = 0;
            }
            let (own, rest) = values.split_at(values.len().min(TILE - self.count));
            self.add_to_tile(own);
            values = rest;
        }
    }

    fn add_to_tile(&mut self, mut values: &[f32]) {
        // Until the next element is one of lane 0.
        while !self.count.is_multiple_of(LANES) {
            let Some((&value, rest)) = values.split_first() else { return };
            self.add_one(value);
            values = rest;
        }
        let (whole, rest) = values.as_chunks::<LANES>();
        for values in whole {
            for (lane, &value) in self.lanes.iter_mut().zip(values) {
                *lane += f64::from(value) * f64::from(value);
            }
        }
        self.count += whole.len() * LANES;
        rest.iter().for_each(|&value| self.add_one(value));
    }

    fn add_one(&mut self, value: f32) {
        self.lanes[self.count % LANES] += f64::from(value) * f64::from(value);
        self.count += 1;
    }

    /// The sum.
    pub(super) fn sum(mut self) -> f64 {
        if self.count > 0 {
            self.tiles.add(lane_sum(&self.lanes));
        }
        self.tiles.sum()
    }
}

fn lane_sum(lanes: &[f64; LANES]) -> f64 {
    lanes.iter().sum()
}

impl Tree {
    fn add(&mut self, term: f64) {
        let full = self.sums.split_off(self.sums.len() - self.count.trailing_ones() as usize);
        self.sums.push(full.iter().rfold(term, |right, left| left + right));
        self.count += 1;
    }

    fn sum(&self) -> f64 {
        let mut sums = self.sums.iter().rev();
        let last = sums.next().copied().unwrap_or(0.0);
        sums.fold(last, |right, left| left + right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize) -> Vec<f32> {
        (0..count).map(|number| (number as f32 * 0.37).fract() - 0.4).collect()
    }

    #[test]
    fn the_bits_do_not_depend_on_where_runs_are_cut() {
        for count in [1_000, TILE, TILE + 1, 3 * TILE - 1] {
            let values = values(count);
            let of = |lengths: &[usize]| {
                let (mut squares, mut rest) = (Squares::default(), &values[..]);
                for &length in lengths.iter().cycle() {
                    let (run, after) = rest.split_at(length.min(rest.len()));
                    squares.add(run);
                    rest = after;
                    if rest.is_empty() {
                        return squares.sum().to_bits();
                    }
                }
                unreachable!("lengths are not 0")
            };
            let whole = of(&[count]);
            for lengths in [&[1][..], &[7, 2], &[8], &[13, 64, 3], &[TILE], &[TILE - 3, 1_000]] {
                assert_eq!(of(lengths), whole, "{count}: {lengths:?}");
            }
            let plain: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
            assert!((f64::from_bits(whole) / plain - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn a_device_adds_them_as_its_reference_does() {
        for count in [0, 1, TILE].into_iter().chain((2..20).map(|tiles| tiles * TILE - 5)) {
            let (values, mut squares) = (values(count), Squares::default());
            squares.add(&values);
            let expected = sardana_cuda::reference::norms::squares(&values, 1.0);
            assert_eq!(squares.sum().to_bits(), expected.to_bits(), "{count} elements");
        }
    }
}
