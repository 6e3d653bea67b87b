//! Bytes of any kind for everything that decodes bytes from a network or a disk: each target panics where a decoder does, and where what
//! it has read is not the same once it is written and read again.
//!
//! `cargo test` replays what is kept in `corpus`, and some thousand inputs made of it. `.ci/fuzz` looks for more, with an engine that sees
//! which ways each input takes.

mod data;
mod disk;
mod files;
mod network;
mod records;

/// What takes bytes.
pub type Target = fn(&[u8]);

/// Every target, by the name of its folder in `corpus`.
pub const TARGETS: [(&str, Target); 27] = [
    ("frames", network::frames),
    ("messages", network::messages),
    ("transfers", network::transfers),
    ("links", network::links),
    ("enrolment", network::enrolment),
    ("certificates", network::certificates),
    ("notices", network::notices),
    ("depots", files::depots),
    ("join_files", files::join_files),
    ("state_directories", files::state_directories),
    ("uses", files::uses),
    ("keyrings", files::keyrings),
    ("tallies", files::tallies),
    ("safetensors", files::safetensors),
    ("manifests", disk::manifests),
    ("catalogues", disk::catalogues),
    ("segments", disk::segments),
    ("saved_states", disk::saved_states),
    ("digits", data::digits),
    ("batches", data::batches),
    ("tables", data::tables),
    ("arrays", data::arrays),
    ("tensor_rows", data::tensor_rows),
    ("pictures", data::pictures),
    ("records", records::records),
    ("record_indexes", records::record_indexes),
    ("examples", records::examples),
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(other, _)| *other == name).map(|(_, target)| *target)
}
