//! How long it takes NCCL to end a communicator in which a rank has died, and to make the next generation's: with a process for each GPU, of which one is killed while the
//! others wait for it in a sum. NCCL takes no two ranks on one GPU, so that on a machine with one there is one rank, and none dies.

#[cfg(feature = "nccl")]
use super::ranks;
use super::row::Row;

/// The rows' names.
const ROWS: [&str; 2] = ["NCCL abort", "NCCL next generation"];

/// What is measured, or why it is not.
#[cfg(feature = "nccl")]
pub(super) fn renewed() -> [Row; 2] {
    match ranks::measured() {
        Ok(figures) => {
            let mut figures = figures.into_iter();
            ROWS.map(|what| Row::new(what, figures.next().expect("there are as many")))
        }
        Err(why) => ROWS.map(|what| Row::missing(what, why.clone())),
    }
}

/// What is measured, or why it is not.
#[cfg(not(feature = "nccl"))]
pub(super) fn renewed() -> [Row; 2] {
    let why = "expected a program with the feature `nccl`, found one without: build it with `--features nccl`, which needs no NCCL";
    ROWS.map(|what| Row::missing(what, why.to_owned()))
}
