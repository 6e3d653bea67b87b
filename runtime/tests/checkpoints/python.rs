//! Files are exchanged with the `safetensors` package for Python, where it is installed.

use std::process::Command;

use super::program::has;
use super::site::{Site, state};

/// Reads `a.safetensors`, says what is in it, and writes `b.safetensors` with a change.
const SCRIPT: &str = r#"
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
with safe_open("a.safetensors", framework="np") as file:
    meta = file.metadata()
print(meta["sardana.step"], meta["sardana.job"], meta["format"])
tensors = load_file("a.safetensors")
for name in sorted(tensors):
    tensor = tensors[name]
    print(name, tensor.dtype, tensor.shape, float(tensor.sum(dtype="float64")))
tensors["mean"] = tensors["mean"] + 1.0
save_file(tensors, "b.safetensors", metadata={"sardana.step": "21"})
"#;

#[test]
fn python_reads_what_is_exported_and_what_it_writes_is_imported() {
    let probe = Command::new("python3")
        .args(["-c", "import safetensors.numpy, numpy"])
        .output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        println!("skipped: python3 with the packages safetensors and numpy is not installed");
        return;
    }
    let site = Site::with(&[20]);
    site.done("export a newest --out a.safetensors");
    let output = Command::new("python3")
        .args(["-c", SCRIPT])
        .current_dir(site.path(""))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let weight = state(20).remove(0).1;
    let sum: f64 = weight
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
        .sum();
    has(
        &said,
        &[
            "20 digits pt",
            "count uint64 () 20.0",
            "layer.none float32 (0, 3) 0.0",
            "mean float64 (3, 1) 19.25",
            &format!("layer.weight float32 (263144,) {sum:?}"),
        ],
    );
    site.says("import a b.safetensors --like newest", &["as s21"]);
    site.done("verify a");
    site.done("export a 21 --out c.safetensors");
    let bytes = std::fs::read(site.path("c.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mean: Vec<u8> = [1.5_f64, -0.25, 21.0].iter().flat_map(|mean| mean.to_le_bytes()).collect();
    assert_eq!(file.tensor("mean").unwrap().data(), mean);
    assert_eq!(file.tensor("layer.weight").unwrap().data(), weight);
}
