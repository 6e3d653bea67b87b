//! What a data set must offer, and what is made of one.

use std::fmt::{self, Debug};
use std::sync::Arc;

use super::error::DataError;
use super::random::CounterRng;
use super::sample_random::SampleRandom;
use crate::fingerprint::Fingerprinting;
use crate::{DataFingerprint, DataHash, DataPart};

/// Samples by number. Workers read it side by side, from several threads each, in an order that the job's seed decides.
///
/// A program may bring its own; the formats that people have are in [`crate::formats`].
pub trait Dataset: Send + Sync {
    /// A sample: what the network's loss is computed of.
    type Item: Send;

    /// How many samples there are. Always the same.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sample number `index`. It depends on `index` and on what is drawn from `random`, and on nothing else.
    ///
    /// # Errors
    /// When there is no such sample, or it cannot be read.
    fn get(&self, index: u64, random: &SampleRandom) -> Result<Self::Item, DataError>;

    /// What makes the samples what they are: the files by name and hash, and whatever is done to what they hold. It becomes part of
    /// the job's identity, so that a worker with other data is refused and told what differs.
    ///
    /// # Errors
    /// When the data cannot be read.
    fn fingerprint(&self) -> Result<DataFingerprint, DataError>;

    /// How many streams of each sample's random numbers are drawn from, from stream 0 on. One for a data set that is not made of others: it
    /// may draw from stream 0.
    fn streams(&self) -> u32 {
        1
    }
}

macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<D: Dataset + ?Sized> Dataset for $pointer {
            type Item = D::Item;

            fn len(&self) -> u64 {
                (**self).len()
            }

            fn get(&self, index: u64, random: &SampleRandom) -> Result<Self::Item, DataError> {
                (**self).get(index, random)
            }

            fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
                (**self).fingerprint()
            }

            fn streams(&self) -> u32 {
                (**self).streams()
            }
        }
    )*};
}

pointers!(Arc<D>, Box<D>, &D);

/// What is made of a data set.
pub trait DatasetExt: Dataset + Sized {
    /// Each sample changed by `transform`, with random numbers that depend on the seed, the step and the sample's place in the batch
    /// alone.
    ///
    /// `name` says what is done, with the constants that it is done with (`pad 4, crop, flip`): it is part of the job's identity, since
    /// a closure cannot be looked into.
    fn map<T, F>(self, name: impl Into<String>, transform: F) -> Map<Self, F>
    where
        F: Fn(Self::Item, &mut CounterRng) -> Result<T, DataError> + Send + Sync,
        T: Send,
    {
        Map {
            inner: self,
            name: name.into(),
            transform,
        }
    }

    /// The samples at these numbers, in this order: a part of the data, such as all but every fifth. `name` says which part, and is part
    /// of the job's identity together with the numbers.
    ///
    /// # Errors
    /// When there is no sample with one of the numbers.
    fn select(self, name: impl Into<String>, numbers: impl IntoIterator<Item = u64>) -> Result<Select<Self>, DataError> {
        let (numbers, samples): (Vec<_>, _) = (numbers.into_iter().collect(), self.len());
        match numbers.iter().find(|&&number| number >= samples) {
            Some(number) => Err(DataError::unfit(
                format!("numbers of samples below {samples} in a selection"),
                number.to_string(),
            )),
            None => Ok(Select {
                inner: self,
                name: name.into(),
                numbers,
            }),
        }
    }

    /// The samples of this data set, each together with the sample of `other` that has the same number: inputs in one file, targets in
    /// another.
    ///
    /// The transforms of both draw from the same random numbers, so that an image and its mask are cut and mirrored alike. Where that is not
    /// wanted, transform the pairs.
    ///
    /// # Errors
    /// When they have different numbers of samples.
    fn zip<D: Dataset>(self, other: D) -> Result<Zip<Self, D>, DataError> {
        let (one, two) = (self.len(), other.len());
        if one != two {
            let reason = format!(
                "expected as many samples in both data sets of a pair, found {one} and {two}; give those that belong together"
            );
            return Err(DataError::Own(reason.into()));
        }
        Ok(Zip { one: self, two: other })
    }
}

impl<D: Dataset> DatasetExt for D {}

/// See [`DatasetExt::map`].
pub struct Map<D, F> {
    inner: D,
    name: String,
    transform: F,
}

impl<D: Debug, F> Debug for Map<D, F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, name, .. } = self;
        formatter
            .debug_struct("Map")
            .field("inner", inner)
            .field("name", name)
            .finish_non_exhaustive()
    }
}

impl<D, T, F> Dataset for Map<D, F>
where
    D: Dataset,
    T: Send,
    F: Fn(D::Item, &mut CounterRng) -> Result<T, DataError> + Send + Sync,
{
    type Item = T;

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn get(&self, index: u64, random: &SampleRandom) -> Result<T, DataError> {
        let item = self.inner.get(index, random)?;
        (self.transform)(item, &mut random.stream(self.inner.streams()))
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        let hash = DataHash::of(self.name.as_bytes());
        Ok(Fingerprinting::over(self.inner.fingerprint()?)
            .part(format!("the transform `{}`", self.name), hash)
            .finish())
    }

    fn streams(&self) -> u32 {
        self.inner.streams() + 1
    }
}

/// See [`DatasetExt::select`].
#[derive(Debug)]
pub struct Select<D> {
    inner: D,
    name: String,
    numbers: Vec<u64>,
}

impl<D: Dataset> Dataset for Select<D> {
    type Item = D::Item;

    fn len(&self) -> u64 {
        self.numbers.len() as u64
    }

    fn get(&self, index: u64, random: &SampleRandom) -> Result<D::Item, DataError> {
        let number = usize::try_from(index).ok().and_then(|index| self.numbers.get(index));
        let &number = number.ok_or(DataError::NoSample {
            samples: self.len(),
            index,
        })?;
        self.inner.get(number, random)
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        let mut numbers = DataHash::hasher();
        for number in &self.numbers {
            numbers.update(&number.to_le_bytes());
        }
        Ok(Fingerprinting::over(self.inner.fingerprint()?)
            .part(format!("the selection `{}`", self.name), DataHash::finish(&numbers))
            .finish())
    }

    fn streams(&self) -> u32 {
        self.inner.streams()
    }
}

/// See [`DatasetExt::zip`].
#[derive(Debug)]
pub struct Zip<A, B> {
    one: A,
    two: B,
}

impl<A: Dataset, B: Dataset> Dataset for Zip<A, B> {
    type Item = (A::Item, B::Item);

    fn len(&self) -> u64 {
        self.one.len()
    }

    fn get(&self, index: u64, random: &SampleRandom) -> Result<Self::Item, DataError> {
        Ok((self.one.get(index, random)?, self.two.get(index, random)?))
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        let (one, two) = (self.one.fingerprint()?, self.two.fingerprint()?);
        // Where the first ends is told, too: what is done to one of them is not done to both.
        let both = DataHash::of_named([(&b"one"[..], one.hash()), (&b"two"[..], two.hash())]);
        let add = |print: Fingerprinting, part: DataPart| print.part(part.name, part.hash);
        let parts = two.into_parts().into_iter();
        Ok(parts.fold(Fingerprinting::over(one), add).part("the pairing", both).finish())
    }

    fn streams(&self) -> u32 {
        self.one.streams().max(self.two.streams())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its samples are their own numbers.
    #[derive(Debug)]
    struct Numbers(u64);

    impl Dataset for Numbers {
        type Item = u64;

        fn len(&self) -> u64 {
            self.0
        }

        fn get(&self, index: u64, _random: &SampleRandom) -> Result<u64, DataError> {
            Ok(index)
        }

        fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
            Ok(Fingerprinting::default()
                .part("numbers", DataHash::of(&self.0.to_le_bytes()))
                .finish())
        }
    }

    #[test]
    fn each_transform_draws_from_a_stream_of_its_own() {
        let draw = |_: u64, rng: &mut CounterRng| Ok(rng.next_u64());
        let once = Numbers(4).map("draw", draw);
        let twice = Numbers(4).map("nothing", |number, _| Ok(number)).map("draw", draw);
        let at = |place| SampleRandom::new(1, 2, place);
        let (one, two) = (once.get(0, &at(0)).unwrap(), twice.get(0, &at(0)).unwrap());
        assert_eq!(one, at(0).stream(1).next_u64(), "stream 0 is the data set's own");
        assert_eq!(two, at(0).stream(2).next_u64());
        assert_ne!(once.get(0, &at(1)).unwrap(), one, "another place, other numbers");
        assert_eq!(
            once.get(3, &at(0)).unwrap(),
            one,
            "numbers belong to the place, not to the sample"
        );
    }

    #[test]
    fn what_is_done_to_samples_is_part_of_the_fingerprint() {
        let plain = Numbers(4).fingerprint().unwrap();
        let print = |name: &str| Numbers(4).map(name, |number, _| Ok(number)).fingerprint().unwrap();
        assert_ne!(print("pad 4"), print("pad 2"));
        assert_ne!(print("pad 4"), plain);
        assert_eq!(print("pad 4"), print("pad 4"));
        let selected = |numbers: &[u64]| Numbers(4).select("some", numbers.to_vec()).unwrap().fingerprint().unwrap();
        assert_ne!(selected(&[1, 2]), selected(&[1, 3]));
        assert_ne!(selected(&[1, 2]), plain);
    }

    #[test]
    fn a_selection_has_its_samples_and_no_others() {
        let some = Numbers(10).select("odd", [1, 3, 5]).unwrap();
        let random = SampleRandom::held_out(0, 0);
        let all: Vec<_> = (0..some.len()).map(|index| some.get(index, &random).unwrap()).collect();
        assert_eq!(all, [1, 3, 5]);
        let error = some.get(3, &random).unwrap_err().to_string();
        assert!(error.contains("below 3") && error.contains("found 3"), "{error}");
        let error = Numbers(10).select("too far", [1, 10]).unwrap_err().to_string();
        assert!(error.contains("below 10") && error.contains("found 10"), "{error}");
    }

    #[test]
    fn pairs_have_a_sample_of_each_and_draw_the_same_numbers() {
        let draw = |number, rng: &mut CounterRng| Ok((number, rng.next_u64()));
        let halves = Numbers(10).select("the last", 5..10).unwrap().map("draw", draw);
        let pairs = Numbers(5).map("draw", draw).zip(halves).unwrap();
        assert_eq!((pairs.len(), pairs.streams()), (5, 2));
        let random = SampleRandom::held_out(1, 2);
        let ((one, drawn), (two, also_drawn)) = pairs.get(3, &random).unwrap();
        assert_eq!((one, two, drawn), (3, 8, also_drawn));
        let after = pairs.map("draw", |_, rng| Ok(rng.next_u64()));
        assert_ne!(
            after.get(3, &random).unwrap(),
            drawn,
            "what comes after has numbers of its own"
        );
    }

    #[test]
    fn pairs_are_called_by_the_parts_of_both_in_order() {
        let print = |one, two| {
            Numbers(one)
                .zip(Numbers(10).select("some", two).unwrap())
                .unwrap()
                .fingerprint()
                .unwrap()
        };
        let parts = print(2, [4, 5]).into_parts();
        assert_eq!(parts.len(), 4, "and how they are paired");
        assert_eq!(parts[..1], *Numbers(2).fingerprint().unwrap().parts());
        assert_ne!(print(2, [4, 5]), print(2, [5, 4]));
        let error = Numbers(5).zip(Numbers(4)).unwrap_err().to_string();
        assert!(error.contains("found 5 and 4"), "{error}");
    }
}
