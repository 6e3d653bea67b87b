//! What a worker finds in its environment.

use std::ffi::OsString;

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
