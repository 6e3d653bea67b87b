//! Safetensors files: what is exported is what was saved, and what is imported is what was exported.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize};

use super::site::{Site, hash, state};

#[test]
fn an_exported_file_has_the_bytes_that_were_saved() {
    let site = Site::with(&[10, 20]);
    site.says(
        "export a newest --out out.safetensors",
        &["exported s20", "4 tensors", &hash(20, &state(20)).to_string()],
    );
    let bytes = fs::read(site.path("out.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.len(), 4);
    for (spec, expected) in state(20) {
        let tensor = file.tensor(&spec.name).unwrap();
        assert_eq!(tensor.data(), expected, "{}", spec.name);
        assert_eq!(tensor.shape(), spec.shape);
        assert_eq!(format!("{:?}", tensor.dtype()).to_lowercase(), spec.dtype.to_string());
        // A reader may map the file.
        let offset = tensor.data().as_ptr() as usize - bytes.as_ptr() as usize;
        assert_eq!(offset % spec.dtype.bytes(), 0, "{}", spec.name);
    }
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let texts = metadata.metadata().clone().unwrap();
    let text = |key: &str| texts[key].as_str();
    assert_eq!(
        (text("format"), text("sardana.step"), text("sardana.job")),
        ("pt", "20", "digits")
    );
    assert_eq!(text("sardana.state"), hash(20, &state(20)).to_string());
    let mode = fs::metadata(site.path("out.safetensors")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The same once more.
    site.done("export a 20 --out again.safetensors");
    assert_eq!(fs::read(site.path("again.safetensors")).unwrap(), bytes);
}

#[test]
fn a_file_that_is_there_is_not_replaced_and_a_failed_export_leaves_none() {
    let site = Site::with(&[10]);
    fs::write(site.path("mine"), "mine").unwrap();
    site.fails("export a newest --out mine", &["mine is there already", "another path"]);
    assert_eq!(fs::read(site.path("mine")).unwrap(), b"mine");
    site.fails(
        "export a newest --out no/where",
        &["no/where", "see whether the path is right"],
    );
    site.flip("a", &10_u64.to_le_bytes());
    site.fails(
        "export a 10 --out out",
        &[
            "s10",
            "was not exported",
            "bytes 0..8 of tensor \"count\"",
            "00000000.seg at",
            "found bytes with the hash",
        ],
    );
    let names: Vec<_> = fs::read_dir(site.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn an_exported_state_comes_back_as_it_was() {
    let site = Site::with(&[10]);
    site.done("export a newest --out out.safetensors");
    // As it is there already, nothing is added.
    let before = site.json("list a");
    site.says(
        "import a out.safetensors --like 10",
        &["imported out.safetensors as s10", "as it was exported"],
    );
    assert_eq!(site.json("list a")["pieces"], before["pieces"]);
    site.says(
        "import b out.safetensors --like newest --like-dir a",
        &["imported out.safetensors as s10", "as it was exported"],
    );
    site.done("verify b");
    let (old, new) = (site.json("show a newest"), site.json("show b newest"));
    for same in [
        "step",
        "state",
        "pieces",
        "tensors",
        "job",
        "fingerprint",
        "run",
        "snapshot",
        "replicas",
    ] {
        assert_eq!(old[same], new[same], "{same}");
    }
    assert_ne!(old["depots"], new["depots"]);
    site.done("export b newest --out back.safetensors");
    let read = |name: &str| fs::read(site.path(name)).unwrap();
    let (one, other) = (read("out.safetensors"), read("back.safetensors"));
    let (one, other) = (
        SafeTensors::deserialize(&one).unwrap(),
        SafeTensors::deserialize(&other).unwrap(),
    );
    one.iter()
        .for_each(|(name, tensor)| assert_eq!(other.tensor(name).unwrap(), tensor));
}

/// A file of another program, with the tensors of a state, some of them exchanged.
fn write(site: &Site, name: &str, step: u64, change: impl Fn(&str, &mut Dtype, &mut Vec<usize>) -> bool) {
    let tensors = state(step);
    let mut views = Vec::new();
    for (spec, bytes) in &tensors {
        let mut dtype = match spec.dtype.bytes() {
            4 => Dtype::F32,
            _ if spec.name == "count" => Dtype::U64,
            _ => Dtype::F64,
        };
        let mut shape = spec.shape.clone();
        if change(&spec.name, &mut dtype, &mut shape) {
            views.push((spec.name.clone(), TensorView::new(dtype, shape, bytes).unwrap()));
        }
    }
    fs::write(site.path(name), serialize(views, None).unwrap()).unwrap();
}

#[test]
fn a_state_of_another_program_is_a_checkpoint_of_the_step_that_is_given() {
    let site = Site::with(&[10]);
    write(&site, "other", 31, |_, _, _| true);
    site.fails("import a other --like newest", &["does not say of which step", "--step"]);
    site.fails(
        "import a other --like newest --step 10",
        &["expected a step of which there is no checkpoint here", "s10", "--like-dir"],
    );
    site.says(
        "import a other --like newest --step 31",
        &["as s31", &hash(31, &state(31)).to_string()],
    );
    let shown = site.json("show a newest");
    assert_eq!(shown["snapshot"], "g2.5@s31");
    assert_eq!(shown["depots"], serde_json::json!([site.depot("a").to_string()]));
    site.done("verify a");
}

#[test]
fn tensors_that_differ_are_named() {
    let site = Site::with(&[10]);
    write(&site, "fewer", 10, |name, _, _| name != "mean");
    site.fails(
        "import a fewer --like newest --step 11",
        &["1 differences", "\"mean\" is missing", "same names, dtypes and shapes"],
    );
    write(&site, "shape", 10, |name, dtype, shape| {
        if name == "mean" {
            *shape = vec![1, 3];
        }
        if name == "count" {
            *dtype = Dtype::I64;
        }
        true
    });
    site.fails(
        "import a shape --like newest --step 11",
        &[
            "2 differences",
            "\"mean\": expected f64[3, 1], found f64[1, 3]",
            "\"count\": expected u64[], found i64[]",
        ],
    );
    let views = [("one".to_owned(), TensorView::new(Dtype::U8, vec![1], &[1]).unwrap())];
    fs::write(site.path("else"), serialize(views, None).unwrap()).unwrap();
    site.fails(
        "import a else --like newest --step 11",
        &["5 differences", "\"one\" is one too many"],
    );
    assert_eq!(site.json("list a")["checkpoints"].as_array().unwrap().len(), 1);
}

#[test]
fn files_of_other_kinds_are_refused() {
    let site = Site::with(&[10]);
    site.done("export a newest --out whole");
    let whole = fs::read(site.path("whole")).unwrap();
    let cases: [(&str, Vec<u8>, &str); 6] = [
        ("empty", Vec::new(), "0 bytes"),
        ("text", b"this is a text, not tensors".to_vec(), "a header that would have"),
        ("cut", whole[..whole.len() - 1].to_vec(), "it was cut, or grew"),
        ("long", [&whole[..], &[0]].concat(), "it was cut, or grew"),
        (
            "head",
            [&u64::MAX.to_le_bytes()[..], &whole[8..]].concat(),
            "a header that would have",
        ),
        (
            "json",
            [&8_u64.to_le_bytes()[..], b"{\"a\": 1}"].concat(),
            "a header that makes no sense",
        ),
    ];
    for (name, bytes, words) in cases {
        fs::write(site.path(name), bytes).unwrap();
        site.fails(
            &format!("import a {name} --like newest"),
            &[name, "expected a safetensors file", words],
        );
    }
    site.fails(
        "import a nowhere --like newest",
        &["nowhere", "see whether the path is right"],
    );
    site.fails("import a a --like newest", &["something that is no file"]);
    site.fails("import a whole --like 99", &["\"99\""]);
}
