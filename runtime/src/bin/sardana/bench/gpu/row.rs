//! What was measured of one thing, and what it is compared with: as text and as JSON.

use serde_json::{Value, json};

use super::super::{sizes, times};

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) what: &'static str,
    /// Read and written, or hashed, each time.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) beside: Option<Beside>,
}

/// What a row is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Beside {
    pub(super) what: &'static str,
    /// Bytes a second.
    pub(super) rate: f64,
    /// The part of it that is aimed at.
    pub(super) goal: f64,
}

pub(super) const HEAD: &str = "what                          bytes       time      GB/s  of limit   goal";

impl Row {
    pub(super) fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    fn of_limit(&self) -> Option<f64> {
        self.beside.map(|beside| self.rate() / beside.rate)
    }

    pub(super) fn line(&self) -> String {
        let mut line = format!(
            "{:<24}{:>11}{:>11}{:>10.2}",
            self.what,
            sizes::words(self.bytes),
            times::words(self.seconds),
            self.rate() / 1e9
        );
        if let (Some(beside), Some(part)) = (self.beside, self.of_limit()) {
            let below = if part < beside.goal { "  below it" } else { "" };
            line += &format!("{part:>10.2}{:>7.2}  of {}{below}", beside.goal, beside.what);
        }
        line
    }

    pub(super) fn json(&self) -> Value {
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
