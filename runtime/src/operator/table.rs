//! A status as text.

use std::fmt::Write as _;

use sardana_protocol::job::JobKind;
use sardana_protocol::memory::DeviceMemory;
use sardana_protocol::status::{DeviceView, JobStatus, Recording, Stage};
use sardana_protocol::words::{WorkerId, count, few};

use super::links::{LinksShown, links};
use super::words::{COLUMNS, checkpoints, columns, depot, plain, progress, rate, rest, row, size, span, sums};

/// The last events that a table shows.
const EVENTS: usize = 10;

/// A compact table: the job, its sums, its workers in ring order, the links between them, its agents, and what happened last.
#[must_use]
pub fn table(status: &JobStatus, shown: LinksShown) -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = writeln!(text, "{}", headline(status));
    let sums = sums(status);
    if !sums.is_empty() {
        let sums: Vec<String> = sums.iter().map(|(name, mean)| format!("{name} {mean:.6}")).collect();
        let _ = writeln!(text, "a sample: {}", sums.join(", "));
    }
    let saved = status.overview.checkpoints.as_ref();
    if let Some(saved) = saved {
        let _ = writeln!(text, "{}", checkpoints(saved));
    }
    if let Recording::Failing { since, reason } = &status.recording {
        let _ = writeln!(
            text,
            "not written down for the coordinator's next life, since {}: {}",
            span(*since),
            plain(reason)
        );
    }
    text.push('\n');
    text.push_str(&workers(status));
    text.push_str(&links(status, shown));
    text.push_str(&devices(status));
    text.push_str(&gpu_memory(status));
    if !status.agents.is_empty() {
        text.push_str("\nagents\n");
    }
    for agent in &status.agents {
        let children = count(agent.children.len(), "worker");
        let _ = writeln!(text, "  {} at {}, {children}", plain(&agent.host), agent.address);
    }
    let depots = saved.map_or(&[][..], |saved| &saved.depots);
    if !depots.is_empty() {
        text.push_str("\ncheckpoint actors\n");
    }
    for one in depots {
        let _ = writeln!(text, "  {}", depot(one));
    }
    if !status.events.is_empty() {
        text.push_str("\nlast events\n");
    }
    for (ago, words) in status.events.iter().skip(status.events.len().saturating_sub(EVENTS)) {
        let _ = writeln!(text, "  {:>12} ago  {}", span(*ago), plain(words));
    }
    text
}

/// The job in one line.
pub(super) fn headline(status: &JobStatus) -> String {
    let overview = &status.overview;
    let mut line = match &status.spec {
        Some(spec) if spec.kind() == JobKind::Group => {
            let (name, job) = (plain(&spec.name), status.job);
            format!("{name} ({job}): a group, {} in {}", overview.stage, overview.generation)
        }
        Some(spec) => {
            let part = progress(status).unwrap_or(0.0) * 100.0;
            format!(
                "{} ({}): {} in {}, {} of {} ({part:.0} %), {}, {}, {} order{}",
                plain(&spec.name),
                status.job,
                overview.stage,
                overview.generation,
                overview.step,
                spec.steps,
                rate(status.steps_per_second),
                count(spec.shards, "shard"),
                spec.order,
                spec.compression.behind_order()
            )
        }
        None => format!("job {}: {}, no worker has come yet", status.job, overview.stage),
    };
    let _ = write!(line, ", up {}", span(status.age));
    if let Some(rest) = rest(status).filter(|_| overview.stage == Stage::Running) {
        let _ = write!(line, ", {} to go", span(rest));
    }
    line
}

/// What workers compute on, where it is not processors alone.
fn devices(status: &JobStatus) -> String {
    if status.devices.iter().all(|one| one.device == "cpu") {
        return String::new();
    }
    let mut text = "\ndevices\n".to_owned();
    for DeviceView { device, workers } in &status.devices {
        let _ = writeln!(
            text,
            "  {}, {}: {}",
            plain(device),
            count(workers.len(), "worker"),
            few(workers, " ")
        );
    }
    text
}

/// What workers have of GPUs' memory.
fn gpu_memory(status: &JobStatus) -> String {
    if status.device_memory.is_empty() {
        return String::new();
    }
    let head = ["worker", "GPU", "held", "at most", "of", "shared by"].map(str::to_owned);
    let row = |(worker, memory): &(WorkerId, DeviceMemory)| {
        let [held, peak, total] = [memory.held, memory.peak, memory.total].map(size);
        let sharers = if memory.sharers > 1 {
            count(memory.sharers, "worker")
        } else {
            "-".to_owned()
        };
        [worker.to_string(), plain(&memory.gpu), held, peak, total, sharers]
    };
    let rows: Vec<_> = std::iter::once(head).chain(status.device_memory.iter().map(row)).collect();
    format!("\nGPU memory\n{}", columns(&rows))
}

fn workers(status: &JobStatus) -> String {
    let head = COLUMNS.map(str::to_owned);
    let rows = status.overview.workers.iter().map(|view| row(status, view));
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    if rows.len() == 1 {
        return "no workers\n".to_owned();
    }
    columns(&rows)
}
