//! What this worker told its ring, sorted by step. Knows which gradients a step needs, and no links.

use std::collections::BTreeMap;

use sardana_protocol::job::Order;
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::Part;
use sardana_protocol::words::{ShardRange, Step};
use smallvec::SmallVec;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;

use super::{PieceError, RingConfig, RingError, RingInput};
use crate::gradient::{GradientBuffer, GradientView};

/// What one rank brings to one step.
#[derive(Debug)]
pub(super) struct Contribution {
    /// The room for the sum.
    pub(super) into: GradientBuffer,
    /// Its gradients in shard order.
    pub(super) pieces: Pieces,
}

/// Gradients in shard order: a few without an allocation, as each step has its own.
pub(super) type Pieces = SmallVec<[Piece; 16]>;

/// The gradient of a run of shards.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) shards: ShardRange,
    pub(super) gradient: GradientView,
}

#[derive(Debug)]
pub(super) struct Inbox {
    inputs: UnboundedReceiver<RingInput>,
    buffer_bytes: usize,
    first_step: Step,
    current: Step,
    first: Assignment,
    steady: Assignment,
    begun: BTreeMap<Step, GradientBuffer>,
    pieces: BTreeMap<Step, Pieces>,
    closing: Trailer,
}

/// What this rank brings in one plan.
#[derive(Debug)]
struct Assignment {
    order: Order,
    runs: Vec<ShardRange>,
}

impl Assignment {
    fn of(part: &Part) -> Self {
        Self {
            order: part.order(),
            runs: part.shards(),
        }
    }
}

/// The gradients of a run of shards, among all that a rank brings.
pub(super) fn own(shards: ShardRange, pieces: &[Piece]) -> &[Piece] {
    let first = |shard| pieces.partition_point(|piece| piece.shards.start() < shard);
    &pieces[first(shards.start())..first(shards.end())]
}

impl Inbox {
    pub(super) fn new(config: &RingConfig, inputs: UnboundedReceiver<RingInput>) -> Self {
        Self {
            inputs,
            buffer_bytes: config.layout.bytes(),
            first_step: config.step,
            current: config.step,
            first: Assignment::of(&config.first),
            steady: Assignment::of(&config.steady),
            begun: BTreeMap::new(),
            pieces: BTreeMap::new(),
            closing: Trailer::Continue,
        }
    }

    /// Waits until `step` has begun and all its gradients are here, or on their way into memory. None when the inbox was closed before.
    pub(super) async fn contribution(&mut self, step: Step) -> Result<Option<Contribution>, RingError> {
        self.current = step;
        while !self.complete(step) {
            let Some(input) = self.inputs.recv().await else {
                return Ok(None);
            };
            self.accept(input)?;
        }
        let pieces = self.pieces.remove(&step).unwrap_or_default();
        Ok(self.begun.remove(&step).map(|into| Contribution { into, pieces }))
    }

    /// The trailer for a sum that this rank closes now.
    pub(super) fn trailer(&mut self) -> Result<Trailer, RingError> {
        loop {
            match self.inputs.try_recv() {
                Ok(input) => self.accept(input)?,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                    let trailer = self.closing;
                    self.closing = trailer.after_closing();
                    return Ok(trailer);
                }
            }
        }
    }

    fn complete(&self, step: Step) -> bool {
        let brought: u32 = self
            .pieces
            .get(&step)
            .map_or(0, |pieces| pieces.iter().map(|piece| piece.shards.len()).sum());
        let assigned: u32 = self.assignment(step).runs.iter().map(|run| run.len()).sum();
        // Pieces neither overlap nor leave what is assigned, so their number tells.
        self.begun.contains_key(&step) && brought == assigned
    }

    fn accept(&mut self, input: RingInput) -> Result<(), RingError> {
        match input {
            RingInput::Begin { step, into } => {
                self.check_length(step, into.length())?;
                if step < self.current || self.begun.insert(step, into).is_some() {
                    return Err(RingError::Begin {
                        expected: self.current,
                        found: step,
                    });
                }
            }
            RingInput::Piece { step, shards, gradient } => {
                self.check_length(step, gradient.bytes())?;
                self.check_piece(step, shards)
                    .map_err(|source| RingError::Piece { step, shards, source })?;
                let pieces = self.pieces.entry(step).or_default();
                let place = pieces.partition_point(|piece| piece.shards.start() < shards.start());
                pieces.insert(place, Piece { shards, gradient });
            }
            RingInput::CloseWith(trailer) => {
                self.closing = self.closing.and(trailer);
            }
        }
        Ok(())
    }

    fn check_piece(&self, step: Step, shards: ShardRange) -> Result<(), PieceError> {
        if step < self.current {
            return Err(PieceError::Late(self.current));
        }
        let Assignment { order, runs } = self.assignment(step);
        if shards.is_empty() || !runs.iter().any(|run| run.covers(shards)) {
            return Err(PieceError::NotAssigned(runs.clone()));
        }
        match order {
            Order::Exact if shards.len() > 1 && shards.start() > 0 => return Err(PieceError::NotPrefix),
            Order::Exact | Order::Fast => {}
        }
        let pieces = self.pieces.get(&step).into_iter().flatten();
        let mut overlapping =
            pieces.filter(|piece| piece.shards.start() < shards.end() && shards.start() < piece.shards.end());
        match overlapping.next() {
            Some(piece) => Err(PieceError::Overlap(piece.shards)),
            None => Ok(()),
        }
    }

    fn check_length(&self, step: Step, found: usize) -> Result<(), RingError> {
        let expected = self.buffer_bytes;
        if expected == found {
            Ok(())
        } else {
            Err(RingError::BufferLength { step, expected, found })
        }
    }

    fn assignment(&self, step: Step) -> &Assignment {
        if step == self.first_step { &self.first } else { &self.steady }
    }
}
