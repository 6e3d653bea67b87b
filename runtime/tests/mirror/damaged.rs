//! What a mirror says is believed only as far as it was checked.

use std::fs::{self, File};

use super::objects::{flip, manifest, objects, open};
use super::program::has;
use super::site::Site;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_damaged_object_is_found_named_and_healed() {
    let site = Site::with(&[10, 20]);
    site.done("copy a @m all");
    let pack = flip(&site, "m", &20_u64.to_le_bytes());
    let pack = pack.file_name().unwrap().to_str().unwrap();
    let words = [
        "bytes 0..8 of tensor \"count\"",
        pack,
        "s10",
        "1 not",
        "1 of 2 checkpoints cannot be used",
    ];
    site.fails("verify @m", &words);
    let words = ["s20", "was not copied", pack, "bytes 0..8 of tensor \"count\""];
    site.fails("copy @m b all", &words);
    assert_eq!(site.json("list b")["checkpoints"].as_array().unwrap().len(), 1);
    // Its name and its length are right.
    site.says("copy a @m 20", &["0 objects"]);
    site.fails("verify @m", &[pack]);
    site.says("copy a @m 20 --compare", &["1 object of", "1 already there"]);
    site.done("verify @m");
    site.done("copy @m b all");
    site.done("verify b");
}

#[test]
fn an_object_of_another_length_is_seen_in_a_list_and_sent_again() {
    let site = Site::with(&[10]);
    site.done("copy a @m");
    let path = flip(&site, "m", &10_u64.to_le_bytes());
    let bytes = fs::metadata(&path).unwrap().len();
    for length in [0, bytes - 1, bytes + 1, 10 * bytes] {
        File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
        site.says("list @m", &["1 of its objects are missing or of another length"]);
        site.fails("copy @m b newest", &["none of its checkpoints can be used"]);
        site.fails("copy @m b 10", &["bytes", &format!("found {length}")]);
    }
    site.says("copy a @m", &["1 object of 1.00 MiB written"]);
    site.done("verify @m");
    fs::remove_file(&path).unwrap();
    site.fails("verify @m", &["it is not there"]);
    site.done("copy a @m");
    site.done("verify @m");
}

#[test]
fn a_damaged_manifest_is_passed_over_and_put_again() {
    let site = Site::with(&[10, 20]);
    site.done("copy a @m all");
    let path = manifest(&site, "m", 20);
    let whole = fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let long = vec![0; 128 << 20];
    for bytes in [&flipped[..], &whole[..whole.len() - 1], &[], &long] {
        fs::write(&path, bytes).unwrap();
        site.says("list @m", &["s10", "s20", "manifest"]);
        site.fails("verify @m", &["1 of 2 checkpoints cannot be used", "s10"]);
        site.says("copy @m b newest", &["copied s10"]);
        site.fails("copy @m b 20", &["s20"]);
    }
    // A manifest is its name: one of another step is none.
    fs::write(&path, fs::read(manifest(&site, "m", 10)).unwrap()).unwrap();
    site.fails("copy @m b 20", &["expected the manifest"]);
    site.done("copy a @m");
    assert_eq!(fs::read(&path).unwrap(), whole);
    site.done("verify @m");
    // What is none of ours is left alone.
    fs::write(path.with_file_name("7-00.manifest"), []).unwrap();
    site.says("list @m", &["2 checkpoints"]);
}

#[test]
fn the_newest_that_is_whole_is_brought_if_it_is_newer() {
    let site = Site::with(&[10, 20, 30, 40]);
    site.done("copy a @m all");
    let mirror = open(&site, "m");
    let bring = |name: &str| runtime().block_on(mirror.bring_newest(&site.path(name)));
    flip(&site, "m", &40_u64.to_le_bytes());
    fs::write(manifest(&site, "m", 30), b"x").unwrap();

    let brought = bring("b").unwrap();
    let passed: Vec<_> = brought.passed_over.iter().map(|(key, _)| key.step.get()).collect();
    assert_eq!(
        (brought.local, brought.key.unwrap().step.get(), passed),
        (None, 20, vec![40, 30])
    );
    has(&brought.passed_over[0].1, &["tensor \"count\"", "is not what was saved"]);
    has(&brought.passed_over[1].1, &["expected a manifest"]);
    site.done("verify b");
    assert_eq!(site.json("list b")["checkpoints"][0]["step"], 20);
    // Once more there is nothing newer that can be used.
    let again = bring("b").unwrap();
    assert_eq!(
        (again.local.unwrap().get(), again.key, again.passed_over.len()),
        (20, None, 2)
    );
    // What is newer here stays the newest.
    let newer = bring("a").unwrap();
    assert_eq!(
        (newer.local.unwrap().get(), newer.key, newer.passed_over.len()),
        (40, None, 0)
    );

    for step in [10, 20] {
        fs::write(manifest(&site, "m", step), b"x").unwrap();
    }
    let error = bring("c").unwrap_err().to_string();
    has(&error, &["none of its checkpoints can be used", "s40", "s10", "begin anew"]);
    assert_eq!(bring("b").unwrap().key, None, "there is something to go on from");
    for path in objects(&site, "m", "manifests") {
        fs::remove_file(path).unwrap();
    }
    assert_eq!(bring("c").unwrap(), sardana::checkpoints::mirror::Brought::default());
}
