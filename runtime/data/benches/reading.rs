//! What reading a data set costs, each format beside its limits measured in the same run, on one thread and from files that the system has
//! in memory already:
//! - beside a plain read of the same files, in order and a mebibyte at a time;
//! - beside the decoder alone, on bytes that lie in memory, in the order in which the samples are read: that of a training.
//!
//! And how much memory a loader takes while samples wait in it, beside the budget that it is given. Each case has a process of its own, so
//! that none finds what another has left.
//!
//! `cargo bench -p sardana-data --bench reading [-- NAME]`

#[path = "reading/arrays.rs"]
mod arrays;
#[path = "reading/memory.rs"]
mod memory;
#[path = "reading/pictures.rs"]
mod pictures;
#[path = "reading/records.rs"]
mod records;
#[path = "reading/timed.rs"]
mod timed;

use std::path::Path;

use timed::Size;

type Failed = Box<dyn std::error::Error>;

/// Writes a data set into a folder and reads it.
type Bench = fn(&Path, Size) -> Result<(), Failed>;

const FORMATS: [(&str, Bench); 8] = [
    ("mnist", records::mnist),
    ("cifar10", records::cifar10),
    ("tfrecords", records::tfrecords),
    ("npy", arrays::npy),
    ("safetensors", arrays::safetensors),
    ("csv", arrays::csv),
    ("image_folder/jpeg", pictures::jpeg),
    ("image_folder/png", pictures::png),
];

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(case) = arguments.iter().skip_while(|argument| *argument != memory::CHILD).nth(1) {
        return memory::measure(case);
    }
    // Only to run it at all: `cargo test --benches` passes no `--bench`.
    let measuring = arguments.iter().any(|argument| argument == "--bench");
    let asked: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let shows = |name: &str| asked.is_empty() || asked.iter().any(|word| name.contains(word.as_str()));
    let size = if measuring { Size::MEASURED } else { Size::TRIED };
    for (name, bench) in FORMATS.into_iter().filter(|(name, _)| shows(name)) {
        let place = tempfile::tempdir()?;
        bench(place.path(), size).map_err(|error| format!("{name}: {error}"))?;
    }
    if shows("loader") {
        memory::all(measuring)?;
    }
    Ok(())
}
