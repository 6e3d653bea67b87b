//! One thing that was looked at, as text and as JSON.

use serde_json::{Map, Value, json};

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// As it should be.
    Fine,
    /// Less than it could be.
    Limited,
    /// Not there.
    Missing,
    /// The system does not tell.
    Unknown,
}

impl State {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Limited => "limited",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) about: String,
    pub(super) state: State,
    /// In words.
    pub(super) found: String,
    pub(super) needed_for: &'static str,
    pub(super) to_do: Option<String>,
    /// As numbers and names, for programs.
    pub(super) values: Map<String, Value>,
}

impl Finding {
    pub(super) fn new(about: impl Into<String>, state: State, found: impl Into<String>, needed_for: &'static str) -> Self {
        Self {
            about: about.into(),
            state,
            found: found.into(),
            needed_for,
            to_do: None,
            values: Map::new(),
        }
    }

    pub(super) fn advising(self, to_do: impl Into<String>) -> Self {
        let to_do = Some(to_do.into());
        Self { to_do, ..self }
    }

    pub(super) fn value(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.values.insert(name.to_owned(), value.into());
        self
    }

    pub(super) fn text(&self) -> String {
        let Self {
            about,
            found,
            needed_for,
            ..
        } = self;
        let mut text = format!("{about:<20}{:<9}{found}\n", self.state.word());
        let mut also = |word: &str, words: &str| text += &format!("{:<29}{word}: {words}\n", "");
        also("for", needed_for);
        if let Some(to_do) = &self.to_do {
            also("do", to_do);
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "about": self.about,
            "state": self.state.word(),
            "found": self.found,
            "needed_for": self.needed_for,
            "to_do": self.to_do,
            "values": self.values,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_say_the_same() {
        let finding = Finding::new("open files", State::Limited, "at most 64", "links")
            .advising("ulimit -n 1024")
            .value("now", 64);
        assert_eq!(
            finding.text(),
            "open files          limited  at most 64\n                             for: links\n                             do: ulimit -n 1024\n"
        );
        assert_eq!(
            finding.json(),
            json!({
                "about": "open files", "state": "limited", "found": "at most 64", "needed_for": "links", "to_do": "ulimit -n 1024", "values": {"now": 64},
            })
        );
    }
}
