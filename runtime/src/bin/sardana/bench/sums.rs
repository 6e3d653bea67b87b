//! `sardana bench sums`: how fast gradients are added within memory, beside a plain loop over the same numbers.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use clap::Args;
use sardana::model::{Dtype, Layout, TensorSpec};
use sardana_collectives::reduce;
use serde_json::json;

use super::progress::Progress;
use super::sizes::{self, Sizes};
use super::times::{quantile, words};
use crate::ending::Failure;

/// Measure how fast this processor adds gradients within memory, beside a plain loop over the same numbers.
///
/// Gradients are added one after the other, and sums that are not numbers become one NaN; the plain loop does neither look for those, nor go through the
/// memory of a sum once for several gradients.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana bench sums\n  \
    sardana bench sums --sizes 16MiB --terms 8 --json | jq '.rows[].ratio'")]
pub(super) struct Sums {
    /// Bytes of a gradient: some sizes, or a range, from one to the next four times as large.
    #[arg(long, value_name = "SIZES", default_value = "64KiB..64MiB")]
    sizes: Sizes,
    /// How many gradients are added to a sum, one after the other.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,8", value_parser = clap::value_parser!(u32).range(1..=64))]
    terms: Vec<u32>,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

/// Bytes that all gradients of a row may have together.
const MOST_BYTES: u64 = 8 << 30;

/// For how long each row is measured, at least, and how often.
const LEAST: Duration = Duration::from_millis(300);
const ROUNDS: usize = 5;

const HEAD: &str = "type gradients       size   one addition   plain loop   GB/s  of plain";

/// What was measured of one type, number of gradients, and size.
#[derive(Debug, Clone)]
struct Row {
    dtype: Dtype,
    terms: u32,
    bytes: u64,
    /// Seconds for one gradient: as they are added here, and by a plain loop. Medians of rounds in turns.
    ours: f64,
    plain: f64,
}

impl Row {
    /// How fast it is, as a part of the plain loop.
    fn ratio(&self) -> f64 {
        self.plain / self.ours
    }

    /// Bytes of gradients a second.
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.ours
    }

    fn line(&self) -> String {
        format!(
            "{:>4} {:>9} {:>10} {:>14} {:>12} {:>6.2} {:>9.2}",
            self.dtype.to_string(),
            self.terms,
            sizes::words(self.bytes),
            words(self.ours),
            words(self.plain),
            self.rate() / 1e9,
            self.ratio(),
        )
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "type": self.dtype.to_string(),
            "gradients": self.terms,
            "bytes": self.bytes,
            "seconds": self.ours,
            "plain_seconds": self.plain,
            "bytes_per_second": self.rate(),
            "ratio": self.ratio(),
        })
    }
}

impl Sums {
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        let rows = self
            .sizes
            .0
            .iter()
            .flat_map(|&bytes| self.terms.iter().map(move |&terms| (bytes, terms)));
        let rows: Vec<(u64, u32)> = rows.collect();
        if let Some((bytes, terms)) = rows.iter().find(|(bytes, terms)| bytes * u64::from(terms + 1) > MOST_BYTES) {
            return Err(Failure::Usage(format!(
                "expected at most {} in all, found {terms} gradients of {} and their sum: ask for fewer or smaller ones",
                sizes::words(MOST_BYTES),
                sizes::words(*bytes),
            )));
        }
        let progress = Progress::new();
        if !self.json {
            progress.print(&format!("sums within memory, with {}\n{HEAD}", reduce::instructions()));
        }
        let mut measured = Vec::new();
        for (bytes, terms) in rows {
            for measure in [measure::<f32>, measure::<f64>] {
                progress.say(format!("{terms} gradients of {}", sizes::words(bytes)));
                let row = measure(bytes, terms)?;
                if !self.json {
                    progress.print(&row.line());
                }
                measured.push(row);
            }
        }
        drop(progress);
        if self.json {
            let rows: Vec<_> = measured.iter().map(Row::json).collect();
            println!("{}", json!({ "instructions": reduce::instructions(), "rows": rows }));
        }
        Ok(())
    }
}

/// A type of numbers that gradients have.
trait Number: Pod + AddAssign {
    const DTYPE: Dtype;
    const ONE: Self;
}

impl Number for f32 {
    const DTYPE: Dtype = Dtype::F32;
    const ONE: Self = 1.0;
}

impl Number for f64 {
    const DTYPE: Dtype = Dtype::F64;
    const ONE: Self = 1.0;
}

/// Adds so many gradients to a sum, again and again, in turns with the plain loop.
fn measure<T: Number>(bytes: u64, terms: u32) -> Result<Row, Failure> {
    let elements = usize::try_from(bytes).map_err(Failure::failed)?.div_ceil(size_of::<T>());
    let layout = Layout::new(vec![TensorSpec::new("gradient", T::DTYPE, &[elements])], 0).map_err(Failure::failed)?;
    let gradients = vec![vec![T::ONE; elements]; terms as usize];
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    let mut sum = vec![T::ONE; elements];
    let began = Instant::now();
    while ours.len() < ROUNDS || began.elapsed() < LEAST {
        ours.push(seconds(|| added(&layout, &mut sum, &gradients)));
        plain.push(seconds(|| added_plainly(&mut sum, &gradients)));
    }
    let each = |mut rounds: Vec<f64>| quantile(&mut rounds, 0.5) / f64::from(terms);
    Ok(Row {
        dtype: T::DTYPE,
        terms,
        bytes,
        ours: each(ours),
        plain: each(plain),
    })
}

fn seconds(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64()
}

fn added<T: Number>(layout: &Layout, sum: &mut [T], gradients: &[Vec<T>]) {
    let sum = bytemuck::cast_slice_mut(sum);
    let mut gradients: Vec<&[u8]> = gradients.iter().map(|gradient| bytemuck::cast_slice(gradient)).collect();
    reduce::add_all(layout, 0..sum.len(), sum, &mut gradients);
    std::hint::black_box(sum);
}

fn added_plainly<T: Number>(sum: &mut [T], gradients: &[Vec<T>]) {
    for gradient in gradients {
        for (sum, value) in sum.iter_mut().zip(gradient) {
            *sum += *value;
        }
        std::hint::black_box(&mut *sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_adds() {
        let layout = Layout::new(vec![TensorSpec::new("gradient", Dtype::F64, &[1_001])], 0).unwrap();
        let gradients = [vec![1.0; 1_001], vec![0.5; 1_001]];
        let mut sum = vec![0.25; 1_001];
        added(&layout, &mut sum, &gradients);
        assert_eq!(sum, [1.75; 1_001]);
        added_plainly(&mut sum, &gradients);
        assert_eq!(sum, [3.25; 1_001]);
    }
}
