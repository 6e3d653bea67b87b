//! Why a schedule makes no learning rate.

/// Why a schedule makes no learning rate. Correct what it names where the schedule is made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// A constant is out of its range, or not a number: correct it.
    #[error("{shape} schedule: expected {constant} to be {expected}, found {found}; correct it where the schedule is made")]
    Constant {
        /// Which kind of schedule, or its warm-up.
        shape: &'static str,
        /// The constant's name, as in [`super::Schedule::describe`].
        constant: &'static str,
        /// Its range.
        expected: &'static str,
        /// What it is.
        found: f64,
    },
    /// What should take some updates takes none: give 1 or more.
    #[error("{shape} schedule: expected {constant} to be 1 update or more, found 0; correct it where the schedule is made")]
    NoUpdates {
        /// Which kind of schedule.
        shape: &'static str,
        /// The constant's name, as in [`super::Schedule::describe`].
        constant: &'static str,
    },
    /// The table is empty: give a piece that begins at update 0.
    #[error("pieces schedule: expected a piece that begins at update 0, found none; add one")]
    NoPieces,
    /// The first updates have no rate: begin the first piece at update 0.
    #[error(
        "pieces schedule: expected the first piece to begin at update 0, found {found}; updates count from the job's beginning"
    )]
    FirstPiece {
        /// Where the first piece begins.
        found: u64,
    },
    /// A piece does not begin after the one before it: sort them, each update once.
    #[error(
        "pieces schedule: expected a piece after the one at update {before} to begin later, found update {found}; sort them"
    )]
    Order {
        /// Where the piece before it begins.
        before: u64,
        /// Where it begins.
        found: u64,
    },
}
