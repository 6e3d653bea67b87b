//! Memory that the system need not find first.
//!
//! A virtual machine may give memory that is free back to its host within seconds, and a process that needs it then waits for each page of it:
//! up to 2.4 s for a GiB, which is filled in 0.2 s once it is there. That would be a coin's toss between what is compared here. So before
//! each timing as much is filled and let go of as it may need.

use anyhow::Result;
use memmap2::{Advice, MmapMut};

/// So much memory is free, and there, once this is dropped.
pub(crate) fn at_hand(mib: usize) -> Result<MmapMut> {
    let mut room = MmapMut::map_anon(mib << 20)?;
    // As much at a time as the host has it in: whether the system has such pages or not, each is filled.
    let _ = room.advise(Advice::HugePage);
    room.fill(1);
    Ok(room)
}
