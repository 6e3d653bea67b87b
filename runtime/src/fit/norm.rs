//! Euclidean norms whose bits depend on the values alone: in f64, in eight lanes by place, added in one order.

const LANES: usize = 8;

/// A sum of squares under way. Runs may be of any length; where they are cut does not matter.
#[derive(Clone, Debug, Default)]
pub(super) struct Squares {
    lanes: [f64; LANES],
    /// Elements so far.
    count: usize,
}

impl Squares {
    /// Adds the squares of the next elements.
    pub(super) fn add(&mut self, mut values: &[f32]) {
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
    pub(super) fn sum(&self) -> f64 {
        self.lanes.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_do_not_depend_on_where_runs_are_cut() {
        let values: Vec<f32> = (0..1_000).map(|number| (number as f32 * 0.37).fract() - 0.4).collect();
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
        let whole = of(&[1_000]);
        for lengths in [&[1][..], &[7, 2], &[8], &[13, 64, 3]] {
            assert_eq!(of(lengths), whole, "{lengths:?}");
        }
        // A device adds them as its reference does.
        assert_eq!(sardana_cuda::reference::norms::squares(&values, 1.0).to_bits(), whole);
        let plain: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
        assert!((f64::from_bits(whole) - plain).abs() < 1e-9);
    }
}
