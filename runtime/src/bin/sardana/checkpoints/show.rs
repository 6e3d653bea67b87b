//! `sardana checkpoints show`: all that one says of itself.

use std::fmt::Write as _;

use clap::Args;
use sardana::checkpoints::{Details, TensorSpec, Wanted, Which};
use sardana::operator::{columns, count, plain};
use serde_json::{Value, json};

use super::list::word_for;
use super::words::{ago, size};
use super::{Opened, Source};
use crate::ending::Failure;

/// Show all that a checkpoint says of itself: its job, what computed it, its tensors, and the hash of its state.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana checkpoints show DIR\n  \
    sardana checkpoints show DIR 300 --json | jq .state\n\n\
    Exit codes: 0 shown, 1 there is none such or it cannot be read, 2 wrong usage.")]
pub(super) struct Show {
    #[command(flatten)]
    source: Source,
    /// The checkpoint: its step, its id or the beginning of that, or `newest`.
    #[arg(value_name = "STEP|ID|newest", default_value_t = Which::Newest)]
    which: Which,
    /// Print it as JSON, for programs.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        let details = self.details()?;
        if self.json {
            println!("{}", as_json(&details));
        } else {
            print!("{}", as_text(&details));
        }
        Ok(())
    }

    fn details(&self) -> Result<Details, Failure> {
        match self.source.open()? {
            Opened::Here(checkpoints) => {
                let key = checkpoints.find(&self.which, Wanted::Manifest).map_err(Failure::failed)?;
                checkpoints.show(key).map_err(Failure::failed)
            }
            Opened::Remote(remote) => {
                let listing = remote.wait(remote.mirror.list()).map_err(Failure::failed)?;
                let key = listing.find(&remote.path(), &self.which, Wanted::Manifest);
                remote
                    .wait(remote.mirror.show(key.map_err(Failure::failed)?))
                    .map_err(Failure::failed)
            }
        }
    }
}

fn as_text(details: &Details) -> String {
    let manifest = &details.manifest;
    let (spec, print) = (&manifest.identity.spec, &manifest.identity.fingerprint);
    let depots: Vec<String> = manifest.depots.iter().map(ToString::to_string).collect();
    let state = match &details.state {
        Ok((_, hash)) => hash.to_string(),
        Err(error) => format!("not known: {error}"),
    };
    let lines = [
        ("checkpoint", details.key.id.to_string()),
        ("step", format!("{} of {}", details.key.step, spec.steps)),
        ("state", state),
        (
            "size",
            format!("{} in {}", size(manifest.bytes), count(manifest.pieces.len() as u64, "piece")),
        ),
        ("standing", plain(&details.completeness.to_string())),
        ("age", ago(details.committed)),
        (
            "copies",
            format!("{} wanted, placed on {}", manifest.replicas, depots.join(", ")),
        ),
        ("job", plain(&spec.name)),
        ("seed", spec.seed.to_string()),
        (
            "shards",
            format!("{}, {} order{}", spec.shards, spec.order, spec.compression.behind_order()),
        ),
        (
            "data",
            format!(
                "{} samples, {} a step, last batch {}",
                spec.samples, spec.batch, spec.last_batch
            ),
        ),
        ("run", manifest.run.to_string()),
        ("snapshot", manifest.snapshot.to_string()),
        ("state zero", manifest.identity.state_zero.to_string()),
        ("task", manifest.identity.task().to_string()),
        ("program", print.program.to_string()),
        ("processor", plain(&print.processor)),
        ("device", plain(&print.device)),
        ("libraries", plain(&print.libraries)),
        ("probe", print.probe.to_string()),
    ];
    let of_data = spec
        .data
        .parts()
        .iter()
        .map(|part| format!("{} with hash {}", plain(&part.name), part.hash));
    let of_data = of_data.map(|part| ["trained on".to_owned(), part]);
    let rows: Vec<_> = lines
        .into_iter()
        .map(|(name, value)| [name.to_owned(), value])
        .chain(of_data)
        .collect();
    let mut text = columns(&rows);
    if let Ok((specs, _)) = &details.state {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "\n{}", count(specs.len() as u64, "tensor"));
        let rows: Vec<_> = specs.iter().map(row).collect();
        text.push_str(&columns(&rows));
    }
    text
}

fn row(spec: &TensorSpec) -> [String; 4] {
    let bytes = spec.bytes().unwrap_or(usize::MAX);
    [
        format!("  {}", plain(&spec.name)),
        spec.dtype.to_string(),
        format!("{:?}", spec.shape),
        size(bytes as u64),
    ]
}

fn as_json(details: &Details) -> Value {
    let manifest = &details.manifest;
    let (spec, print) = (&manifest.identity.spec, &manifest.identity.fingerprint);
    let (tensors, state) = details
        .state
        .as_ref()
        .ok()
        .map(|(specs, hash)| (specs, hash.to_string()))
        .unzip();
    let tensor = |spec: &TensorSpec| {
        json!({
            "name": spec.name,
            "dtype": spec.dtype.to_string(),
            "shape": spec.shape,
            "bytes": spec.bytes(),
        })
    };
    json!({
        "id": details.key.id.to_string(),
        "step": details.key.step.get(),
        "state": state,
        "bytes": manifest.bytes,
        "pieces": manifest.pieces.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "standing": word_for(&details.completeness),
        "replicas": manifest.replicas,
        "depots": manifest.depots.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "run": manifest.run.to_string(),
        "snapshot": manifest.snapshot.to_string(),
        "job": {
            "name": spec.name,
            "seed": spec.seed.to_string(),
            "shards": spec.shards,
            "steps": spec.steps.get(),
            "samples": spec.samples,
            "batch": spec.batch,
            "last_batch": spec.last_batch.to_string(),
            "data": spec.data.parts().iter().map(|part| json!({ "name": part.name, "hash": part.hash.to_string() })).collect::<Vec<_>>(),
            "order": spec.order.to_string(),
            "compression": spec.compression.to_string(),
            "state_zero": manifest.identity.state_zero.to_string(),
            "task": manifest.identity.task().to_string(),
        },
        "fingerprint": {
            "program": print.program.to_string(),
            "tensors": print.tensors.to_string(),
            "processor": print.processor,
            "device": print.device,
            "libraries": print.libraries,
            "probe": print.probe.to_string(),
        },
        "tensors": tensors.map(|specs| specs.iter().map(tensor).collect::<Vec<_>>()),
    })
}
