//! What the two ends of shared memory say to each other: whose turn each slot is, whether an end is at its end, and whether it sleeps and is
//! to be woken. Knows neither where that lies, nor what is in the slots, nor by what an end is woken.
//!
//! A count is released by its end and acquired by the other: what was done with a slot before is done. An end that says something, and then
//! looks whether the other sleeps, must not miss one that says that it sleeps, and then looks again: between the two each has a fence, so
//! that one of them sees the other. The tests try the orders with a model checker.

mod atomic;
#[cfg(test)]
mod model;

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

pub(super) use atomic::Atomic;

/// Where the counters are.
pub(super) trait Memory {
    type Long: Atomic<u64>;
    type Short: Atomic<u32>;
    /// Slots, which are used in turn.
    const SLOTS: u64;

    fn counters(&self) -> &Counters<Self::Long, Self::Short>;

    /// A sequentially consistent fence.
    fn fence(&self);
}

/// What wakes the other end, and this one.
pub(super) trait Doorbell {
    /// Wakes the other end. Heard once at least, also by one that does not sleep yet.
    fn ring(&self);

    /// Sleeps until the other end has rung.
    async fn heard(&self) -> Result<(), Gone>;

    /// Lets others run, so that this end may look again. Says whether it has; an end that has waited `since` long ago is to sleep.
    async fn lingers(&self, since: Instant) -> bool;
}

/// The other end's process is gone, or has let go of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

/// Each end writes lines of its own, so that they do not wait for each other's.
#[repr(C)]
pub(super) struct Counters<Long, Short> {
    sender: Side<Long, Short>,
    receiver: Side<Long, Short>,
}

/// What one end says.
#[repr(C, align(64))]
struct Side<Long, Short> {
    /// Slots that it has written, or read, since the beginning.
    slots: Long,
    /// A [`State`].
    state: Short,
    /// 1 while it sleeps and wants to be woken. Both ends write it, so it is only ever swapped: each builds on the other's latest word.
    sleeps: Short,
}

impl<Long: Atomic<u64>, Short: Atomic<u32>> Counters<Long, Short> {
    /// How many slots the reader has given back; none if it reads no more.
    pub(super) fn read(&self) -> Option<u64> {
        let reader = &self.receiver;
        (reader.state.load(Acquire) == State::Open as u32).then(|| reader.slots.load(Acquire))
    }
}

/// What becomes of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Open = 0,
    /// It ended well.
    Finished = 1,
    /// It was given up.
    Reset = 2,
}

/// Why there is nothing to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The writer has finished.
    Finished,
    /// The writer has given up, or is gone.
    Reset,
    /// The reader reads no more, or is gone.
    Refused,
    /// The other end's count cannot be.
    Senseless,
}

/// The end that writes.
#[derive(Debug)]
pub(super) struct Writer<M> {
    memory: M,
    written: u64,
}

/// The end that reads.
#[derive(Debug)]
pub(super) struct Reader<M> {
    memory: M,
    read: u64,
}

impl<M: Memory> Writer<M> {
    pub(super) const fn new(memory: M) -> Self {
        Self { memory, written: 0 }
    }

    pub(super) const fn memory(&self) -> &M {
        &self.memory
    }

    /// The slot that is written next, counted from the beginning of time.
    pub(super) const fn next(&self) -> u64 {
        self.written
    }

    /// Waits until a slot is free: it is this end's until it is counted.
    pub(super) async fn room(&self, bell: &impl Doorbell) -> Result<(), Over> {
        let own = &self.memory.counters().sender;
        wait(&self.memory, own, bell, || self.has_room(), Over::Refused).await
    }

    fn has_room(&self) -> Result<bool, Over> {
        let reader = &self.memory.counters().receiver;
        if reader.state.load(Acquire) != State::Open as u32 {
            return Err(Over::Refused);
        }
        Ok(between::<M>(reader.slots.load(Acquire), self.written)? < M::SLOTS)
    }

    /// Counts the slot as written: it is the reader's.
    pub(super) fn count(&mut self, bell: &impl Doorbell) {
        let Counters { sender, receiver } = self.memory.counters();
        self.written += 1;
        sender.slots.store(self.written, Release);
        wake(&self.memory, receiver, bell);
    }

    /// Says that nothing will be written.
    pub(super) fn end(&self, state: State, bell: &impl Doorbell) {
        let Counters { sender, receiver } = self.memory.counters();
        sender.state.store(state as u32, Release);
        wake(&self.memory, receiver, bell);
    }
}

impl<M: Memory> Reader<M> {
    pub(super) const fn new(memory: M) -> Self {
        Self { memory, read: 0 }
    }

    pub(super) const fn memory(&self) -> &M {
        &self.memory
    }

    /// The slot that is read next, counted from the beginning of time.
    pub(super) const fn next(&self) -> u64 {
        self.read
    }

    /// Waits until a frame is there: its slot is this end's until it is counted.
    pub(super) async fn frame(&self, bell: &impl Doorbell) -> Result<(), Over> {
        self.wakes(bell);
        let own = &self.memory.counters().receiver;
        wait(&self.memory, own, bell, || self.has_frame(), Over::Reset).await
    }

    /// Wakes a writer that sleeps, since slots were given back.
    fn wakes(&self, bell: &impl Doorbell) {
        wake(&self.memory, &self.memory.counters().sender, bell);
    }

    fn has_frame(&self) -> Result<bool, Over> {
        let writer = &self.memory.counters().sender;
        // Before the count: what was written before the end counts.
        let state = writer.state.load(Acquire);
        if between::<M>(self.read, writer.slots.load(Acquire))? > 0 {
            return Ok(true);
        }
        match state {
            0 => Ok(false),
            1 => Err(Over::Finished),
            _ => Err(Over::Reset),
        }
    }

    /// Counts the slot as read: it is the writer's, which is woken when this end waits for the next frame.
    pub(super) fn count(&mut self) {
        self.read += 1;
        self.memory.counters().receiver.slots.store(self.read, Release);
    }

    /// Says that nothing more will be read.
    pub(super) fn end(&self, bell: &impl Doorbell) {
        let Counters { sender, receiver } = self.memory.counters();
        receiver.state.store(State::Reset as u32, Release);
        wake(&self.memory, sender, bell);
    }
}

/// Of the slots that `ahead` has beyond `behind` there are at most all.
fn between<M: Memory>(behind: u64, ahead: u64) -> Result<u64, Over> {
    ahead
        .checked_sub(behind)
        .filter(|&slots| slots <= M::SLOTS)
        .ok_or(Over::Senseless)
}

/// Wakes the other end, once, if it sleeps: something was said that it may wait for.
fn wake<M: Memory>(memory: &M, other: &Side<M::Long, M::Short>, bell: &impl Doorbell) {
    memory.fence();
    if other.sleeps.load(Relaxed) != 0 && other.sleeps.swap(0, Relaxed) != 0 {
        bell.ring();
    }
}

/// Waits until `ready`. If the other end is gone before, that is the error `gone`.
async fn wait<M: Memory>(
    memory: &M,
    own: &Side<M::Long, M::Short>,
    bell: &impl Doorbell,
    ready: impl Fn() -> Result<bool, Over>,
    gone: Over,
) -> Result<(), Over> {
    let began = Instant::now();
    while !ready()? {
        if bell.lingers(began).await {
            continue;
        }
        own.sleeps.swap(1, Relaxed);
        memory.fence();
        // It may have become so before the other end could know that this one sleeps.
        let heard = if ready()? { Ok(()) } else { bell.heard().await };
        own.sleeps.swap(0, Relaxed);
        if heard == Err(Gone) {
            // What it had done before is done.
            return if ready()? { Ok(()) } else { Err(gone) };
        }
    }
    Ok(())
}

impl<Long: Atomic<u64>, Short> fmt::Debug for Counters<Long, Short> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters")
            .field("written", &self.sender.slots.load(Relaxed))
            .field("read", &self.receiver.slots.load(Relaxed))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl<M: Memory> Writer<M> {
    pub(super) fn other_sleeps(&self) -> bool {
        self.memory.counters().receiver.sleeps.load(Acquire) != 0
    }

    /// Says that so many slots were written.
    pub(super) fn claim(&self, slots: u64) {
        self.memory.counters().sender.slots.store(slots, Release);
    }
}

#[cfg(test)]
impl<M: Memory> Reader<M> {
    /// Says that so many slots were read.
    pub(super) fn claim(&self, slots: u64) {
        self.memory.counters().receiver.slots.store(slots, Release);
    }
}
