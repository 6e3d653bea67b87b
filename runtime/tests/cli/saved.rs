//! What a job has saved, as `sardana checkpoints` finds it.

use super::program::training;
use super::site::{Site, text};

#[test]
fn what_a_job_has_saved_is_its_state_and_nobody_else_has_it_open_meanwhile() {
    let site = Site::new();
    let (dir, copy) = (site.path("saved"), site.path("copy"));
    let (dir, copy) = (text(&dir), text(&copy));
    let running = training(2, &["--checkpoint-every", "20", "--keep", "last=2", "--checkpoint-dir", dir]);
    running.event("sardana::event::saved");
    running.event("sardana::event::saved");
    assert_eq!(running.warnings(), [""; 0], "a new directory is nothing to worry about");
    let words = site.failed(&["checkpoints", "list", dir], 1);
    let owner = format!("in use by process {}", running.child.id());
    assert!(words.contains(&owner) && words.contains("sardana stop"), "{words}");
    running.signal("TERM");
    let (status, out) = running.end();
    assert_eq!(status.code(), Some(0), "{out}");
    let state = out.lines().find_map(|line| line.strip_prefix("state: ")).unwrap();

    let verified = site.done(&["checkpoints", "verify", dir]);
    assert!(verified.contains(&format!("whole, state {state}")), "{verified}");
    let shown: serde_json::Value = serde_json::from_str(&site.done(&["checkpoints", "show", dir, "--json"])).unwrap();
    assert_eq!(shown["state"], state);
    assert_eq!(shown["job"]["name"], "endless");
    assert_eq!(
        shown["tensors"],
        serde_json::json!([{ "name": "w", "dtype": "f64", "shape": [1], "bytes": 8 }])
    );
    site.done(&["checkpoints", "copy", dir, copy, "all"]);
    assert!(site.done(&["checkpoints", "verify", copy]).contains(state));
}
