//! Times of a reader beside its two limits, taken in turn, so that a disturbance hits all alike.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

use sardana_data::{Dataset, Permutation, SampleRandom};

use crate::Failed;

/// How much is read, and how often.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// Bytes of a format that has records of one size.
    pub(crate) bytes: usize,
    /// Bytes of text, which is read far more slowly.
    pub(crate) text: usize,
    pub(crate) pictures: u32,
    rounds: usize,
}

impl Size {
    pub(crate) const MEASURED: Self = Self {
        bytes: 128 << 20,
        text: 32 << 20,
        pictures: 1_500,
        rounds: 9,
    };
    pub(crate) const TRIED: Self = Self {
        bytes: 1 << 20,
        text: 1 << 18,
        pictures: 4,
        rounds: 1,
    };
}

/// A format under way.
pub(crate) struct Case<'a> {
    pub(crate) name: &'a str,
    pub(crate) files: &'a [PathBuf],
    pub(crate) samples: u64,
    pub(crate) size: Size,
}

impl Case<'_> {
    /// Prints how long `reader` takes, beside a plain read of the files and beside `decoder`. Each of them goes through all samples.
    pub(crate) fn compare(
        &self,
        mut reader: impl FnMut() -> Result<(), Failed>,
        mut decoder: impl FnMut() -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let bytes = plain(self.files)?;
        reader()?;
        decoder()?;
        let mut times: [Vec<f64>; 3] = Default::default();
        for _ in 0..self.size.rounds {
            times[0].push(time(|| plain(self.files).map(|_| ()))?);
            times[1].push(time(&mut decoder)?);
            times[2].push(time(&mut reader)?);
        }
        let [plain, decoder, reader] = &times;
        let over = |limit: &[f64]| median(limit.iter().zip(reader).map(|(limit, reader)| limit / reader).collect());
        let rates = |of: fn(Vec<f64>) -> f64| {
            let rate = |times: &Vec<f64>| bytes as f64 / of(times.clone()) / 1e9;
            (rate(reader), rate(plain), rate(decoder))
        };
        let (middle, best) = (rates(median), rates(least));
        println!(
            "reading/{}: {:.2} GB/s, {:.2} us a sample; {:.2} of a plain read ({:.2} GB/s), {:.2} of the decoder alone ({:.2} GB/s); \
             the fastest of each: {:.2} GB/s, {:.2} and {:.2}",
            self.name,
            middle.0,
            median(reader.clone()) / self.samples as f64 * 1e6,
            over(plain),
            middle.1,
            over(decoder),
            middle.2,
            best.0,
            best.0 / best.1,
            best.0 / best.2,
        );
        Ok(())
    }

    /// The numbers of the samples, in the order in which a training reads them.
    pub(crate) fn order(&self) -> impl Iterator<Item = u64> + use<> {
        let order = Permutation::new(1, 0, self.samples);
        (0..order.len()).map(move |place| order.at(place))
    }

    /// Every sample of `data`, in the order of [`Case::order`].
    pub(crate) fn get_all<D: Dataset>(&self, data: &D) -> Result<(), Failed> {
        for index in self.order() {
            black_box(data.get(index, &SampleRandom::held_out(0, index))?);
        }
        Ok(())
    }
}

/// Reads files a mebibyte at a time; how many bytes they have.
fn plain(files: &[PathBuf]) -> Result<usize, Failed> {
    let (mut buffer, mut bytes) = (vec![0; 1 << 20], 0);
    for file in files {
        let mut file = File::open(file)?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                more => bytes += more,
            }
        }
        black_box(&buffer);
    }
    Ok(bytes)
}

fn time(mut run: impl FnMut() -> Result<(), Failed>) -> Result<f64, Failed> {
    let begun = Instant::now();
    run()?;
    Ok(begun.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn least(values: Vec<f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// Bytes that are the same in each run and nowhere alike.
pub(crate) fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    blake3::Hasher::new_keyed(&key).finalize_xof().fill(&mut bytes);
    bytes
}
