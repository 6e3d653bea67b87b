//! What a worker finds in its environment.

use std::ffi::OsString;

pub use sardana_actors::worker::LinkChoice;

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

/// What links go through, as [`LINK_VARIABLE`] says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected `auto` or `quic` in {LINK_VARIABLE}, found {0:?}: correct it, or leave it out")]
pub struct LinkVariableError(OsString);

/// What the links of this process go through, by its environment.
///
/// # Errors
/// When [`LINK_VARIABLE`] is neither `auto` nor `quic`.
pub fn link_choice() -> Result<LinkChoice, LinkVariableError> {
    choice(std::env::var_os(LINK_VARIABLE))
}

fn choice(found: Option<OsString>) -> Result<LinkChoice, LinkVariableError> {
    match found {
        None => Ok(LinkChoice::default()),
        Some(found) if found == "auto" => Ok(LinkChoice::Auto),
        Some(found) if found == "quic" => Ok(LinkChoice::Quic),
        Some(found) => Err(LinkVariableError(found)),
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
}
