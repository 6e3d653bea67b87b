//! The operations under Horovod's names, with Horovod's defaults. `rank`, `broadcast` and `barrier` have the same names here.
//!
//! | Horovod | here |
//! |---|---|
//! | `hvd.init()` | what makes the group: `sardana::group::join` for processes, [`Group::in_process`] for threads |
//! | `@hvd.elastic.run`, `state.sync()` | a loop around `Member::next` of the crate `sardana`, and a [`Group::broadcast`] in each new group |
//! | `hvd.size()` | [`Group::size`], or [`Group::world_size`] |
//! | `hvd.allreduce(values)`, whose default is the average | [`Group::allreduce`]; it replaces the values, as `hvd.allreduce_` does |
//! | `hvd.allreduce(values, op=hvd.Sum)`, `hvd.Min`, `hvd.Max` | [`Group::all_reduce`] with that [`Reduction`] |
//! | `hvd.reducescatter(values)`, whose default is the average | [`Group::reduce_scatter`] with [`Reduction::Mean`]; the parts are of values, not of rows |
//! | `hvd.allgather(values)` | [`Group::allgather`]; ranks may have unequally many |
//! | `hvd.broadcast(values, root_rank)` | [`Group::broadcast`]; it replaces the values, as `hvd.broadcast_` does |
//! | `hvd.barrier()`, `hvd.join()` | [`Group::barrier`]; `join` has no equivalent: every rank makes every call |
//! | `compression=hvd.Compression.fp16` | [`Group::compress`] with [`Compression::F16`](super::Compression::F16) or `Bf16`; then [`Group::all_reduce`] in [`Order::Fast`], which adds in f32; [`Group::allreduce`] is exact, and compresses nothing |
//! | `name=` | not needed: calls are matched by their order, and compared |

use sardana_protocol::job::Order;

use super::Group;
use super::call::Call;
use super::element::{Element, Reduction};
use super::error::GroupError;

impl Group {
    /// How many ranks there are: [`Self::world_size`].
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.world_size()
    }

    /// Makes `values` the mean over all ranks, in exact order: [`Self::all_reduce`]. For sums, and for integers, call that.
    ///
    /// # Errors
    /// See [`GroupError`]; `values` are anything then.
    pub fn allreduce<E: Element>(&mut self, values: &mut [E]) -> Result<(), GroupError> {
        self.all_reduce(values, Reduction::Mean, Order::Exact)
    }

    /// The values of all ranks, one rank's after the other's in rank order. All ranks call it, with values of the same type, each with as
    /// many as it has; it blocks until they have. Where all have equally many, [`Self::all_gather`] needs no new memory and no second round.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn allgather<E: Element>(&mut self, values: &[E]) -> Result<Vec<E>, GroupError> {
        let element = E::TYPE;
        let mut lengths = vec![0_u64; self.world_size as usize];
        lengths[self.rank.index()] = values.len() as u64;
        self.gather(Call::Lengths { element }, &mut lengths, |rank| {
            rank as usize..rank as usize + 1
        })?;
        let ends = ends(&lengths);
        let total = ends.as_ref().and_then(|ends| ends.last().copied()).unwrap_or(usize::MAX);
        let call = Call::AllGather {
            element,
            length: total as u64,
        };
        let room = ends.and_then(|ends| Some((room(total)?, ends)));
        let (mut all, ends) = room.ok_or_else(|| self.breaks(GroupError::TooLong { call }))?;
        let part = |rank: u32| {
            let end = ends[rank as usize];
            end - lengths[rank as usize] as usize..end
        };
        all[part(self.rank.get())].copy_from_slice(values);
        self.gather(call, &mut all, part)?;
        Ok(all)
    }
}

/// Where each rank's values end among those of all; none if they cannot be counted.
fn ends(lengths: &[u64]) -> Option<Vec<usize>> {
    let end = |so_far: &mut usize, &length: &u64| {
        let end = usize::try_from(length).ok().and_then(|length| so_far.checked_add(length));
        Some(end.inspect(|&end| *so_far = end))
    };
    lengths.iter().scan(0, end).collect()
}

/// Memory for as many values, which other ranks have told: it costs nothing until they come.
fn room<E: Element>(values: usize) -> Option<Vec<E>> {
    bytemuck::allocation::try_zeroed_vec(values).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        assert_eq!(ends(&[3, 0, 4]), Some(vec![3, 3, 7]));
        assert_eq!(ends(&[3, u64::MAX, 4]), None);
        assert_eq!(room::<u64>(usize::MAX), None);
        assert_eq!(room::<u64>(3), Some(vec![0; 3]));
    }
}
