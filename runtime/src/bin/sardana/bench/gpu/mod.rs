//! `sardana bench gpu`: how fast this machine's GPU moves bytes as a job does, beside what it could do at most.

#[cfg(feature = "cuda")]
mod measured;
#[cfg(feature = "cuda")]
mod staged;

use clap::Args;
use serde_json::{Value, json};

use super::sizes;
use crate::ending::Failure;

/// Measure the kernels of this machine's first GPU, and copies between it and the host
///
/// Gradients of SIZE bytes of f32 are packed from many tensors, summed in order, divided, applied by AdamW and hashed, each by the kernel that
/// jobs use, and timed by the GPU's own clock: the median of five times. Each counts the bytes that it reads and writes, and is compared with a copy
/// within the GPU's memory, measured in the same run, which counts both, too. Copies up and down are from and to pinned memory of the host. The
/// last row is a running sum that comes up in chunks, has a gradient added to it there, and goes down again, as at the last of several workers; it is
/// compared with copies of the same bytes, first up and then down.
///
/// The program needs the feature `cuda`, and builds without CUDA.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  \
    sardana bench gpu\n  \
    sardana bench gpu --size 256MiB --json | jq '.rows[] | [.what, .of_limit]'"
)]
pub(super) struct Gpu {
    /// Bytes of a gradient; the GPU has room for four, and the host for three.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = sizes::size)]
    size: u64,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    what: &'static str,
    /// Read and written, or hashed, each time.
    bytes: u64,
    seconds: f64,
    beside: Option<Beside>,
}

/// What a row is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Beside {
    what: &'static str,
    /// Bytes a second.
    rate: f64,
    /// The part of it that is aimed at.
    goal: f64,
}

const HEAD: &str = "what                          bytes       time      GB/s  of limit   goal";

impl Row {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    fn of_limit(&self) -> Option<f64> {
        self.beside.map(|beside| self.rate() / beside.rate)
    }

    fn line(&self) -> String {
        let mut line = format!(
            "{:<24}{:>11}{:>11}{:>10.2}",
            self.what,
            sizes::words(self.bytes),
            super::times::words(self.seconds),
            self.rate() / 1e9
        );
        if let (Some(beside), Some(part)) = (self.beside, self.of_limit()) {
            let below = if part < beside.goal { "  below it" } else { "" };
            line += &format!("{part:>10.2}{:>7.2}  of {}{below}", beside.goal, beside.what);
        }
        line
    }

    fn json(&self) -> Value {
        json!({
            "what": self.what,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "bytes_per_second": self.rate(),
            "limit": self.beside.map(|beside| json!({ "what": beside.what, "bytes_per_second": beside.rate })),
            "of_limit": self.of_limit(),
            "goal": self.beside.map(|beside| beside.goal),
        })
    }
}

impl Gpu {
    #[cfg(feature = "cuda")]
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        use super::progress::Progress;

        let progress = Progress::new();
        let machine = measured::Machine::new(self.size).map_err(Failure::failed)?;
        let (title, mut rows) = (machine.title(), Vec::new());
        if !self.json {
            progress.print(&format!("{title}, gradients of {}\n{HEAD}", sizes::words(self.size)));
        }
        let mut took = |row: Row| {
            if !self.json {
                progress.print(&row.line());
            }
            rows.push(row);
        };
        machine
            .measure(|what| progress.say(what), &mut took)
            .map_err(Failure::failed)?;
        drop(progress);
        if self.json {
            let rows: Vec<_> = rows.iter().map(Row::json).collect();
            println!("{}", json!({ "device": title, "size": self.size, "rows": rows }));
        }
        Ok(())
    }

    #[cfg(not(feature = "cuda"))]
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        Err(Failure::Failed(format!(
            "expected a program that can compute on a GPU, to measure {} there{}, found one that was built without: \
             cargo build --release -p sardana --bin sardana --features cuda",
            sizes::words(self.size),
            if self.json { " and print JSON" } else { "" },
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_compared_with_its_limit_and_a_goal_that_is_missed_is_said() {
        let row = Row {
            what: "pack",
            bytes: 2_000_000_000,
            seconds: 0.5,
            beside: Some(Beside {
                what: "a copy",
                rate: 5e9,
                goal: 0.85,
            }),
        };
        assert_eq!((row.rate(), row.of_limit()), (4e9, Some(0.8)));
        let json = row.json();
        assert_eq!((&json["of_limit"], &json["goal"]), (&json!(0.8), &json!(0.85)));
        assert!(row.line().ends_with("0.80   0.85  of a copy  below it"), "{}", row.line());
        let faster = Row { seconds: 0.4, ..row };
        assert!(faster.line().ends_with("1.00   0.85  of a copy"), "{}", faster.line());
        let alone = Row { beside: None, ..faster };
        assert_eq!((alone.of_limit(), &alone.json()["limit"]), (None, &Value::Null));
        let column = HEAD.find("GB/s").map(|at| at + 4);
        assert_eq!(Some(alone.line().len()), column, "{}", alone.line());
    }
}
