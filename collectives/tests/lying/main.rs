//! Ranks that lie on one of their links, or leave it: whatever the plan, the link and the rank, the one that is lied to says what was wrong and who
//! did it, all others end, gradients stay as they were, and the next generation in the same process sums as if nothing had been. A process of its own, since its
//! descriptors and its mappings are counted.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

#[expect(dead_code, reason = "other tests have more of it")]
#[path = "../rings/dance.rs"]
mod dance;
#[expect(dead_code, reason = "other tests have more of it")]
#[path = "../rings/far.rs"]
mod far;
mod lies;
#[path = "../rings/loopback.rs"]
mod loopback;
mod relay;
mod table;
#[path = "../rings/way.rs"]
mod way;
