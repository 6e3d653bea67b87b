//! How long it takes a coordinator to form a generation of many workers, from the loss of one member until all others are ready.
//!
//! The members are control connections with certificates of their own, all in this process and on one host; they answer what they are
//! told and make no links, so that what is measured is the coordinator, its messages and QUIC, with both ends' share of the processors.
//! The machine alone is measured beside it: the same messages, without a network. There more members can be present than a generation
//! takes (`MAX_WORKERS`); the others wait.
//!
//! `cargo bench -p sardana-actors --bench forming [-- MEMBERS...]`; 10, 100 and 1,000 unless told otherwise.

#[path = "forming/machine.rs"]
mod machine;
#[path = "forming/members.rs"]
mod members;

use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Losses of one run. Medians are printed.
const LOSSES: usize = 5;

/// Members of the largest machine alone.
const LARGEST: u32 = 10_000;

/// What one forming has cost.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    took: Duration,
    /// Of that, inside the machine; all of it, if there is nothing else.
    deciding: Duration,
    /// Of that, making bytes of the coordinator's messages, one after the other.
    encoding: Duration,
    /// Messages in both directions.
    messages: u64,
    /// Their payloads.
    bytes: u64,
}

fn print(name: &str, members: u32, costs: &mut [Cost]) {
    costs.sort_by_key(|cost| cost.took);
    let Some(cost) = costs.get(costs.len() / 2) else { return };
    let each = |total: u64| total as f64 / f64::from(members);
    let longest = costs.last().map_or(Duration::ZERO, |cost| cost.took);
    println!(
        "forming/{name}/{members}: {:.2?} in the median, {longest:.2?} at most, of {}; {:.2} messages and {:.0} bytes a member",
        cost.took,
        costs.len(),
        each(cost.messages),
        each(cost.bytes)
    );
    if cost.encoding > Duration::ZERO {
        println!("  the machine {:.2?}, encoding {:.2?}", cost.deciding, cost.encoding);
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let benchmark = arguments.iter().any(|argument| argument == "--bench");
    let given = arguments.iter().filter(|argument| !argument.starts_with("--"));
    let mut sizes = given
        .map(|given| given.parse())
        .collect::<std::result::Result<Vec<u32>, _>>()?;
    if sizes.is_empty() {
        // Tests of all targets run this as well; then it only has to work.
        sizes = if benchmark { vec![10, 100, 1_000] } else { vec![10] };
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for &members in &sizes {
        print("machine alone", members, &mut machine::measure(members, LOSSES)?);
    }
    if benchmark {
        print("machine alone", LARGEST, &mut machine::measure(LARGEST, LOSSES)?);
    }
    for &members in &sizes {
        let mut costs = runtime.block_on(members::measure(members, LOSSES))?;
        print("connections", members, &mut costs);
    }
    Ok(())
}
