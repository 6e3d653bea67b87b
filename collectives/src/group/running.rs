//! Carries out an operation on the thread that calls it, and ends the group with the first that fails. Knows no particular operation.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};

use super::Group;
use super::call::Call;
use super::element::Element;
use super::error::GroupError;
use super::fast::Rooms;
use super::lane::{Lanes, Stamp};
use super::operation::Operation;
use crate::block_on::block_on;

impl Group {
    /// Carries out one operation on `values`; `alone` where there are no others.
    pub(super) fn run<E: Element>(
        &mut self,
        call: Call,
        values: &mut [E],
        alone: impl FnOnce(&mut [E]),
        together: impl AsyncFnOnce(Operation, &mut Lanes, &mut Rooms, &mut [E]) -> Result<(), GroupError>,
    ) -> Result<(), GroupError> {
        let generation = self.generation;
        self.check_whole()?;
        let operation = Operation {
            rank: self.rank.get(),
            world_size: self.world_size,
            stamp: Stamp {
                generation,
                number: self.number,
                call,
            },
            chunk_bytes: self.chunk_bytes,
        };
        self.number += 1;
        let ended = |source| GroupError::Ended { generation, source };
        let outcome = match &mut self.lanes {
            None => match self.alarm.reason() {
                None => {
                    alone(values);
                    Ok(())
                }
                Some(source) => Err(ended(source)),
            },
            Some(lanes) => {
                let raised = pin!(self.alarm.raised());
                let together = pin!(together(operation, lanes, &mut self.rooms, values));
                // A rank that is woken by both is told the reason.
                match block_on(select(raised, together)) {
                    Either::Left((source, _)) => Err(ended(source)),
                    Either::Right((outcome, _)) => outcome,
                }
            }
        };
        outcome.map_err(|error| self.breaks(error))
    }

    /// With this error the group is over for all ranks: those that share the alarm are woken, the others see the links break. The first error of
    /// any is what ended it.
    pub(super) fn breaks(&mut self, error: GroupError) -> GroupError {
        let generation = self.generation;
        let error = match (error, self.alarm.reason()) {
            (GroupError::Link { .. }, Some(source)) => GroupError::Ended { generation, source },
            (error, _) => error,
        };
        let source = if let GroupError::Ended { source, .. } = &error {
            Arc::clone(source)
        } else {
            Arc::new(error.clone())
        };
        self.alarm.raise(Arc::clone(&source));
        self.broken.get_or_insert(source);
        self.lanes = None;
        error
    }
}
