//! A status for programs. Ids are texts: they are too large for the numbers of many readers.

use sardana_protocol::memory::DeviceMemory;
use sardana_protocol::status::{
    AgentStatus, CheckpointsView, DepotView, JobStatus, KindView, LinkView, LinksView, Recording, WorkerView,
};
use serde_json::{Value, json as value};

use super::words::{doing, host, round_trip, sums};

/// The status as JSON. Durations are in the unit that their name ends with.
#[must_use]
pub fn json(status: &JobStatus) -> Value {
    let overview = &status.overview;
    let spec = status.spec.as_ref().map(|spec| {
        value!({
            "name": spec.name,
            "seed": spec.seed.to_string(),
            "shards": spec.shards,
            "steps": spec.steps.get(),
            "samples": spec.samples,
            "batch": spec.batch,
            "last_batch": spec.last_batch.to_string(),
            "data": spec.data.parts().iter().map(|part| value!({ "name": part.name, "hash": part.hash.to_string() })).collect::<Vec<_>>(),
            "order": spec.order.to_string(),
            "compression": spec.compression.to_string(),
        })
    });
    let sums: serde_json::Map<String, Value> = sums(status).into_iter().map(|(name, mean)| (name, value!(mean))).collect();
    value!({
        "job": status.job.to_string(),
        "spec": spec,
        "stage": overview.stage.to_string(),
        "generation": overview.generation.to_string(),
        "step": overview.step.get(),
        "steps_per_second": status.steps_per_second,
        "age_seconds": status.age.as_secs_f64(),
        "means": sums,
        "workers": overview.workers.iter().map(|view| worker(status, view)).collect::<Vec<_>>(),
        "links": links(&status.links),
        "agents": status.agents.iter().map(agent).collect::<Vec<_>>(),
        "checkpoints": overview.checkpoints.as_ref().map(checkpoints),
        "events": status
            .events
            .iter()
            .map(|(ago, words)| value!({ "seconds_ago": ago.as_secs_f64(), "words": words }))
            .collect::<Vec<_>>(),
        "recording": recording(&status.recording),
    })
}

fn recording(recording: &Recording) -> Value {
    match recording {
        Recording::Off => value!({ "state": "off" }),
        Recording::On => value!({ "state": "on" }),
        Recording::Failing { since, reason } => {
            value!({ "state": "failing", "seconds": since.as_secs_f64(), "reason": reason })
        }
    }
}

fn worker(status: &JobStatus, view: &WorkerView) -> Value {
    let (host, pid) = host(status, view.worker).unzip();
    let milliseconds = |span: std::time::Duration| span.as_secs_f64() * 1_000.0;
    value!({
        "worker": view.worker.to_string(),
        "address": view.address.to_string(),
        "rank": view.rank.map(sardana_protocol::words::Rank::get),
        "shards": view.shards.map(|shards| [shards.start(), shards.end()]),
        "ms_per_shard": view.pace.map(|pace| milliseconds(pace.each())),
        "doing": doing(view),
        "leaving": view.leaving,
        "step": view.step.get(),
        "computed": view.computed,
        "silent_ms": milliseconds(view.silent),
        "round_trip_ms": round_trip(status, view.worker).map(milliseconds),
        "host": host,
        "pid": pid.flatten(),
        "device": status.devices.iter().find(|one| one.workers.contains(&view.worker)).map(|one| &one.device),
        "gpu_memory": status.device_memory.iter().find(|(worker, _)| *worker == view.worker).map(|(_, memory)| gpu_memory(memory)),
    })
}

/// In bytes.
fn gpu_memory(memory: &DeviceMemory) -> Value {
    value!({
        "gpu": memory.gpu,
        "held": memory.held,
        "peak": memory.peak,
        "needed": memory.needed,
        "total": memory.total,
        "workers": memory.sharers,
        "pinned": memory.pinned,
    })
}

/// One line for each sender, receiver and kind, however many there are of them: the worst first.
fn links(view: &LinksView) -> Value {
    value!({
        "kinds": view.kinds.iter().map(kind).collect::<Vec<_>>(),
        "lines": view.lines.iter().map(link).collect::<Vec<_>>(),
        "unlisted_lines": view.unlisted,
        "untold_links": view.untold,
    })
}

fn kind(view: &KindView) -> Value {
    value!({
        "kind": view.kind.to_string(),
        "links": view.links,
        "sent_bytes": view.sent,
        "bytes_per_second": view.rate,
        "sent_packets": view.sent_packets,
        "lost_packets": view.lost_packets,
    })
}

fn link(view: &LinkView) -> Value {
    value!({
        "from": view.from.to_string(),
        "to": view.to.to_string(),
        "kind": view.kind.to_string(),
        "links": view.links,
        "sent_bytes": view.sent,
        "received_bytes": view.received,
        "bytes_per_second": view.rate,
        "sent_packets": view.path.map(|path| path.sent_packets),
        "lost_packets": view.path.map(|path| path.lost_packets),
        "round_trip_ms": view.path.map(|path| path.round_trip.as_secs_f64() * 1_000.0),
    })
}

fn checkpoints(view: &CheckpointsView) -> Value {
    let newest = view.newest.map(|saved| {
        value!({
            "step": saved.step.get(),
            "seconds_ago": saved.ago.as_secs_f64(),
            "hosts_placed": saved.placed,
            "hosts_whole": saved.whole,
        })
    });
    let writing = view
        .writing
        .map(|(step, since)| value!({ "step": step.get(), "seconds": since.as_secs_f64() }));
    value!({
        "newest": newest,
        "writing": writing,
        "replicas": view.replicas,
        "committed": view.committed,
        "merged": view.merged,
        "given_up": view.given_up,
        "largest_lag_steps": view.largest_lag,
        "depots": view.depots.iter().map(depot).collect::<Vec<_>>(),
    })
}

fn depot(depot: &DepotView) -> Value {
    value!({
        "depot": depot.depot.to_string(),
        "host": depot.host,
        "address": depot.address.to_string(),
        "checkpoints": depot.checkpoints,
    })
}

fn agent(agent: &AgentStatus) -> Value {
    let children = agent.children.iter();
    value!({
        "host": agent.host,
        "address": agent.address.to_string(),
        "workers": children
            .map(|(worker, pid)| value!({ "worker": worker.to_string(), "pid": pid }))
            .collect::<Vec<_>>(),
    })
}
