//! The catalogue, hurt: killed, injured, without power, without room. What was acknowledged is there, or an error says what
//! is not.
//!
//! More rounds than usual, by the environment: `SARDANA_CATALOGUE_INJURIES` (from `SARDANA_CATALOGUE_SEED` on),
//! `SARDANA_CATALOGUE_KILLS`, `SARDANA_CATALOGUE_POWER_CUTS`. Power cuts and full disks need root; power cuts also `xfs_io`,
//! and failing syncs `strace`.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod child;
mod disk;
mod failing;
mod history;
mod injuries;
mod injury;
mod killed;
mod model;
mod power;
mod power_disk;
mod process;
mod random;
#[expect(dead_code, reason = "shared with other tests")]
mod wound;
