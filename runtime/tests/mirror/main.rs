//! Mirrors in a folder, and in a server that speaks S3 and is not ours, as a person meets them.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod copying;
mod damaged;
mod hosts;
mod interrupted;
mod jobs;
mod moto;
mod objects;
#[path = "../cli/program.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod program;
mod pruning;
#[path = "../cli/site.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod running;
mod s3;
#[path = "../checkpoints/site.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod site;
#[path = "../cli/worker.rs"]
mod worker;
