//! Collective operations by themselves, for programs that train in their own way: no model, no step, no shard. Knows a rank's place in
//! the group and the links to its two neighbours, not which process is where, nor who decides it.
//!
//! Each rank of a [`Group`] is a thread or process of its own, and all of them make the same calls in the same order. An operation returns
//! on a rank once all ranks have called it and this rank has its result; until then it blocks the thread, which needs no runtime. (From
//! asynchronous code call it on a thread where blocking is allowed.)
//!
//! ```
//! use sardana_collectives::group::{Group, Order, Reduction};
//!
//! let ranks: Vec<_> = Group::in_process(4)
//!     .into_iter()
//!     .map(|mut group| {
//!         std::thread::spawn(move || {
//!             let mut values = [group.rank().get() as f32, 1.0];
//!             group.all_reduce(&mut values, Reduction::Sum, Order::Exact)?;
//!             assert_eq!(values, [6.0, 4.0]);
//!             group.close()
//!         })
//!     })
//!     .collect();
//! for rank in ranks {
//!     rank.join().expect("no rank panics")?;
//! }
//! # Ok::<(), sardana_collectives::group::GroupError>(())
//! ```
//!
//! - [`Element`], [`Reduction`]: what is reduced, and what becomes of an element. [`Order::Exact`] combines in rank order, 0 to n-1,
//!   whatever the length; [`Order::Fast`] in an order that depends on an element's place and on how many ranks there are (between threads of one
//!   host it was not faster).
//! - [`Group::compress`]: f32 travel as halves, in half the bytes, in [`Order::Fast`] alone; [`crate::compression`] tells the error.
//! - Buffers are reduced where they are. Beside them an operation has what the links hold, and in `Order::Fast` a megabyte, which is kept
//!   for the next.
//! - Calls that differ from rank to rank, a rank that is gone, or a coordinator that ends the ranks' generation: each ends the
//!   operation on all ranks with an error, none waits for ever, and the group is broken (see [`GroupError`]). A rank that had its result
//!   before keeps it, and learns of the error when it calls next.
//! - [`Group::allreduce`] and [`Group::allgather`]: the names that Horovod has, with its defaults; [`horovod`] has a table of the others.

mod alarm;
mod call;
pub mod element;
mod error;
mod exact;
mod fast;
pub mod horovod;
mod in_process;
mod lane;
mod operation;
mod reducing;
mod running;
mod spread;
#[cfg(test)]
mod tests;
mod travel;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

pub use sardana_protocol::job::{Compression, Order};
use sardana_protocol::words::{Generation, Rank};

pub use alarm::Alarm;
pub use call::{CALL_BYTES, Call, Reduced};
pub use element::{Element, ElementType, Reduction};
pub use error::GroupError;
use fast::Rooms;
use lane::Lanes;
pub use lane::{GroupLinks, LaneLinks};
use operation::part;
use travel::AsTheyAre;

use crate::limits::CHUNK_BYTES;

/// One rank's place in a group, with its links. Dropped, it gives up its place: ranks that still call get an error. [`Self::close`] ends it
/// in good order.
#[derive(Debug)]
pub struct Group {
    rank: Rank,
    world_size: u32,
    generation: Generation,
    /// The operations so far.
    number: u64,
    /// None when the rank is alone, or the group broken.
    lanes: Option<Lanes>,
    alarm: Alarm,
    broken: Option<Arc<GroupError>>,
    rooms: Rooms,
    compression: Compression,
    chunk_bytes: usize,
}

/// A rank's place in one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The rank, below `world_size`.
    pub rank: Rank,
    /// How many ranks there are.
    pub world_size: u32,
    /// The generation, which fences every older one (GEN-3).
    pub generation: Generation,
}

impl Group {
    /// The group at one rank, over links that lead to it and from it: made for this generation, unused, and the peers' ends likewise.
    /// Each holder of `alarm` can end it by raising it. (One rank alone sends nothing over its links.)
    ///
    /// # Panics
    /// When the rank is not below the number of ranks.
    #[must_use]
    pub fn new(place: Place, links: GroupLinks, alarm: Alarm) -> Self {
        assert!(
            place.rank.get() < place.world_size,
            "a rank is below the number of ranks: {place:?}"
        );
        Self::with(place, links, alarm, CHUNK_BYTES)
    }

    fn with(place: Place, links: GroupLinks, alarm: Alarm, chunk_bytes: usize) -> Self {
        let Place {
            rank,
            world_size,
            generation,
        } = place;
        Self {
            rank,
            world_size,
            generation,
            number: 0,
            lanes: (world_size > 1).then(|| Lanes::new(rank.get(), world_size, links)),
            alarm,
            broken: None,
            rooms: Rooms::default(),
            compression: Compression::None,
            chunk_bytes,
        }
    }

    /// This rank, 0 up to and without [`Self::world_size`].
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub const fn world_size(&self) -> u32 {
        self.world_size
    }

    /// The generation: greater than that of every group before it with the same ranks, where a coordinator forms them.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// As what f32 travel from the next call on, where they are reduced in [`Order::Fast`]: each hop rounds what the ranks so far make together, and
    /// all ranks get the same rounded results. How far these may be off is told in [`crate::compression`]. Exact order, other types, and what is
    /// not reduced are never compressed. All ranks set the same, since it is part of each call that it concerns. [`Compression::None`] at first.
    pub const fn compress(&mut self, compression: Compression) {
        self.compression = compression;
    }

    /// Which of `length` values are this rank's part: all parts together are all values, in rank order, and their lengths differ by one at
    /// most.
    #[must_use]
    pub fn part(&self, length: usize) -> Range<usize> {
        part(length, self.rank.get(), self.world_size)
    }

    /// Brings each rank's [`Self::part`] of `values` to all ranks: before, each rank has its own part there, and the others are anything;
    /// afterwards all have all. All ranks call it, with as many values in all of the same type; it blocks until they have. Bits are not
    /// looked at.
    ///
    /// # Errors
    /// See [`GroupError`]; `values` are anything then, but for the rank's own part.
    pub fn all_gather<E: Element>(&mut self, values: &mut [E]) -> Result<(), GroupError> {
        let (length, world_size) = (values.len(), self.world_size);
        let call = Call::AllGather {
            element: E::TYPE,
            length: length as u64,
        };
        self.gather(call, values, |rank| part(length, rank, world_size))
    }

    /// As [`Self::all_gather`], with parts that all ranks know.
    fn gather<E: Element>(
        &mut self,
        call: Call,
        values: &mut [E],
        part: impl Fn(u32) -> Range<usize>,
    ) -> Result<(), GroupError> {
        self.run(
            call,
            values,
            |_| (),
            async |operation, lanes, _, values| {
                let values = RefCell::new(values);
                operation.call(&mut lanes.running).await?;
                let gathering = spread::all_gather(operation, &mut lanes.running, AsTheyAre::NEW, &values, part);
                tokio::try_join!(gathering, operation.agreed(&mut lanes.finished)).map(|_| ())
            },
        )
    }

    /// Makes `values` those of the rank `root`, on all ranks. All ranks call it, with as many values of the same type and the same root; it
    /// blocks until they have. Bits are not looked at.
    ///
    /// # Errors
    /// See [`GroupError`]; `values` are anything then, but for the root's.
    pub fn broadcast<E: Element>(&mut self, values: &mut [E], root: Rank) -> Result<(), GroupError> {
        let (element, length, world_size) = (E::TYPE, values.len() as u64, self.world_size);
        let call = Call::Broadcast { root, element, length };
        self.check_whole()?;
        if root.get() >= world_size {
            return Err(self.breaks(GroupError::NoSuchRank { call, world_size }));
        }
        self.run(
            call,
            values,
            |_| (),
            async |operation, lanes, _, values| {
                operation.call(&mut lanes.running).await?;
                operation.agreed(&mut lanes.finished).await?;
                spread::broadcast(operation, &mut lanes.running, values, root.get()).await
            },
        )
    }

    /// Blocks until all ranks have called it.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn barrier(&mut self) -> Result<(), GroupError> {
        self.run(
            Call::Barrier,
            &mut [],
            |_: &mut [u64]| (),
            async |operation, lanes, _, _| {
                operation.call(&mut lanes.running).await?;
                operation.agreed(&mut lanes.finished).await
            },
        )
    }

    /// The last call of all ranks: a [`Self::barrier`], and then all that this rank has sent is with the next one. A process that ends before
    /// may take with it what others still wait for.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn close(mut self) -> Result<(), GroupError> {
        self.barrier()?;
        if let Some(mut lanes) = self.lanes.take() {
            lanes.finish();
            crate::block_on::block_on(lanes.delivered());
        }
        Ok(())
    }

    /// # Errors
    /// When the group is over, with what ended it.
    pub(super) fn check_whole(&self) -> Result<(), GroupError> {
        let generation = self.generation;
        let broken = |source| GroupError::Broken { generation, source };
        self.broken.clone().map(broken).map_or(Ok(()), Err)
    }
}

impl Drop for Group {
    /// What was sent stays sent; what would come next does not come.
    fn drop(&mut self) {
        if let Some(lanes) = &mut self.lanes {
            lanes.finish();
        }
    }
}
