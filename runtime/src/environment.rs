//! What a worker finds in its environment.

use std::ffi::OsString;

pub use sardana_actors::worker::LinkChoice;

/// Workers of one host share its processors: libraries that start a thread for each would disturb each other.
pub(crate) fn threads(workers: u32) -> Vec<(OsString, OsString)> {
    const VARIABLE: &str = "RAYON_NUM_THREADS";
    if std::env::var_os(VARIABLE).is_some() {
        return Vec::new();
    }
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let each = (processors / workers.max(1) as usize).max(1);
    vec![(VARIABLE.into(), each.to_string().into())]
}

/// The variable that says what links go through, for the workers that find it in their environment: [`LinkChoice`] in lower case.
pub const LINK_VARIABLE: &str = "SARDANA_LINK";

/// What links go through, as [`LINK_VARIABLE`] says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected `auto` or `quic` in {LINK_VARIABLE}, found {0:?}: correct it, or leave it out")]
pub struct LinkVariableError(OsString);

pub(crate) fn links() -> Result<LinkChoice, LinkVariableError> {
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
