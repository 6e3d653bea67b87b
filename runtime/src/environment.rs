//! What a worker finds in its environment.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

pub use sardana_actors::worker::{LinkChoice, Reach};

/// What each of `workers` workers of this host finds there besides what their job says; what a person has set stays.
pub(crate) fn of_workers(workers: u32) -> Vec<(OsString, OsString)> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let each = (processors / workers.max(1) as usize).max(1).to_string();
    let defaults = [
        // They share its processors: libraries that start a thread for each would disturb each other.
        ("RAYON_NUM_THREADS", each.as_str()),
        // Samples are made by threads that decode and let go of by the one that trains. With an arena for each thread glibc would keep up to
        // half as much memory again as they take. Other allocators do not look at it.
        ("MALLOC_ARENA_MAX", "1"),
        // Datagrams come and go by the thousand, of up to 64 KiB each: glibc would give their memory back to the kernel and ask for it again all the
        // time, which is a fifth of what an all-reduce over QUIC takes. These are the values that it finds for itself in a program that lets go of
        // large blocks often enough (32 MiB, and twice that).
        ("MALLOC_MMAP_THRESHOLD_", "33554432"),
        ("MALLOC_TRIM_THRESHOLD_", "67108864"),
    ];
    let missing = defaults.into_iter().filter(|(name, _)| std::env::var_os(name).is_none());
    missing.map(|(name, value)| (name.into(), value.into())).collect()
}

/// The variable that says what links go through, for the workers that find it in their environment: [`LinkChoice`] in lower case.
pub const LINK_VARIABLE: &str = "SARDANA_LINK";

/// The variable that says how long a round trip between the two workers that are farthest apart takes, in whole milliseconds up to 100, for the
/// workers that find it in their environment. It must be said to all. Up to 11, which is what they take it for otherwise, nothing changes; with
/// more, one transfer or link may have as much on its way as 10 Gbit/s need, and a worker that does not read holds that much more memory: six times
/// 1.4 MB for each millisecond and connection. And a loss is taken for chance where round trips do not show that packets queue: where 0.1 % is
/// lost over 100 ms, a transfer fills the path instead of a tenth of it.
pub const ROUND_TRIP_VARIABLE: &str = "SARDANA_ROUND_TRIP";

/// What the environment says of links cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkVariableError {
    /// What they go through, as [`LINK_VARIABLE`] says.
    #[error("expected `auto` or `quic` in {LINK_VARIABLE}, found {0:?}: correct it, or leave it out")]
    Choice(OsString),
    /// How far they lead, as [`ROUND_TRIP_VARIABLE`] says.
    #[error("expected whole milliseconds from 0 to 100 in {ROUND_TRIP_VARIABLE}, found {0:?}: correct it, or leave it out")]
    RoundTrip(OsString),
}

/// What the links of this process go through, and how far they lead, by its environment.
///
/// # Errors
/// When [`LINK_VARIABLE`] or [`ROUND_TRIP_VARIABLE`] says what cannot be.
pub fn links() -> Result<(LinkChoice, Reach), LinkVariableError> {
    Ok((
        choice(std::env::var_os(LINK_VARIABLE))?,
        reach(std::env::var_os(ROUND_TRIP_VARIABLE))?,
    ))
}

fn reach(found: Option<OsString>) -> Result<Reach, LinkVariableError> {
    let Some(found) = found else {
        return Ok(Reach::default());
    };
    let millis = OsStr::to_str(&found).and_then(|text| text.parse().ok());
    millis
        .and_then(|millis| Reach::of(Duration::from_millis(millis)))
        .ok_or(LinkVariableError::RoundTrip(found))
}

fn choice(found: Option<OsString>) -> Result<LinkChoice, LinkVariableError> {
    match found {
        None => Ok(LinkChoice::default()),
        Some(found) if found == "auto" => Ok(LinkChoice::Auto),
        Some(found) if found == "quic" => Ok(LinkChoice::Quic),
        Some(found) => Err(LinkVariableError::Choice(found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_chosen_by_a_word() {
        assert_eq!(choice(None), Ok(LinkChoice::Auto));
        assert_eq!(choice(Some("quic".into())), Ok(LinkChoice::Quic));
        let refused = choice(Some("QUIC".into())).unwrap_err().to_string();
        assert!(refused.contains("expected `auto` or `quic` in SARDANA_LINK"), "{refused}");
    }

    #[test]
    fn how_far_links_lead_is_said_in_milliseconds() {
        assert_eq!(reach(None), Ok(Reach::default()));
        assert_eq!(reach(Some("3".into())), Ok(Reach::default()));
        let far = reach(Some("100".into())).unwrap();
        assert!(far.stream_bytes() > 125_000_000, "{far:?}");
        for wrong in ["101", "-1", "100ms", "", "1e1", "99999999999999999999"] {
            let refused = reach(Some(wrong.into())).unwrap_err().to_string();
            assert!(refused.contains("from 0 to 100 in SARDANA_ROUND_TRIP"), "{refused}");
        }
    }
}
