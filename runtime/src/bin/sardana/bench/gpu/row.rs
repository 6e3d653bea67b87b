//! What was measured of one thing, and what it is compared with: as text and as JSON.

use serde_json::{Value, json};

use super::super::{sizes, times};

/// One thing that is measured, or why it is not.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) found: Result<Figure, String>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    /// Read and written, hashed, or copied, each time; none where it is not bytes that take the time.
    pub(super) bytes: Option<u64>,
    pub(super) seconds: f64,
    pub(super) beside: Beside,
    /// What there is to know besides.
    pub(super) of: Option<String>,
}

/// What a figure is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Beside {
    Nothing,
    /// How fast something else moves bytes.
    Rate {
        what: &'static str,
        /// Bytes a second.
        rate: f64,
        /// The part of it that is aimed at.
        goal: Option<f64>,
    },
    /// How long something else takes.
    Time {
        what: &'static str,
        seconds: f64,
    },
}

pub(super) const HEAD: &str = "what                          bytes       time      GB/s  of limit   goal";

impl Row {
    pub(super) const fn new(what: &'static str, figure: Figure) -> Self {
        Self { what, found: Ok(figure) }
    }

    pub(super) const fn missing(what: &'static str, why: String) -> Self {
        Self { what, found: Err(why) }
    }

    pub(super) fn line(&self) -> String {
        match &self.found {
            Ok(figure) => format!("{:<24}{}", self.what, figure.words()),
            Err(why) => format!("{:<24}{:>11}  {why}", self.what, "missing"),
        }
    }

    pub(super) fn json(&self) -> Value {
        let mut row = match &self.found {
            Ok(figure) => figure.json(),
            Err(why) => json!({ "missing": why }),
        };
        row["what"] = self.what.into();
        row
    }
}

impl Figure {
    /// So many bytes were moved, which is compared with nothing.
    pub(super) const fn moved(bytes: u64, seconds: f64) -> Self {
        Self {
            bytes: Some(bytes),
            seconds,
            beside: Beside::Nothing,
            of: None,
        }
    }

    pub(super) fn beside(self, beside: Beside) -> Self {
        Self { beside, ..self }
    }

    /// Bytes a second; no number where there are no bytes.
    pub(super) fn bytes_per_second(&self) -> f64 {
        self.bytes.map_or(f64::NAN, |bytes| bytes as f64 / self.seconds)
    }

    /// Bytes a second. A figure that is compared with a time has none: it is waited, and nothing moved.
    fn rate(&self) -> Option<f64> {
        match self.beside {
            Beside::Nothing | Beside::Rate { .. } => self.bytes.map(|_| self.bytes_per_second()),
            Beside::Time { .. } => None,
        }
    }

    fn of_limit(&self) -> Option<f64> {
        match self.beside {
            Beside::Rate { rate, .. } => self.rate().map(|own| own / rate),
            Beside::Nothing | Beside::Time { .. } => None,
        }
    }

    /// How many times as long it takes as what it is compared with.
    fn times(&self) -> Option<f64> {
        match self.beside {
            Beside::Time { seconds, .. } => Some(self.seconds / seconds),
            Beside::Nothing | Beside::Rate { .. } => None,
        }
    }

    fn words(&self) -> String {
        let bytes = self.bytes.map(sizes::words).unwrap_or_default();
        let rate = self.rate().map(|rate| format!("{:.2}", rate / 1e9)).unwrap_or_default();
        let mut words = format!("{bytes:>11}{:>11}{rate:>10}", times::words(self.seconds));
        match self.beside {
            Beside::Nothing => {}
            Beside::Rate { what, goal, .. } => {
                let part = self.of_limit().unwrap_or(f64::NAN);
                let (aim, below) = goal.map_or((String::new(), ""), |goal| {
                    (format!("{goal:.2}"), if part < goal { "  below it" } else { "" })
                });
                words += &format!("{part:>10.2}{aim:>7}  of {what}{below}");
            }
            Beside::Time { what, seconds } => {
                let part = self.times().unwrap_or(f64::NAN);
                words += &format!("{part:>10.2}{:>7}  times {what} ({})", "", times::words(seconds));
            }
        }
        if let Some(of) = &self.of {
            words += &format!("  {of}");
        }
        // Columns may be empty at the end.
        words.trim_end().to_owned()
    }

    fn json(&self) -> Value {
        let (limit, goal, time) = match self.beside {
            Beside::Nothing => (None, None, None),
            Beside::Rate { what, rate, goal } => (Some(json!({ "what": what, "bytes_per_second": rate })), goal, None),
            Beside::Time { what, seconds } => (None, None, Some(json!({ "what": what, "seconds": seconds }))),
        };
        json!({
            "bytes": self.bytes,
            "seconds": self.seconds,
            "bytes_per_second": self.rate(),
            "limit": limit,
            "of_limit": self.of_limit(),
            "goal": goal,
            "beside": time,
            "times": self.times(),
            "of": self.of,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_compared_with_its_limit_and_a_goal_that_is_missed_is_said() {
        let figure = |seconds| {
            Figure::moved(2_000_000_000, seconds).beside(Beside::Rate {
                what: "a copy",
                rate: 5e9,
                goal: Some(0.85),
            })
        };
        let row = Row::new("pack", figure(0.5));
        let json = row.json();
        assert_eq!((&json["bytes_per_second"], &json["of_limit"]), (&json!(4e9), &json!(0.8)));
        assert_eq!((&json["what"], &json["goal"]), (&json!("pack"), &json!(0.85)));
        assert!(row.line().ends_with("0.80   0.85  of a copy  below it"), "{}", row.line());
        let faster = Row::new("pack", figure(0.4)).line();
        assert!(faster.ends_with("1.00   0.85  of a copy"), "{faster}");
        let alone = Row::new("pack", figure(0.4).beside(Beside::Nothing));
        assert_eq!(
            (&alone.json()["of_limit"], &alone.json()["limit"]),
            (&Value::Null, &Value::Null)
        );
        let column = HEAD.find("GB/s").map(|at| at + 4);
        assert_eq!(Some(alone.line().len()), column, "{}", alone.line());
    }

    #[test]
    fn a_wait_is_compared_with_a_time_and_has_no_rate() {
        let figure = Figure::moved(1 << 30, 0.01).beside(Beside::Time {
            what: "copies up and down",
            seconds: 0.04,
        });
        let of = Some("of 2 ranks".to_owned());
        let row = Row::new("exposed", Figure { of, ..figure });
        let json = row.json();
        assert_eq!((&json["bytes_per_second"], &json["of_limit"]), (&Value::Null, &Value::Null));
        assert_eq!((&json["times"], &json["beside"]["seconds"]), (&json!(0.25), &json!(0.04)));
        let line = row.line();
        assert!(
            line.ends_with("0.25         times copies up and down (40.00 ms)  of 2 ranks"),
            "{line}"
        );
        let column = HEAD.find("of limit").map(|at| at + 8);
        assert_eq!(line.find("0.25").map(|at| at + 4), column, "{line}");
    }

    #[test]
    fn what_is_missing_says_why() {
        let row = Row::missing("NCCL abort", "no library".to_owned());
        assert_eq!(row.json(), json!({ "what": "NCCL abort", "missing": "no library" }));
        assert_eq!(row.line(), "NCCL abort                  missing  no library");
    }
}
