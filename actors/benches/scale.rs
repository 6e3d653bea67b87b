//! What a coordinator's machine costs as workers grow in number: messages, bytes and processor time of a loss, of joining, restoring,
//! committing, all of them at once, and of idling.
//!
//! All but the last is measured over real control connections as well. The workers are their own machines, and answer in no time. More of them
//! than a generation takes (`MAX_WORKERS`) can be present; the others wait, and beat.
//!
//! `cargo bench -p sardana-actors --bench scale [-- WORKERS...]`; 100, 1,000 and 10,000 unless told otherwise.

#[path = "scale/connections.rs"]
mod connections;
#[path = "scale/crowd.rs"]
mod crowd;
#[path = "scale/job.rs"]
mod job;
#[path = "scale/phases.rs"]
mod phases;
#[path = "scale/remote.rs"]
mod remote;
#[path = "scale/worker.rs"]
mod worker;

use crowd::Result;
use phases::Phase;
use sardana_protocol::limits::MAX_WORKERS;

const PHASES: [(&str, Phase); 7] = [
    ("lose", Phase::Lose),
    ("join", Phase::Join),
    ("trickle", Phase::Trickle),
    ("restore", Phase::Restore),
    ("commit", Phase::Commit),
    ("storm", Phase::Storm),
    ("idle", Phase::Idle),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let benchmark = arguments.iter().any(|argument| argument == "--bench");
    let given = arguments.iter().filter(|argument| !argument.starts_with("--"));
    let mut sizes = given
        .map(|given| given.parse())
        .collect::<std::result::Result<Vec<u32>, _>>()?;
    if sizes.is_empty() {
        // Tests of all targets run this as well; then it only has to work.
        sizes = if benchmark { vec![100, 1_000, 10_000] } else { vec![10] };
    }
    let each = |total: u64, workers: u32| total as f64 / f64::from(workers);
    for (name, phase) in PHASES {
        for &workers in &sizes {
            let cost = phase.measure(workers)?;
            println!(
                "scale/{}/{workers}: {:.2} messages and {:.0} bytes a worker; the machine {:.2?} for {} events, {:.2?} each, {:.2?} at most; \
                 encoding {:.2?}",
                name,
                each(cost.messages, workers),
                each(cost.bytes, workers),
                cost.deciding,
                cost.events,
                cost.deciding / u32::try_from(cost.events).unwrap_or(u32::MAX).max(1),
                cost.longest,
                cost.encoding
            );
            let kinds = cost
                .kinds
                .iter()
                .map(|(kind, &total)| format!("{kind} {:.2}", each(total, workers)));
            println!("    a worker: {}", kinds.collect::<Vec<_>>().join(", "));
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // Each connection is two, and no generation takes more workers.
    for (name, phase) in PHASES {
        for &workers in sizes.iter().filter(|&&workers| workers <= MAX_WORKERS) {
            let Some(cost) = runtime.block_on(connections::measure(phase, workers))? else {
                continue;
            };
            println!(
                "scale/{name}/connections/{workers}: {:.2?}, {:.2?} of processor at both ends; {:.2} messages and {:.0} bytes a worker",
                cost.took,
                cost.processor,
                each(cost.messages, workers),
                each(cost.bytes, workers)
            );
        }
    }
    Ok(())
}
