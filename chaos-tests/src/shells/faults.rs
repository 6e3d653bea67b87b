//! What goes wrong, and when.

use std::time::Duration;

use crate::dice::Dice;

/// One thing that goes wrong. Who is meant by a number is who has it when it happens: the n-th of those who are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A worker's process is killed. Another is started after a while.
    KillWorker(u64),
    /// The coordinator is killed, and started again after this time with what it had written down.
    KillCoordinator(Duration),
    /// A worker's host is cut off from all others for so long.
    CutOff(u64, Duration),
    /// Only the worker and the coordinator do not reach each other for so long.
    CutControl(u64, Duration),
    /// What the worker says reaches nobody for so long; it hears the others.
    Mute(u64, Duration),
    /// The coordinator is cut off from all workers for so long.
    CutCoordinator(Duration),
    /// For so long, of 1,000 datagrams so many are lost, and so many doubled.
    Storm(Duration, u64, u64),
    /// A worker does nothing for so long; its network answers.
    Freeze(u64, Duration),
    /// One more worker comes.
    Grow,
    /// An operator drains a worker.
    Drain(u64),
}

impl Fault {
    /// What a seed draws.
    pub(super) fn draw_all(dice: &mut Dice) -> Vec<(Duration, Self)> {
        let count = 1 + dice.below(6);
        let mut at = Duration::ZERO;
        (0..count)
            .map(|_| {
                at += Duration::from_millis(300 + dice.below(6_000));
                (at, Self::draw(dice))
            })
            .collect()
    }

    fn draw(dice: &mut Dice) -> Self {
        let who = dice.below(64);
        // Less than a link's patience, more than the silence that counts as death, and more than the idle timeout.
        let millis = dice.pick(&[300, 2_000, 6_000, 14_000]).unwrap_or(300);
        let while_ = Duration::from_millis(millis + dice.below(millis));
        match dice.below(12) {
            0..=2 => Self::KillWorker(who),
            3 => Self::KillCoordinator(while_),
            4 => Self::CutOff(who, while_),
            5 => Self::CutControl(who, while_),
            6 => Self::Mute(who, while_),
            7 => Self::CutCoordinator(while_),
            8 => Self::Storm(while_, 50 + dice.below(250), dice.below(100)),
            9 => Self::Freeze(who, while_),
            10 => Self::Grow,
            _ => Self::Drain(who),
        }
    }
}
