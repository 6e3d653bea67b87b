//! What list and show say of whole checkpoints.

use super::program::has;
use super::site::{Site, WEIGHT, hash, state};

#[test]
fn a_list_says_what_each_checkpoint_needs_alone_and_with_others() {
    let site = Site::with(&[10, 20, 30]);
    let listing = site.json("list a");
    let entries = listing["checkpoints"].as_array().unwrap();
    assert_eq!(entries.len(), 3);
    // The first piece of the weight and the description are in all of them.
    for (entry, step) in entries.iter().zip([10, 20, 30]) {
        assert_eq!(entry["step"], step);
        assert_eq!(entry["standing"], "whole");
        assert_eq!(entry["pieces"], 4);
        assert_eq!(entry["bytes"], WEIGHT * 4 + 24 + 8);
        assert_eq!(entry["own_bytes"], 1_000 * 4 + 24 + 8);
        assert!(entry["shared_bytes"].as_u64().unwrap() > 1 << 20);
        assert_eq!(entry["replicas"], 1);
        assert_eq!(entry["depots"][0], site.depot("a").to_string());
        assert_eq!(entry["reason"], serde_json::Value::Null);
        assert!(entry["age_seconds"].as_u64().is_some());
    }
    assert_eq!(listing["pieces"], 2 + 3 * 3);
    site.says(
        "list a",
        &[
            "STEP",
            "SHARED",
            "s10",
            "s30",
            "1.00 MiB",
            "3.94 KiB",
            "1 of 1",
            "whole",
            "3 checkpoints; 11 pieces",
        ],
    );
}

#[test]
fn everything_that_a_checkpoint_says_is_shown() {
    let site = Site::with(&[10, 20]);
    let shown = site.json("show a newest");
    assert_eq!(shown["step"], 20);
    assert_eq!(shown["state"], hash(20, &state(20)).to_string());
    assert_eq!(shown["job"]["name"], "digits");
    assert_eq!(shown["job"]["seed"], "77");
    assert_eq!(shown["job"]["shards"], 12);
    assert_eq!(shown["snapshot"], "g2.5@s20");
    assert_eq!(shown["run"], "03".repeat(16));
    assert_eq!(shown["fingerprint"]["processor"], "x86_64 avx2");
    assert_eq!(shown["pieces"].as_array().unwrap().len(), 4);
    let tensors = shown["tensors"].as_array().unwrap();
    let names: Vec<_> = tensors.iter().map(|tensor| tensor["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["layer.weight", "layer.none", "mean", "count"]);
    assert_eq!(tensors[0]["shape"][0], WEIGHT);
    assert_eq!(tensors[0]["bytes"], WEIGHT * 4);
    assert_eq!(
        (&tensors[3]["dtype"], &tensors[3]["shape"]),
        (&"u64".into(), &serde_json::json!([]))
    );
    let text = site.says(
        "show a",
        &[
            "digits",
            "s20 of s1000",
            "77",
            "12, exact order",
            "g2.5@s20",
            "x86_64 avx2",
            "[3, 1]",
            "f64",
            "4 tensors",
            "whole",
        ],
    );
    has(
        &text,
        &[
            shown["state"].as_str().unwrap(),
            shown["fingerprint"]["program"].as_str().unwrap(),
        ],
    );
}

#[test]
fn a_checkpoint_is_named_by_its_step_or_the_beginning_of_its_id() {
    let site = Site::with(&[10, 20]);
    let id = site.json("show a 10")["id"].as_str().unwrap().to_owned();
    for name in ["s10", &id, &id[..12], &id[..6].to_uppercase()] {
        assert_eq!(site.json(&format!("show a {name}"))["id"], id.as_str(), "{name}");
    }
    site.fails("show a 11", &["\"11\"", "s20", "s10", "`newest`"]);
    site.fails(&format!("show a {}", &id[..5]), &["expected a checkpoint"]);
}

#[test]
fn two_checkpoints_of_a_step_are_told_apart_by_their_ids() {
    let site = Site::with(&[10]);
    site.save("b", &[11]);
    site.done("export b 11 --out s11.safetensors");
    // The same step in another directory, with other contents.
    site.done("import c s11.safetensors --like 10 --like-dir a --step 10");
    site.done("copy c a 10");
    let said = site.fails("show a 10", &["\"10\" may mean any of", "give more of the id"]);
    assert_eq!(said.matches("s10 (").count(), 2, "{said}");
}

#[test]
fn a_directory_without_checkpoints_says_so() {
    let site = Site::with(&[]);
    site.says("list a", &["0 checkpoints; 0 pieces"]);
    site.done("verify a");
    for line in [
        "show a",
        "show a 3",
        "export a newest --out x",
        "copy a b",
        "import a x --like newest",
    ] {
        site.fails(line, &["there are no checkpoints in it yet"]);
    }
}
