//! Bytes that are read once, front to back, in the runs in which they lie. Knows not what they mean, nor who has put them there.
//!
//! What has come over a network lies as it came: a part in each packet. Whoever adds it or stores it reads it there, run by run, so that it is
//! moved once and not twice. The same bytes in one run are the simplest case: a slice.

use std::ops::Range;

/// Bytes to be read once, front to back, where they lie. Runs may begin at any address, so who reads numbers in them asks for no alignment.
pub trait Runs {
    /// Bytes that are not read yet.
    fn left(&self) -> usize;

    /// The next run: whole elements of `element` bytes, at least one of them, and at most `most` bytes. An element that lies in two runs
    /// is put together elsewhere, and comes as a run of its own.
    ///
    /// # Panics
    /// When fewer than `element` or `most` bytes are left, `most` holds no element, or `element` is more than [`MOST_ELEMENT_BYTES`].
    fn run(&mut self, most: usize, element: usize) -> &[u8];

    /// Shows the next `elements` elements of `bytes` bytes each, run by run, each run with the elements that it holds.
    ///
    /// # Panics
    /// When fewer are left.
    fn each(&mut self, elements: usize, bytes: usize, mut see: impl FnMut(Range<usize>, &[u8]))
    where
        Self: Sized,
    {
        let mut seen = 0;
        while seen < elements {
            let run = self.run((elements - seen) * bytes, bytes);
            let end = seen + run.len() / bytes;
            see(seen..end, run);
            seen = end;
        }
    }

    /// Copies the next bytes to `out`: as many as it has.
    ///
    /// # Panics
    /// When fewer are left.
    fn copy_to(&mut self, out: &mut [u8])
    where
        Self: Sized,
    {
        self.each(out.len(), 1, |at, run| out[at].copy_from_slice(run));
    }

    /// Goes over the next `bytes` bytes.
    ///
    /// # Panics
    /// When fewer are left.
    fn skip(&mut self, bytes: usize)
    where
        Self: Sized,
    {
        self.each(bytes, 1, |_, _| ());
    }

    /// Copies all that is left.
    fn to_vec(&mut self) -> Vec<u8>
    where
        Self: Sized,
    {
        let mut all = vec![0; self.left()];
        self.copy_to(&mut all);
        all
    }
}

/// Most bytes of one element: those of an f64.
pub const MOST_ELEMENT_BYTES: usize = 8;

impl Runs for &[u8] {
    fn left(&self) -> usize {
        self.len()
    }

    fn run(&mut self, most: usize, _element: usize) -> &[u8] {
        let (run, rest) = self.split_at(most);
        *self = rest;
        run
    }
}
