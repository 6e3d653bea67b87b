//! The power fails: the file system is shut down in the middle, and forgets all that was not synced. `kill -9` cannot show
//! this, since the system's memory survives it.

use crate::child::{Committing, require};
use crate::power_disk::Disk;
use crate::random::{Random, rounds};

fn survives(kind: &str) {
    let place = tempfile::tempdir().unwrap();
    let disk = match Disk::new(place.path(), kind) {
        Ok(disk) => disk,
        Err(reason) => {
            println!("skipped: {reason}");
            return;
        }
    };
    let mut random = Random::new(kind.len() as u64);
    let (mut name, mut commits) = (String::new(), 0);
    let rounds = rounds("SARDANA_CATALOGUE_POWER_CUTS", 4);
    for round in 0..rounds {
        // Now and then a new one, so that its making is hit as well.
        if round % 5 == 0 {
            (name, commits) = (format!("catalogue-{round}"), 0);
        }
        let mounted = disk.mount().unwrap();
        let folder = disk.at.join(&name);
        let mut child = Committing::start(&folder, commits);
        // Now and then while it is opening.
        child.wait(random.below(40).saturating_sub(3));
        disk.cut_power().unwrap();
        let acknowledged = child.kill();
        mounted.unmount();
        let mounted = disk.mount().unwrap();
        if acknowledged > 0 || folder.exists() {
            commits = require(&folder, acknowledged);
        }
        mounted.unmount();
    }
    println!("power cuts on {kind}: {rounds}");
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_on_ext4() {
    survives("ext4");
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_on_xfs() {
    survives("xfs");
}
