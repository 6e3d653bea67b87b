//! The shapes that a schedule may have: a rate by the number of the update, with no warm-up.

use super::curve::{fractional_power, half_cosine};
use super::error::ScheduleError;
use crate::optim::power;

/// A rate by the number of the update.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// Always the same.
    Constant { rate: f64 },
    /// Times `factor` at each multiple of `every`.
    Step { rate: f64, every: u64, factor: f64 },
    /// Times `factor` over each `every` updates, a little at each.
    Exponential { rate: f64, factor: f64, every: u64 },
    /// Half a period of a cosine.
    Cosine { from: f64, to: f64, over: u64 },
    /// A straight line.
    Linear { from: f64, to: f64, over: u64 },
    /// From which update on there is which rate; sorted, the first from 0 on.
    Pieces(Vec<(u64, f64)>),
}

impl Shape {
    pub(super) fn at(&self, update: u64) -> f64 {
        match self {
            Self::Constant { rate } => *rate,
            Self::Step { rate, every, factor } => {
                let (whole, _) = periods(update, *every);
                rate * finite(power(*factor, whole))
            }
            Self::Exponential { rate, factor, every } => {
                let (whole, part) = periods(update, *every);
                rate * finite(power(*factor, whole) * fractional_power(*factor, part))
            }
            Self::Cosine { from, to, over } => match passed(update, *over) {
                Some(part) => to + (from - to) * half_cosine(part),
                None => *to,
            },
            Self::Linear { from, to, over } => match passed(update, *over) {
                Some(part) => from + (to - from) * part,
                None => *to,
            },
            Self::Pieces(pieces) => {
                let begun = pieces.partition_point(|(from, _)| *from <= update);
                pieces.get(begun.saturating_sub(1)).map_or(0.0, |(_, rate)| *rate)
            }
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Constant { rate } => format!("constant(rate {rate})"),
            Self::Step { rate, every, factor } => format!("step(rate {rate}, every {every}, factor {factor})"),
            Self::Exponential { rate, factor, every } => format!("exponential(rate {rate}, factor {factor}, every {every})"),
            Self::Cosine { from, to, over } => format!("cosine(from {from}, to {to}, over {over})"),
            Self::Linear { from, to, over } => format!("linear(from {from}, to {to}, over {over})"),
            Self::Pieces(pieces) => {
                let pieces: Vec<_> = pieces.iter().map(|(from, rate)| format!("{rate} from {from}")).collect();
                format!("pieces({})", pieces.join(", "))
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), ScheduleError> {
        match self {
            Self::Constant { rate } => Named("constant").numbers(&[("rate", *rate)]),
            Self::Step { rate, every, factor } => {
                Named("step").numbers(&[("rate", *rate), ("factor", *factor)])?;
                Named("step").updates("every", *every)
            }
            Self::Exponential { rate, factor, every } => {
                Named("exponential").numbers(&[("rate", *rate), ("factor", *factor)])?;
                Named("exponential").updates("every", *every)
            }
            Self::Cosine { from, to, over } => {
                Named("cosine").numbers(&[("from", *from), ("to", *to)])?;
                Named("cosine").updates("over", *over)
            }
            Self::Linear { from, to, over } => {
                Named("linear").numbers(&[("from", *from), ("to", *to)])?;
                Named("linear").updates("over", *over)
            }
            Self::Pieces(pieces) => check_pieces(pieces),
        }
    }
}

/// Whole periods before an update, and which part of the next one has passed. One long period, should there be none: nothing panics
/// over a schedule that was not checked.
fn periods(update: u64, every: u64) -> (u64, f64) {
    let every = every.max(1);
    (update / every, (update % every) as f64 / every as f64)
}

/// Which part of `over` updates has passed; none once all of it has.
fn passed(update: u64, over: u64) -> Option<f64> {
    (update < over).then(|| update as f64 / over as f64)
}

/// A factor that grows may pass what f64 holds; times a rate of 0, infinity would be no number.
fn finite(factor: f64) -> f64 {
    factor.min(f64::MAX)
}

fn check_pieces(pieces: &[(u64, f64)]) -> Result<(), ScheduleError> {
    let &(found, _) = pieces.first().ok_or(ScheduleError::NoPieces)?;
    if found != 0 {
        return Err(ScheduleError::FirstPiece { found });
    }
    for pair in pieces.windows(2) {
        let (before, found) = (pair[0].0, pair[1].0);
        if found <= before {
            return Err(ScheduleError::Order { before, found });
        }
    }
    pieces
        .iter()
        .try_for_each(|(_, rate)| Named("pieces").numbers(&[("rate", *rate)]))
}

/// Says which kind of schedule it is that has a constant out of range.
struct Named(&'static str);

impl Named {
    fn numbers(&self, constants: &[(&'static str, f64)]) -> Result<(), ScheduleError> {
        match constants.iter().find(|(_, found)| !(found.is_finite() && *found >= 0.0)) {
            None => Ok(()),
            Some(&(constant, found)) => Err(ScheduleError::Constant {
                shape: self.0,
                constant,
                expected: "finite and 0 or more",
                found,
            }),
        }
    }

    fn updates(&self, constant: &'static str, found: u64) -> Result<(), ScheduleError> {
        let shape = self.0;
        if found > 0 {
            Ok(())
        } else {
            Err(ScheduleError::NoUpdates { shape, constant })
        }
    }
}
