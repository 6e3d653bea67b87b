//! What one stream carries over a path with a long round trip, beside what the path could, and what the same machinery carries without the
//! round trip: whether a window holds it back. The path is a proxy on this host; both ends and the proxy share its processors.
//!
//! `cargo bench -p sardana-chaos-tests --bench far [-- ROUND_TRIP_MS [MBIT_PER_SECOND [MIB]]]`; 100 ms, 1,000 Mbit/s and 256 MiB unless told
//! otherwise.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::Result;

#[path = "far/path.rs"]
mod path;
#[path = "far/stream.rs"]
mod stream;

use path::Path;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let benchmark = arguments.iter().any(|argument| argument == "--bench");
    let given = arguments.iter().filter(|argument| !argument.starts_with("--"));
    let given = given
        .map(|given| given.parse())
        .collect::<std::result::Result<Vec<u64>, _>>()?;
    let of = |index: usize, otherwise: u64| given.get(index).copied().unwrap_or(otherwise);
    let round_trip = Duration::from_millis(of(0, 100));
    // Tests of all targets run this as well; then it only has to work.
    let (mbit, mib) = (of(1, 1_000), of(2, if benchmark { 256 } else { 1 }));
    let bytes = usize::try_from(mib << 20)?;
    let most = mbit as f64 * 125_000.0 / f64::from(1 << 20);
    // An endpoint at all addresses of its host treats its peers as processes of other hosts.
    let local = IpAddr::from(Ipv4Addr::UNSPECIFIED);
    for round_trip in [Duration::ZERO, round_trip] {
        let mut path = None;
        let carried = stream::bandwidth(bytes, local, |to| {
            let between = Path::begin(to, round_trip / 2, mbit * 125_000)?;
            let address = between.address();
            path = Some(between);
            Ok(address)
        })?;
        let dropped = path.map_or(0, |path| path.dropped());
        println!(
            "far/{} ms/{mbit} Mbit/s: {mib} MiB at {carried:.1} MiB/s, {:.2} of the path's {most:.1}; {dropped} datagrams dropped",
            round_trip.as_millis(),
            carried / most
        );
    }
    Ok(())
}
