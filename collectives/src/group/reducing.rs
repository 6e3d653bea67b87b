//! The operations that reduce: all_reduce and reduce_scatter. Knows which way each takes, and no links.

use std::cell::RefCell;

use sardana_protocol::job::Order;

use super::call::{Call, Reduced};
use super::element::sealed::Kernels;
use super::element::{Element, ElementType, Reduction};
use super::error::GroupError;
use super::operation::part;
use super::travel::{AsTheyAre, Travel};
use super::{Group, exact, fast, spread};
use crate::compression::Half;

impl Group {
    /// Makes each of `values` what the values of all ranks at its place become, on all ranks. All ranks call it, with as many values of the
    /// same type, the same reduction and the same order; it blocks until they have.
    ///
    /// # Errors
    /// See [`GroupError`]; `values` are anything then.
    pub fn all_reduce<E: Element>(
        &mut self,
        values: &mut [E],
        reduction: Reduction,
        order: Order,
    ) -> Result<(), GroupError> {
        match self.compressed::<E>(order) {
            Some(half) => self.all_reduce_as(half, bytemuck::cast_slice_mut(values), reduction, order),
            None => self.all_reduce_as(AsTheyAre::NEW, values, reduction, order),
        }
    }

    /// As [`Self::all_reduce`], but each rank gets the results of its own [`Self::part`] of `values` alone, which is returned. The other
    /// values are anything afterwards.
    ///
    /// # Errors
    /// See [`GroupError`]; `values` are anything then.
    pub fn reduce_scatter<'a, E: Element>(
        &mut self,
        values: &'a mut [E],
        reduction: Reduction,
        order: Order,
    ) -> Result<&'a mut [E], GroupError> {
        let part = self.part(values.len());
        match self.compressed::<E>(order) {
            Some(half) => self.reduce_scatter_as(half, bytemuck::cast_slice_mut(values), reduction, order),
            None => self.reduce_scatter_as(AsTheyAre::NEW, values, reduction, order),
        }?;
        Ok(&mut values[part])
    }

    /// As what values of this type travel that are reduced in this order; none if as they are.
    fn compressed<E: Element>(&self, order: Order) -> Option<Half> {
        let may_be = E::TYPE == ElementType::F32 && self.compression.is_possible(order);
        Half::of(self.compression).filter(|_| may_be)
    }

    fn all_reduce_as<T: Travel>(
        &mut self,
        travel: T,
        values: &mut [T::Value],
        reduction: Reduction,
        order: Order,
    ) -> Result<(), GroupError> {
        let length = values.len();
        let call = Call::AllReduce(reduced(travel, length, reduction, order));
        self.check_mean::<T::Value>(call, reduction)?;
        let world_size = self.world_size;
        let part = |rank| part(length, rank, world_size);
        self.run(
            call,
            values,
            T::Value::alone,
            async |operation, lanes, rooms, values| match order {
                Order::Exact => exact::reduce(operation, lanes, reduction, values, |_| 0..length).await,
                Order::Fast => {
                    let values = RefCell::new(values);
                    operation.call(&mut lanes.running).await?;
                    let reducing = async {
                        fast::reduce_scatter(operation, &mut lanes.running, travel, reduction, &values, rooms).await?;
                        spread::all_gather(operation, &mut lanes.running, travel, &values, part).await
                    };
                    tokio::try_join!(reducing, operation.agreed(&mut lanes.finished)).map(|_| ())
                }
            },
        )
    }

    fn reduce_scatter_as<T: Travel>(
        &mut self,
        travel: T,
        values: &mut [T::Value],
        reduction: Reduction,
        order: Order,
    ) -> Result<(), GroupError> {
        let length = values.len();
        let call = Call::ReduceScatter(reduced(travel, length, reduction, order));
        self.check_mean::<T::Value>(call, reduction)?;
        let world_size = self.world_size;
        // The last rank has its part before the others.
        let last = part(length, world_size - 1, world_size);
        let takes = |rank| part(length, rank, world_size).start..last.start;
        self.run(
            call,
            values,
            T::Value::alone,
            async |operation, lanes, rooms, values| match order {
                Order::Exact => exact::reduce(operation, lanes, reduction, values, takes).await,
                Order::Fast => {
                    let values = RefCell::new(values);
                    operation.call(&mut lanes.running).await?;
                    let reducing = fast::reduce_scatter(operation, &mut lanes.running, travel, reduction, &values, rooms);
                    tokio::try_join!(reducing, operation.agreed(&mut lanes.finished)).map(|_| ())
                }
            },
        )
    }

    fn check_mean<E: Element>(&mut self, call: Call, reduction: Reduction) -> Result<(), GroupError> {
        self.check_whole()?;
        if reduction == Reduction::Mean && E::TYPE.is_integer() {
            return Err(self.breaks(GroupError::MeanOfIntegers { call }));
        }
        Ok(())
    }
}

fn reduced<T: Travel>(travel: T, length: usize, reduction: Reduction, order: Order) -> Reduced {
    Reduced {
        element: T::Value::TYPE,
        length: length as u64,
        reduction,
        order,
        compression: travel.compression(),
    }
}
