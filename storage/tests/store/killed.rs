//! `kill -9` in the middle, and power that fails: the file system is shut down, and forgets all that was not synced.

use crate::child::{Making, Said};
use crate::power_disk::Disk;
use crate::random::{Random, rounds};

#[test]
fn what_was_committed_survives_a_kill_at_any_moment() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let mut random = Random::new(1);
    let mut said = Said::default();
    for _ in 0..rounds("SARDANA_STORE_KILLS", 12) {
        let mut child = Making::start(&folder, said);
        child.wait(random.below(14));
        said = child.kill();
        if folder.exists() {
            said.require(&folder);
        }
    }
    assert!(said.committed() > 0);
}

fn survives(kind: &str) {
    let place = tempfile::tempdir().unwrap();
    let disk = match Disk::new(place.path(), kind) {
        Ok(disk) => disk,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let mut random = Random::new(kind.len() as u64);
    let (mut name, mut said) = (String::new(), Said::default());
    let rounds = rounds("SARDANA_STORE_POWER_CUTS", 4);
    for round in 0..rounds {
        // Now and then a new one, so that its making is hit as well.
        if round % 6 == 0 {
            (name, said) = (format!("store-{round}"), Said::default());
        }
        let mounted = disk.mount().unwrap();
        let folder = disk.at.join(&name);
        let mut child = Making::start(&folder, said);
        child.wait(random.below(20));
        disk.cut_power().unwrap();
        said = child.kill();
        mounted.unmount();
        let mounted = disk.mount().unwrap();
        if said.committed() > 0 || folder.exists() {
            said.require(&folder);
        }
        mounted.unmount();
    }
    println!("power cuts on {kind}: {rounds}");
}

#[test]
fn what_was_committed_survives_a_power_cut_on_ext4() {
    survives("ext4");
}

#[test]
fn what_was_committed_survives_a_power_cut_on_xfs() {
    survives("xfs");
}
