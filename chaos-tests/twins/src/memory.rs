//! The memory of a device that is none: buffers of the host, aligned as a device's are, each between two guard zones. Knows no kernel.

use std::cell::Cell;

use bytemuck::{AnyBitPattern, NoUninit, Zeroable};

/// What a device aligns its buffers to.
const ALIGNMENT: usize = 256;

/// What lies before a buffer and behind it, and must be the same after a launch.
const GUARD: u8 = 0xa5;
const GUARD_BYTES: usize = ALIGNMENT;

/// What is in a buffer that was not written: as numbers they are NaNs.
const POISON: u8 = 0xff;

/// A place in a [`Memory`], as a kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(u64);

impl Address {
    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// So many bytes further.
    #[must_use]
    pub const fn plus(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// What kernels may do with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// They only read it.
    Constant,
    /// They read and write it.
    Set,
    /// They write an element before they read it.
    Unset,
}

#[derive(Debug)]
pub(crate) struct Buffer {
    /// The buffer, its guard zones, and what it takes to align it: cells, since kernels write to them by their addresses.
    all: Vec<Cell<u8>>,
    /// Where in `all` the buffer begins.
    start: usize,
    pub(crate) address: Address,
    pub(crate) bytes: usize,
    pub(crate) element: usize,
    pub(crate) state: State,
}

/// The buffers of a device. All of them are within the reach of every launch.
#[derive(Debug, Default)]
pub struct Memory {
    buffers: Vec<Buffer>,
}

impl Memory {
    /// With nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer with these values, which kernels only read.
    pub fn constant<T: NoUninit>(&mut self, values: &[T]) -> Address {
        self.add(bytemuck::cast_slice(values), size_of::<T>(), State::Constant)
    }

    /// A buffer with these values, which kernels read and write.
    pub fn holding<T: NoUninit>(&mut self, values: &[T]) -> Address {
        self.add(bytemuck::cast_slice(values), size_of::<T>(), State::Set)
    }

    /// A buffer for so many elements, none of which is set.
    pub fn room<T: NoUninit>(&mut self, elements: usize) -> Address {
        self.add(&vec![POISON; elements * size_of::<T>()], size_of::<T>(), State::Unset)
    }

    /// So many elements from `address` on.
    ///
    /// # Panics
    /// When they are not in one buffer.
    #[must_use]
    pub fn read<T: AnyBitPattern + NoUninit + Zeroable>(&self, address: Address, elements: usize) -> Vec<T> {
        let mut values = vec![T::zeroed(); elements];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        let after = self.buffers.partition_point(|buffer| buffer.address <= address);
        let buffer = after.checked_sub(1).and_then(|at| self.buffers.get(at));
        let start = |buffer: &Buffer| usize::try_from(address.0 - buffer.address.0).expect("a buffer fits the memory");
        let range = |buffer: &Buffer| start(buffer)..start(buffer) + bytes.len();
        let found = buffer.and_then(|buffer| buffer.inside().get(range(buffer)));
        let found = found.expect("what is read lies in one buffer");
        bytes.iter_mut().zip(found).for_each(|(byte, found)| *byte = found.get());
        values
    }

    pub(crate) fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// After a launch: what kernels have written is set, and the guards are as they were.
    pub(crate) fn settle(&mut self) -> Result<(), Address> {
        for buffer in &mut self.buffers {
            if buffer.state == State::Unset {
                buffer.state = State::Set;
            }
            if !buffer.is_guarded() {
                return Err(buffer.address);
            }
        }
        Ok(())
    }

    fn add(&mut self, values: &[u8], element: usize, state: State) -> Address {
        let bytes = values.len();
        let all = vec![Cell::new(GUARD); ALIGNMENT + GUARD_BYTES + bytes + GUARD_BYTES];
        let start = GUARD_BYTES + (all.as_ptr().addr() + GUARD_BYTES).wrapping_neg() % ALIGNMENT;
        all[start..start + bytes]
            .iter()
            .zip(values)
            .for_each(|(cell, &value)| cell.set(value));
        let address = Address(all[start..].as_ptr().expose_provenance() as u64);
        let buffer = Buffer {
            all,
            start,
            address,
            bytes,
            element,
            state,
        };
        let at = self.buffers.partition_point(|other| other.address < address);
        self.buffers.insert(at, buffer);
        address
    }
}

impl Buffer {
    fn inside(&self) -> &[Cell<u8>] {
        &self.all[self.start..self.start + self.bytes]
    }

    fn is_guarded(&self) -> bool {
        let (before, after) = (&self.all[..self.start], &self.all[self.start + self.bytes..]);
        before.iter().chain(after).all(|byte| byte.get() == GUARD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_read_back() {
        let mut memory = Memory::new();
        let (first, empty, last) = (
            memory.holding(&[1.0_f32, 2.0, 3.0]),
            memory.room::<u64>(0),
            memory.constant(&[7_u8; 300]),
        );
        for address in [first, empty, last] {
            assert_eq!(address.get() % 256, 0);
        }
        assert_eq!(memory.read::<f32>(first.plus(4), 2), [2.0, 3.0]);
        assert_eq!(memory.read::<u64>(empty, 0), []);
        assert_eq!(memory.read::<u8>(last.plus(299), 1), [7]);
        let room = memory.room::<f32>(2);
        assert!(memory.read::<f32>(room, 2).iter().all(|value| value.is_nan()));
    }

    #[test]
    #[should_panic(expected = "what is read lies in one buffer")]
    fn more_than_a_buffer_has_cannot_be_read() {
        let mut memory = Memory::new();
        let address = memory.holding(&[1_u32]);
        let _ = memory.read::<u32>(address, 2);
    }

    #[test]
    fn a_guard_that_was_written_to_is_seen() {
        for at in [-1_isize, 4] {
            let mut memory = Memory::new();
            let address = memory.holding(&[1_u32]);
            assert_eq!(memory.settle(), Ok(()));
            let buffer = &memory.buffers[0];
            let place = buffer.start.checked_add_signed(at).unwrap();
            buffer.all[place].set(0);
            assert_eq!(memory.settle(), Err(address));
        }
    }
}
