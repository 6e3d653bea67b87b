//! Tables: how they are read is guessed from their first rows, and then every row is read so.

use sardana::data::formats::csv::Csv;
use sardana::data::{Array, DataError};

use super::super::survey::{Contents, DataSet, Labels};
use super::super::table_guess;
use super::{Reading, bytes};

/// A target with more values than these is no class.
const MOST_CLASSES: usize = 100;

/// Whole numbers up to here are told apart by an `f64`, and more than any class has.
const LARGEST_CLASS: f64 = 1e9;

/// A table.
pub(super) fn csv(set: &mut DataSet, reading: &mut Reading<'_>) -> Result<(), DataError> {
    set.bytes = Some(bytes([&set.at])?);
    let guess = table_guess::of(&set.at)?;
    let opened = Csv::open(&set.at, &guess.options());
    set.contents = Contents::Table(guess.table);
    let data = opened?;
    let mut labels = Some(Labels::default());
    let read = reading.each(&data, set, |(_, target)| labels = count(labels.take(), &target));
    set.labels = labels.map(|labels| labels.named(|label| label.to_string()));
    read
}

/// The same with one more, as long as targets may be classes.
fn count(labels: Option<Labels>, target: &Array<f64>) -> Option<Labels> {
    let &[value] = target.values() else { return None };
    let mut labels = labels?;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number that fits")]
    let label = (value.fract() == 0.0 && value.abs() <= LARGEST_CLASS).then_some(value as i64);
    labels.count(label?);
    (labels.classes() <= MOST_CLASSES).then_some(labels)
}
