//! The store of checkpoints, hurt: cut off at any operation, injured, killed, without power, without room. What was acknowledged is there,
//! or what is wrong with it is said; what was deleted does not come back.
//!
//! More rounds than usual, by the environment: `SARDANA_STORE_MODELS`, `SARDANA_STORE_CRASHES`, `SARDANA_STORE_FAULTS`, `SARDANA_STORE_INJURIES` (each from
//! `SARDANA_STORE_SEED` on), `SARDANA_STORE_KILLS`, `SARDANA_STORE_POWER_CUTS`. Power cuts and full disks need root; power cuts also
//! `xfs_io`.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod acting;
mod child;
mod crashes;
mod cutting;
#[path = "../catalogue/disk.rs"]
mod disk;
mod failing;
mod faults;
mod history;
mod index;
mod injuries;
mod killed;
mod memory;
mod model;
mod opening;
#[path = "../catalogue/power_disk.rs"]
mod power_disk;
#[path = "../catalogue/process.rs"]
mod process;
mod races;
#[path = "../catalogue/random.rs"]
mod random;
mod rewritten;
mod tombstones;
#[path = "../catalogue/wound.rs"]
mod wound;
mod wounds;
