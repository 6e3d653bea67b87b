//! What the two ends of shared memory say to each other: whose turn each frame and slot is, whether an end is at its end, and whether it sleeps and is
//! to be woken. Knows neither where that lies, nor what is in them, nor by what an end is woken.
//!
//! Frames are counted, and slots follow from that: both ends know which frames have one, and a slot is free once the frame that had it last is read.
//!
//! A count is released by its end and acquired by the other: what was done with a frame before is done. An end that says something, and then
//! looks whether the other sleeps, must not miss one that says that it sleeps, and then looks again: between the two each has a fence, so
//! that one of them sees the other. The tests try the orders with a model checker.

mod atomic;
#[cfg(test)]
mod model;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

pub(super) use atomic::Atomic;

/// Where the counters are.
pub(super) trait Memory {
    type Long: Atomic<u64>;
    type Short: Atomic<u32>;
    /// Places for frames, which are used in turn.
    const FRAMES: u64;
    /// Slots for what frames carry with them, which are used in turn, too: no more than frames.
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
    /// Frames that it has written, or read, since the beginning.
    frames: Long,
    /// A [`State`].
    state: Short,
    /// 1 while it sleeps and wants to be woken. Both ends write it, so it is only ever swapped: each builds on the other's latest word.
    sleeps: Short,
}

impl<Long: Atomic<u64>, Short: Atomic<u32>> Counters<Long, Short> {
    /// How many frames the reader has given back; none if it reads no more.
    pub(super) fn read(&self) -> Option<u64> {
        let reader = &self.receiver;
        (reader.state.load(Acquire) == State::Open as u32).then(|| reader.frames.load(Acquire))
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
    /// Slots that were taken.
    slots: u64,
    /// The frames that have had each slot last.
    in_slots: VecDeque<u64>,
}

/// The end that reads.
#[derive(Debug)]
pub(super) struct Reader<M> {
    memory: M,
    read: u64,
    /// Slots that were given back.
    slots: u64,
}

impl<M: Memory> Writer<M> {
    pub(super) const fn new(memory: M) -> Self {
        Self {
            memory,
            written: 0,
            slots: 0,
            in_slots: VecDeque::new(),
        }
    }

    pub(super) const fn memory(&self) -> &M {
        &self.memory
    }

    /// The frame that is written next, counted from the beginning of time.
    pub(super) const fn next(&self) -> u64 {
        self.written
    }

    /// Waits until fewer than `most` frames are unread, of all that there may be: the next one's place is this end's until it is counted.
    pub(super) async fn room(&self, most: u64, bell: &impl Doorbell) -> Result<(), Over> {
        let own = &self.memory.counters().sender;
        wait(&self.memory, own, bell, || Ok(self.unread()? < most), Over::Refused).await
    }

    /// Waits until the next slot is free.
    pub(super) async fn free_slot(&self, bell: &impl Doorbell) -> Result<(), Over> {
        let own = &self.memory.counters().sender;
        let Some(last) = self.in_slots.front().filter(|_| self.in_slots.len() as u64 == M::SLOTS) else {
            return Ok(());
        };
        let is_free = || Ok(self.written - self.unread()? > *last);
        wait(&self.memory, own, bell, is_free, Over::Refused).await
    }

    /// The next frame has the next slot, counted from the beginning of time, which must be free: it is this end's until the frame is counted.
    pub(super) fn take_slot(&mut self) -> u64 {
        if self.in_slots.len() as u64 == M::SLOTS {
            self.in_slots.pop_front();
        }
        self.in_slots.push_back(self.written);
        self.slots += 1;
        self.slots - 1
    }

    fn unread(&self) -> Result<u64, Over> {
        let reader = &self.memory.counters().receiver;
        if reader.state.load(Acquire) != State::Open as u32 {
            return Err(Over::Refused);
        }
        between::<M>(reader.frames.load(Acquire), self.written)
    }

    /// Counts the frame as written: it is the reader's, with its slot.
    pub(super) fn count(&mut self, bell: &impl Doorbell) {
        let Counters { sender, receiver } = self.memory.counters();
        self.written += 1;
        sender.frames.store(self.written, Release);
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
        Self {
            memory,
            read: 0,
            slots: 0,
        }
    }

    pub(super) const fn memory(&self) -> &M {
        &self.memory
    }

    /// The frame that is read next, counted from the beginning of time.
    pub(super) const fn next(&self) -> u64 {
        self.read
    }

    /// Its slot, if it has one, counted likewise.
    pub(super) const fn slot(&self) -> u64 {
        self.slots
    }

    /// Waits until a frame is there: its place is this end's until it is counted, and its slot.
    pub(super) async fn frame(&self, bell: &impl Doorbell) -> Result<(), Over> {
        if self.wakes(bell)? > 0 {
            return Ok(());
        }
        let own = &self.memory.counters().receiver;
        wait(&self.memory, own, bell, || self.has_frame(), Over::Reset).await
    }

    /// Wakes a writer that sleeps, since frames were given back: not for one or two, or it would write no more than these at a time. How many are there.
    fn wakes(&self, bell: &impl Doorbell) -> Result<u64, Over> {
        let unread = self.unread()?;
        if unread <= M::FRAMES / 2 {
            wake(&self.memory, &self.memory.counters().sender, bell);
        }
        Ok(unread)
    }

    fn unread(&self) -> Result<u64, Over> {
        between::<M>(self.read, self.memory.counters().sender.frames.load(Acquire))
    }

    fn has_frame(&self) -> Result<bool, Over> {
        let writer = &self.memory.counters().sender;
        // Before the count: what was written before the end counts.
        let state = writer.state.load(Acquire);
        if self.unread()? > 0 {
            return Ok(true);
        }
        match state {
            0 => Ok(false),
            1 => Err(Over::Finished),
            _ => Err(Over::Reset),
        }
    }

    /// Counts the frame as read: it is the writer's, which is woken when this end waits for a later one.
    pub(super) fn count(&mut self) {
        self.read += 1;
        self.memory.counters().receiver.frames.store(self.read, Release);
    }

    /// The same, of a frame that has a slot.
    pub(super) fn count_with_slot(&mut self) {
        self.slots += 1;
        self.count();
    }

    /// Says that nothing more will be read.
    pub(super) fn end(&self, bell: &impl Doorbell) {
        let Counters { sender, receiver } = self.memory.counters();
        receiver.state.store(State::Reset as u32, Release);
        wake(&self.memory, sender, bell);
    }
}

/// Of the frames that `ahead` has beyond `behind` there are at most all.
fn between<M: Memory>(behind: u64, ahead: u64) -> Result<u64, Over> {
    ahead
        .checked_sub(behind)
        .filter(|&frames| frames <= M::FRAMES)
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
            .field("written", &self.sender.frames.load(Relaxed))
            .field("read", &self.receiver.frames.load(Relaxed))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl<M: Memory> Writer<M> {
    pub(super) fn other_sleeps(&self) -> bool {
        self.memory.counters().receiver.sleeps.load(Acquire) != 0
    }

    /// Says that so many frames were written.
    pub(super) fn claim(&self, frames: u64) {
        self.memory.counters().sender.frames.store(frames, Release);
    }
}

#[cfg(test)]
impl<M: Memory> Reader<M> {
    /// Says that so many frames were read.
    pub(super) fn claim(&self, frames: u64) {
        self.memory.counters().receiver.frames.store(frames, Release);
    }
}
