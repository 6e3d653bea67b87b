//! What one stream carries over a path with a long round trip, beside what the path could, where its ends are told of the round trip and where
//! not, and what the same machinery carries without the round trip: whether a window, or what is lost, holds it back. The path is a
//! proxy on this host; both ends and the proxy share its processors. `congestion` measures the same in virtual time, and other controllers.
//!
//! `cargo bench -p sardana-chaos-tests --bench far [-- [ROUND_TRIP_MS [MBIT_PER_SECOND [MIB]]] [--loss-percent 1] [--queue-percent 25]]`; 100 ms,
//! 1,000 Mbit/s, 256 MiB, no loss and a queue of 100 ms unless told otherwise.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use sardana_net::quic::Reach;

#[path = "far/path.rs"]
mod path;
#[path = "far/stream.rs"]
mod stream;
#[path = "far/told.rs"]
mod told;
#[path = "far/way.rs"]
mod way;

use path::Path;
use told::Told;

#[derive(Parser)]
struct Arguments {
    #[arg(default_value_t = 100)]
    round_trip_ms: u64,
    #[arg(default_value_t = 1_000)]
    mbit_per_second: u64,
    mib: Option<u64>,
    #[command(flatten)]
    told: Told,
    /// Cargo says so.
    #[arg(long)]
    bench: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mbit = arguments.mbit_per_second;
    // Tests of all targets run this as well; then it only has to work.
    let mib = arguments.mib.unwrap_or(if arguments.bench { 256 } else { 1 });
    let bytes = usize::try_from(mib << 20)?;
    let most = mbit as f64 * 125_000.0 / f64::from(1 << 20);
    // An endpoint at all addresses of its host treats its peers as processes of other hosts.
    let local = IpAddr::from(Ipv4Addr::UNSPECIFIED);
    let far = Duration::from_millis(arguments.round_trip_ms);
    let near = Reach::default();
    let told = Reach::of(far).context("expected a round trip of at most 100 ms")?;
    for (round_trip, reach, as_what) in [(Duration::ZERO, near, "near"), (far, near, "near"), (far, told, "far")] {
        let [there, back] = [false, true].map(|back| arguments.told.way(round_trip, mbit, back));
        let mut path = None;
        let carried = stream::bandwidth(bytes, (local, reach), |to| {
            let between = Path::begin(to, there, back)?;
            let address = between.address();
            path = Some(between);
            Ok(address)
        })?;
        let (crowded, lost) = path.map_or((0, 0), |path| (path.crowded(), path.lost()));
        println!(
            "far/{} ms, told that it is {as_what}/{mbit} Mbit/s: {mib} MiB at {carried:.1} MiB/s, {:.2} of the path's {most:.1}; {crowded} datagrams found no room, {lost} were lost",
            round_trip.as_millis(),
            carried / most
        );
    }
    Ok(())
}
