//! `kill -9` in the middle.

use crate::child::{Committing, require};
use crate::random::{Random, rounds};

#[test]
fn what_was_acknowledged_survives_a_kill_at_any_moment() {
    let place = tempfile::tempdir().unwrap();
    let mut random = Random::new(1);
    let (mut folder, mut commits) = (place.path().join("0"), 0);
    for round in 0..rounds("SARDANA_CATALOGUE_KILLS", 25) {
        if round % 8 == 7 {
            (folder, commits) = (place.path().join(round.to_string()), 0);
        }
        let mut child = Committing::start(&folder, commits);
        // Now and then while it is opening.
        child.wait(random.below(25).saturating_sub(3));
        let acknowledged = child.kill();
        if folder.exists() {
            commits = require(&folder, acknowledged);
        }
    }
    assert!(commits > 0);
}
