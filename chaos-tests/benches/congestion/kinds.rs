//! What may decide how fast a connection sends.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Error, bail};
use quinn::congestion::{BbrConfig, CubicConfig, NewRenoConfig};
use sardana_net::environment::Congestion;

/// A congestion controller of quinn's, or what ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Controller {
    name: Name,
    /// What may be under way before anything is acknowledged; the controller's own choice if none.
    first_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Shipped,
    Cubic,
    NewReno,
    Bbr,
}

impl Controller {
    pub(crate) fn congestion(self) -> Option<Congestion> {
        Some(match self.name {
            Name::Shipped => return None,
            Name::Cubic => {
                let mut config = CubicConfig::default();
                self.first_bytes.map(|bytes| config.initial_window(bytes));
                Arc::new(config)
            }
            Name::NewReno => {
                let mut config = NewRenoConfig::default();
                self.first_bytes.map(|bytes| config.initial_window(bytes));
                Arc::new(config)
            }
            Name::Bbr => {
                let mut config = BbrConfig::default();
                self.first_bytes.map(|bytes| config.initial_window(bytes));
                Arc::new(config)
            }
        })
    }
}

impl FromStr for Controller {
    type Err = Error;

    /// A name, and a colon and KiB where its first window is not to be its own choice.
    fn from_str(said: &str) -> Result<Self, Error> {
        let (name, first) = said.split_once(':').map_or((said, None), |(name, first)| (name, Some(first)));
        let name = match name {
            "shipped" => Name::Shipped,
            "cubic" => Name::Cubic,
            "newreno" => Name::NewReno,
            "bbr" => Name::Bbr,
            other => bail!("expected shipped, cubic, newreno or bbr, found {other}"),
        };
        let first_kib = first.map(str::parse::<u64>).transpose();
        let first_kib =
            first_kib.with_context(|| format!("expected a first window in KiB after the colon, found {said}"))?;
        Ok(Self {
            name,
            first_bytes: first_kib.map(|kib| kib << 10),
        })
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.name {
            Name::Shipped => "shipped",
            Name::Cubic => "cubic",
            Name::NewReno => "newreno",
            Name::Bbr => "bbr",
        };
        match self.first_bytes {
            Some(bytes) => write!(f, "{name}:{}", bytes >> 10),
            None => f.write_str(name),
        }
    }
}
