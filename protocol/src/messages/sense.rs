//! Whether what a peer says can be. Every field of what workers, agents and depots say is compared with the job here, once, before a
//! machine sees it; a peer that says what cannot be is at fault, and is not listened to. What is said may still be wrong.

use super::{DepotMessage, Introduction, LinkLine, Seated, Standing, StepReport, Tally, WorkerMessage};
use crate::checkpoint::{Head, ManifestKey};
use crate::job::Order;
use crate::limits::{
    DESCRIPTION_PIECES, LINKS_TOLD, MAX_AUXILIARY, MAX_DEPOTS, MAX_GPU_BYTES, MAX_GRADIENT_BYTES, MAX_GRADIENTS, MAX_HEADS,
    MAX_PIECES, MAX_REPORTS, MAX_RESULTS, MAX_STEPS, MAX_TEXT_BYTES, MAX_WORKERS, PIECE_BYTES, SAVED_PIECES,
};
use crate::lineage::Lineage;
use crate::memory::{DeviceMemory, GradientMemory};
use crate::snapshot::SnapshotId;
use crate::words::{Rank, Step};

/// What can be said in one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// K.
    pub shards: u32,
    /// The last step.
    pub steps: Step,
    /// In which order gradients are added.
    pub order: Order,
}

/// A message that cannot be: it was altered, or comes from a broken build or a hostile peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it says {found}, which cannot be: expected {expected}")]
pub struct Senseless {
    /// What may be said.
    pub expected: String,
    /// What was.
    pub found: String,
}

/// What a peer says, or a part of it.
pub trait Sensible {
    /// Compares each field with what can be in a job with these bounds.
    ///
    /// # Errors
    /// The first field that cannot be.
    fn check(&self, within: Bounds) -> Result<(), Senseless>;
}

/// The error is made only if it is needed: this is asked with every message.
fn require(can_be: bool, expected: impl FnOnce() -> String, found: impl FnOnce() -> String) -> Result<(), Senseless> {
    if can_be {
        return Ok(());
    }
    let (expected, found) = (expected(), found());
    Err(Senseless { expected, found })
}

fn at_most(what: &str, most: usize, found: usize) -> Result<(), Senseless> {
    require(
        found <= most,
        || format!("at most {most} {what}"),
        || format!("{found} {what}"),
    )
}

fn step_within(step: Step, within: Bounds) -> Result<(), Senseless> {
    require(
        step <= within.steps,
        || format!("a step up to {}", within.steps),
        || format!("step {step}"),
    )
}

impl Sensible for Tally {
    fn check(&self, within: Bounds) -> Result<(), Senseless> {
        step_within(self.step, within)?;
        let of_two_steps = u64::from(self.this_step) + u64::from(self.previous_step);
        require(
            of_two_steps <= self.total && self.total <= MAX_GRADIENTS,
            || format!("at most {MAX_GRADIENTS} gradients, those of the last two steps among them"),
            || format!("{} gradients, {of_two_steps} of them in the last two steps", self.total),
        )
    }
}

impl Sensible for Standing {
    fn check(&self, within: Bounds) -> Result<(), Senseless> {
        step_within(self.step, within)?;
        step_within(self.stop_at.unwrap_or(Step::ZERO), within)?;
        self.tally.check(within)?;
        let in_order = self.kept.is_sorted_by(|range, next| range.end() <= next.start());
        let within_all = self.kept.last().is_none_or(|last| last.end() <= within.shards);
        let full = !self.kept.iter().any(|range| range.is_empty());
        require(
            in_order && within_all && full,
            || format!("runs of shards in order within 0..{}", within.shards),
            || format!("{} runs, the last of them {:?}", self.kept.len(), self.kept.last()),
        )?;
        require(
            self.sum.is_none_or(|sum| self.step.previous() == Some(sum)),
            || format!("the sum of the step before {}, or none", self.step),
            || format!("that of {:?}", self.sum),
        )
    }
}

impl Sensible for Seated {
    fn check(&self, within: Bounds) -> Result<(), Senseless> {
        let exists = |rank: Rank| rank.get() < self.world_size;
        let peers = self.peers.is_sorted_by(|(rank, _), (next, _)| rank < next)
            && self.peers.iter().all(|&(rank, _)| exists(rank) && rank != self.rank);
        let sound = self.world_size <= MAX_WORKERS && exists(self.rank) && peers && self.shards.end() <= within.shards;
        require(
            sound,
            || {
                format!(
                    "a seat among at most {MAX_WORKERS} members, for shards of 0..{}",
                    within.shards
                )
            },
            || {
                let Self {
                    rank,
                    world_size,
                    shards,
                    ..
                } = self;
                let peers = self.peers.len();
                format!("rank {rank} of {world_size} members, with shards {shards} and {peers} peers")
            },
        )
    }
}

impl Sensible for GradientMemory {
    fn check(&self, _: Bounds) -> Result<(), Senseless> {
        let most = MAX_GRADIENT_BYTES as u64;
        require(
            (1..=most).contains(&self.gradient),
            || format!("a gradient of 1 to {most} bytes"),
            || format!("one of {} bytes", self.gradient),
        )
    }
}

impl Sensible for DeviceMemory {
    fn check(&self, _: Bounds) -> Result<(), Senseless> {
        at_most("bytes of a GPU's name", MAX_GPU_BYTES, self.gpu.len())
    }
}

impl Sensible for Introduction {
    fn check(&self, within: Bounds) -> Result<(), Senseless> {
        self.seat.as_ref().map_or(Ok(()), |seat| seat.check(within))?;
        self.standing.check(within)?;
        // A joiner that follows has sums of generations that it is no member of: a coordinator knows which there can be.
        lineage_within(self.standing.lineage, within)
    }
}

/// The lineage of a state.
fn lineage_within(lineage: Lineage, within: Bounds) -> Result<(), Senseless> {
    let initial = Lineage::default();
    let sound = lineage == initial || (within.order == Order::Fast && lineage.before <= Some(lineage.last));
    require(
        sound,
        || "sums of generations, the newer one last; in exact order those of the initial state".to_owned(),
        || format!("{:?} after {:?}", lineage.last, lineage.before),
    )
}

/// The reports of a worker that stands at `step`.
fn reports_within(reports: &[StepReport], step: Step) -> Result<(), Senseless> {
    at_most("reports", MAX_REPORTS, reports.len())?;
    for report in reports {
        at_most("auxiliary sums", MAX_AUXILIARY, report.sums.len())?;
    }
    let in_order = reports.is_sorted_by(|report, next| report.step < next.step);
    require(
        in_order && reports.last().is_none_or(|last| last.step < step),
        || format!("reports of steps before {step}, in order"),
        || format!("{:?}", reports.iter().map(|report| report.step).take(3).collect::<Vec<_>>()),
    )
}

/// What a worker tells of its links.
fn links_within(lines: &[LinkLine]) -> Result<(), Senseless> {
    at_most("lines about links", LINKS_TOLD, lines.len())?;
    let in_order = lines.is_sorted_by(|line, next| (line.peer, line.kind) < (next.peer, next.kind));
    require(
        in_order,
        || "a line about links for each other worker and kind, in this order".to_owned(),
        || "a line twice, or out of order".to_owned(),
    )
}

impl Sensible for WorkerMessage {
    fn check(&self, within: Bounds) -> Result<(), Senseless> {
        match self {
            Self::Halted { standing, generation } => {
                standing.check(within)?;
                lineage_within(standing.lineage, within)?;
                require(
                    standing.lineage.last < *generation,
                    || format!("a state that no sum of {generation} has led to, which is yet to begin"),
                    || format!("one that a sum of {} has led to", standing.lineage.last),
                )
            }
            Self::Progress {
                step, tally, reports, ..
            } => {
                step_within(*step, within)?;
                tally.check(within)?;
                reports_within(reports, *step)
            }
            Self::Finished {
                step, results, tally, ..
            } => {
                step_within(*step, within)?;
                tally.check(within)?;
                at_most("results", MAX_RESULTS, results.len())?;
                results
                    .iter()
                    .try_for_each(|(name, _)| at_most("bytes of a result's name", MAX_TEXT_BYTES, name.len()))
            }
            Self::Switched { step, .. } => step_within(*step, within),
            Self::CaughtUp { snapshot, step } => step_within(snapshot.step.max(*step), within),
            Self::Snapshotted { snapshot, shares } => {
                step_within(snapshot.step, within)?;
                let own = matches!(&shares[..], [] | [_]) || matches!(&shares[..], [(one, _), (other, _)] if one != other);
                require(own, || "two shares".to_owned(), || format!("{} shares", shares.len()))
            }
            Self::Saved { .. } => self.check_saved(within),
            Self::Links(report) => links_within(&report.lines),
            Self::DeviceMemory(memory) => memory.check(within),
            Self::Saving { snapshot, .. }
            | Self::NotSaved { snapshot, .. }
            | Self::Hashing { snapshot }
            | Self::Copying { snapshot }
            | Self::Dropped { snapshot }
            | Self::CopyFailed { snapshot, .. } => step_within(snapshot.step, within),
            Self::Ready { .. }
            | Self::RoomMade { .. }
            | Self::LinkBroken { .. }
            | Self::GivenUp { .. }
            | Self::NotRestored { .. }
            | Self::Leave { .. }
            | Self::Renew { .. }
            | Self::Failed { .. } => Ok(()),
        }
    }
}

impl WorkerMessage {
    fn check_saved(&self, within: Bounds) -> Result<(), Senseless> {
        let Self::Saved {
            snapshot,
            share,
            bytes,
            description,
            start,
            pieces,
            ..
        } = self
        else {
            return Ok(());
        };
        step_within(snapshot.step, within)?;
        at_most("pieces that describe tensors", DESCRIPTION_PIECES, description.len())?;
        at_most("pieces in one message", SAVED_PIECES, pieces.len())?;
        let (shares, most) = (MAX_WORKERS, MAX_PIECES as u64);
        let told = start.saturating_add(pieces.len() as u64);
        require(
            *share < shares && told <= most && bytes.div_ceil(PIECE_BYTES as u64) <= most,
            || format!("a share below {shares}, of at most {most} pieces of at most {PIECE_BYTES} bytes"),
            || format!("share {share} of {bytes} bytes, with {told} pieces"),
        )
    }
}

/// The step of a checkpoint, which may be of another job.
fn checkpoint_within(step: Step) -> Result<(), Senseless> {
    require(
        step.get() <= MAX_STEPS,
        || format!("a checkpoint of a step up to {MAX_STEPS}"),
        || format!("one of {step}"),
    )
}

impl Sensible for Head {
    fn check(&self, _: Bounds) -> Result<(), Senseless> {
        checkpoint_within(self.key.step)?;
        at_most("depots", MAX_DEPOTS, self.depots.len())?;
        require(
            self.key.step == self.snapshot.step,
            || format!("a checkpoint of {}, as it is called", self.key.step),
            || format!("one of {}", self.snapshot.step),
        )
    }
}

impl Sensible for DepotMessage {
    fn check(&self, within: Bounds) -> Result<(), Senseless> {
        let key = |key: &ManifestKey| checkpoint_within(key.step);
        let snapshot = |snapshot: &SnapshotId| checkpoint_within(snapshot.step);
        match self {
            Self::Holds { heads, unreadable, .. } => {
                at_most("checkpoints", MAX_HEADS, heads.len().max(unreadable.len()))?;
                heads.iter().try_for_each(|head| head.check(within))?;
                unreadable.iter().try_for_each(key)
            }
            Self::Deleted { key: deleted } => key(deleted),
            Self::Committed { snapshot: of, head } => {
                snapshot(of)?;
                head.check(within)
            }
            Self::Refused { snapshot: of, .. } | Self::Fetching { snapshot: of, .. } => snapshot(of),
            Self::Renew { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use crate::words::{Generation, Incarnation};

    fn g(count: u64) -> Generation {
        Generation::new(Incarnation::new(1), count)
    }

    /// What is thought of a worker with this lineage: in its hello, and after a halt for g1.7.
    fn said(order: Order, last: Generation, before: Option<Generation>) -> [bool; 2] {
        let within = Bounds {
            shards: 4,
            steps: Step::new(9),
            order,
        };
        let mut introduction = samples::introduction();
        introduction.generation = Generation::new(Incarnation::new(1), 7);
        introduction.standing.lineage = Lineage { last, before };
        let halted = WorkerMessage::Halted {
            generation: introduction.generation,
            standing: introduction.standing.clone(),
        };
        [introduction.check(within).is_ok(), halted.check(within).is_ok()]
    }

    #[test]
    fn the_newer_sum_is_the_last_and_none_of_a_generation_that_is_yet_to_begin() {
        for (last, before) in [(g(6), Some(g(6))), (g(6), None), (g(5), Some(g(3)))] {
            assert_eq!(said(Order::Fast, last, before), [true; 2], "{last:?} after {before:?}");
        }
        for (last, before) in [(g(7), Some(g(7))), (g(8), None)] {
            assert_eq!(
                said(Order::Fast, last, before),
                [true, false],
                "{last:?} after {before:?}: not once it has halted"
            );
        }
        assert_eq!(said(Order::Fast, g(3), Some(g(5))), [false; 2]);
    }

    #[test]
    fn in_exact_order_no_state_has_a_lineage_of_its_own() {
        let none = Generation::NONE;
        assert_eq!(said(Order::Exact, none, Some(none)), [true; 2]);
        for (last, before) in [(g(6), Some(g(6))), (g(6), Some(none)), (none, None)] {
            assert_eq!(said(Order::Exact, last, before), [false; 2], "{last:?} after {before:?}");
        }
    }
}
