//! `sardana checkpoints list`: what is there.

use clap::Args;
use sardana::checkpoints::{Completeness, Entry, Listing, short_id};
use sardana::operator::{columns, count, plain};
use serde_json::{Value, json};

use super::Source;
use super::words::{ago, hosts, size};
use crate::ending::Failure;

/// List the checkpoints of a directory or a mirror, the oldest first.
///
/// What is wrong is told as far as it can be seen without reading everything; see `verify`. OWN is what only this checkpoint needs on this
/// disk, SHARED what others need as well. COPIES says on how many hosts each of its pieces is, of those
/// that it was placed on, and on how many it should be if there were fewer hosts than that.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana checkpoints list DIR\n  \
    sardana checkpoints list s3://bucket/job\n  \
    sardana checkpoints list DIR --json | jq '.checkpoints[-1].step'\n\n\
    Exit codes: 0 listed, 1 the directory cannot be used, 2 wrong usage.")]
pub(super) struct List {
    #[command(flatten)]
    source: Source,
    /// Print it as JSON, for programs.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        let listing = self.source.open()?.list()?;
        if self.json {
            println!("{}", as_json(&listing));
        } else {
            print!("{}", as_text(&listing));
        }
        Ok(())
    }
}

fn as_text(listing: &Listing) -> String {
    const COLUMNS: [&str; 9] = ["STEP", "ID", "STATE", "PIECES", "OWN", "SHARED", "AGE", "COPIES", ""];
    let rows = listing.entries.iter().map(|entry| {
        let manifest = entry.manifest.as_ref();
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            entry.key.step.to_string(),
            short_id(entry.key),
            or_dash(manifest.map(|manifest| size(manifest.bytes))),
            or_dash(manifest.map(|manifest| manifest.pieces.len().to_string())),
            size(entry.own_bytes),
            size(entry.shared_bytes),
            ago(entry.committed),
            hosts(entry),
            plain(&entry.completeness.to_string()),
        ]
    });
    let rows: Vec<_> = std::iter::once(COLUMNS.map(str::to_owned)).chain(rows).collect();
    let usage = listing.usage;
    let total = format!(
        "{}; {} of {} in {} of {}\n",
        count(listing.entries.len() as u64, "checkpoint"),
        count(usage.pieces, "piece"),
        size(usage.piece_bytes),
        count(usage.segments, "file"),
        size(usage.segment_bytes),
    );
    if listing.entries.is_empty() {
        total
    } else {
        columns(&rows) + &total
    }
}

fn as_json(listing: &Listing) -> Value {
    json!({
        "checkpoints": listing.entries.iter().map(entry).collect::<Vec<_>>(),
        "pieces": listing.usage.pieces,
        "piece_bytes": listing.usage.piece_bytes,
        "files": listing.usage.segments,
        "file_bytes": listing.usage.segment_bytes,
    })
}

fn entry(entry: &Entry) -> Value {
    let manifest = entry.manifest.as_ref();
    let age = entry.committed.and_then(|then| then.elapsed().ok());
    json!({
        "step": entry.key.step.get(),
        "id": entry.key.id.to_string(),
        "bytes": manifest.map(|manifest| manifest.bytes),
        "pieces": manifest.map(|manifest| manifest.pieces.len()),
        "own_bytes": entry.own_bytes,
        "shared_bytes": entry.shared_bytes,
        "age_seconds": age.map(|age| age.as_secs()),
        "replicas": manifest.map(|manifest| manifest.replicas),
        "depots": manifest.map(|manifest| manifest.depots.iter().map(ToString::to_string).collect::<Vec<_>>()),
        "standing": word_for(&entry.completeness),
        "reason": (entry.completeness != Completeness::Whole).then(|| entry.completeness.to_string()),
    })
}

/// One word for programs.
pub(super) fn word_for(completeness: &Completeness) -> &'static str {
    match completeness {
        Completeness::Whole => "whole",
        Completeness::Spread { .. } => "spread",
        Completeness::Harmed(_) => "harmed",
    }
}
