//! Samples decoded ahead of the training thread, on threads of their own, within a budget of memory. When and where a sample is decoded
//! never reaches it: the same samples come with any number of threads, and with none.
//!
//! - [`Loader`]: what a training thread asks for the samples of a shard;
//! - `queue`: which sample is decoded next, and which shards are held: decisions alone.

mod queue;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use queue::{Queue, Ticket};

use crate::{Coming, DataError, Dataset, HeldBytes, Shard};

/// Memory for samples that wait, unless another amount is set: 256 MiB.
pub const AHEAD_BYTES: usize = 256 << 20;

/// A data set whose samples are decoded ahead. See [`crate::loader`].
pub struct Loader<D: Dataset> {
    work: Arc<Work<D>>,
    threads: usize,
}

/// What the training thread and the decoders share.
struct Work<D: Dataset> {
    dataset: D,
    queue: Mutex<Queue<D::Item>>,
    /// There may be something to decode, or the end has come.
    to_decode: Condvar,
    /// A sample is decoded.
    decoded: Condvar,
}

impl<D> Loader<D>
where
    D: Dataset + 'static,
    D::Item: HeldBytes,
{
    /// Decodes samples of `dataset` on one thread of its own, with [`AHEAD_BYTES`] of memory for those that wait.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn new(dataset: D) -> Result<Self, DataError> {
        Self::on_demand(dataset).ahead(AHEAD_BYTES).threads(1)
    }

    /// Decodes each sample of `dataset` when it is needed, on the training thread: best for what lies in memory already.
    pub fn on_demand(dataset: D) -> Self {
        Self {
            work: Arc::new(Work {
                dataset,
                queue: Mutex::new(Queue::new(0)),
                to_decode: Condvar::new(),
                decoded: Condvar::new(),
            }),
            threads: 0,
        }
    }

    /// Memory for samples that wait. A shard that is larger is decoded all the same, once it is needed.
    ///
    /// Not counted are the shard that the training has taken, what a decoder needs while it is at work, the places of samples that have waited (some
    /// 60 bytes each, used again for others), and what the allocator keeps of freed memory. The one of glibc does so for each thread apart:
    /// with two decoders half the budget again was seen. Workers that an agent starts have `MALLOC_ARENA_MAX=1`, unless it is set to something
    /// else; with that it is next to nothing.
    #[must_use]
    pub fn ahead(self, bytes: usize) -> Self {
        self.work.lock().hold_at_most(bytes);
        self
    }

    /// Decodes on so many more threads of its own, which end with this.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn threads(mut self, more: usize) -> Result<Self, DataError> {
        for _ in 0..more {
            let (work, number) = (Arc::clone(&self.work), self.threads);
            let decoder = thread::Builder::new().name(format!("decoder {number}"));
            // Not waited for at the end: what it reads from may hang.
            let started = decoder.spawn(move || work.decode_ahead());
            started.map_err(|source| DataError::Own(source.into()))?;
            self.threads += 1;
        }
        Ok(self)
    }

    /// Which shards are needed next: others that wait are dropped, and these are decoded in this order.
    pub fn coming(&self, coming: Coming) {
        self.work.lock().plan(coming);
        self.work.to_decode.notify_all();
    }

    /// The samples of `shard`, in its order: those that wait, and those that are decoded now, by this thread too.
    ///
    /// # Errors
    /// The first of its samples that cannot be read.
    pub fn samples(&self, shard: &Shard) -> Result<Vec<D::Item>, DataError> {
        let mut samples = Vec::new();
        self.samples_into(shard, &mut samples)?;
        Ok(samples)
    }

    /// The same, in the memory of `samples`; what was there is dropped. Once as many samples have waited as ever do, nothing is allocated but by
    /// the data set.
    ///
    /// # Errors
    /// As [`Self::samples`]; some of the samples may be there.
    pub fn samples_into(&self, shard: &Shard, samples: &mut Vec<D::Item>) -> Result<(), DataError> {
        samples.clear();
        if shard.is_empty() {
            return Ok(());
        }
        samples.reserve(shard.samples().len());
        let work = &*self.work;
        if self.threads == 0 {
            for (at, &sample) in shard.samples().iter().enumerate() {
                samples.push(caught(sample, || work.dataset.get(sample, &shard.sample_random(at)))?);
            }
            return Ok(());
        }
        let mut queue = work.lock();
        loop {
            queue.need(shard);
            work.to_decode.notify_all();
            if let Some(taken) = queue.take(shard, samples) {
                drop(queue);
                // Room for others.
                work.to_decode.notify_all();
                return taken;
            }
            queue = match queue.ticket_of(shard) {
                Some(ticket) => work.decode(queue, &ticket),
                None => work.decoded.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl<D: Dataset> Debug for Loader<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Loader")
            .field("threads", &self.threads)
            .field("held_bytes", &self.held_bytes())
            .finish_non_exhaustive()
    }
}

impl<D: Dataset> Loader<D> {
    /// The data set.
    #[must_use]
    pub fn dataset(&self) -> &D {
        &self.work.dataset
    }

    /// How many bytes of samples may wait.
    #[must_use]
    pub fn ahead_bytes(&self) -> usize {
        self.work.lock().most_bytes()
    }

    /// Bytes of samples that wait.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.work.lock().held_bytes()
    }
}

impl<D: Dataset> Work<D> {
    fn lock(&self) -> MutexGuard<'_, Queue<D::Item>> {
        // Nothing panics while it is held but the queue itself, whose faults must not hide behind a second panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D> Work<D>
where
    D: Dataset,
    D::Item: HeldBytes,
{
    /// What a decoder does until the end.
    fn decode_ahead(&self) {
        let mut queue = self.lock();
        while !queue.is_over() {
            queue = match queue.ticket() {
                Some(ticket) => self.decode(queue, &ticket),
                None => self.to_decode.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Decodes one sample, without holding up others.
    fn decode<'a>(&'a self, queue: MutexGuard<'a, Queue<D::Item>>, ticket: &Ticket) -> MutexGuard<'a, Queue<D::Item>> {
        drop(queue);
        let mut bytes = 0;
        let sample = caught(ticket.sample, || {
            let sample = self.dataset.get(ticket.sample, &ticket.random)?;
            bytes = sample.held_bytes();
            Ok(sample)
        });
        let mut queue = self.lock();
        queue.done(ticket, sample, bytes);
        self.decoded.notify_all();
        queue
    }
}

/// What `get` makes of sample number `sample`; a panic is an error as well.
fn caught<T>(sample: u64, get: impl FnOnce() -> Result<T, DataError>) -> Result<T, DataError> {
    catch_unwind(AssertUnwindSafe(get)).unwrap_or_else(|_| {
        let what = format!("the data set panicked at sample {sample}; its message is above");
        Err(DataError::Own(what.into()))
    })
}

impl<D: Dataset> Drop for Loader<D> {
    fn drop(&mut self) {
        self.work.lock().end();
        self.work.to_decode.notify_all();
    }
}
