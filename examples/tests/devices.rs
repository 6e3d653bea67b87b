//! What examples say to `--device`: those in plain Rust compute on processors and refuse a GPU on any machine, those of candle compute on what there is.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::path::Path;
use std::process::{Command, Output};

use sardana::data::formats::{Part, mnist};

const EMBED: &str = env!("CARGO_BIN_EXE_embed");
const LINEAR_REGRESSION: &str = env!("CARGO_BIN_EXE_linear_regression");
const TOUR: &str = env!("CARGO_BIN_EXE_tour");
const NETWORK: &str = env!("CARGO_BIN_EXE_network");

/// All that compute by candle, but the one that the README shows.
const NETWORKS: [&str; 5] = [
    env!("CARGO_BIN_EXE_mnist"),
    env!("CARGO_BIN_EXE_cifar"),
    env!("CARGO_BIN_EXE_chars"),
    env!("CARGO_BIN_EXE_diabetes"),
    env!("CARGO_BIN_EXE_digits"),
];

/// A run in this folder, where no GPU is to be seen.
fn run(program: &str, folder: &Path, arguments: &[&str], device: Option<&str>) -> Output {
    let mut run = Command::new(program);
    run.args(arguments).current_dir(folder);
    run.env("CUDA_VISIBLE_DEVICES", "").env_remove("SARDANA_DEVICE");
    run.envs(device.map(|device| ("SARDANA_DEVICE", device))).output().unwrap()
}

/// The line with the state that it ends in.
fn state(program: &str, folder: &Path, arguments: &[&str]) -> String {
    let ended = run(program, folder, arguments, None);
    let [out, err] = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(ended.status.success(), "{program} {arguments:?}: {out}{err}");
    let line = out.lines().find(|line| line.contains("state "));
    line.unwrap_or_else(|| panic!("{program} {arguments:?}: {out}")).to_owned()
}

/// What it says when it refuses.
fn refused(program: &str, folder: &Path, arguments: &[&str], device: Option<&str>) -> String {
    let ended = run(program, folder, arguments, device);
    let words = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        !ended.status.success() && ended.stdout.is_empty(),
        "{program} {arguments:?} {device:?}: {ended:?}"
    );
    words
}

#[test]
fn a_model_in_plain_rust_trains_on_processors_and_refuses_a_gpu() {
    let here = Path::new(".");
    for program in [EMBED, LINEAR_REGRESSION] {
        let usual = state(program, here, &[]);
        for device in ["auto", "cpu"] {
            assert_eq!(state(program, here, &["--device", device]), usual, "{program}");
        }
        for (arguments, variable) in [
            (&["--device", "cuda"][..], None),
            (&["--device=cuda:1"], None),
            (&[], Some("cuda")),
        ] {
            let words = refused(program, here, arguments, variable);
            assert!(
                words.contains("expected `auto` or `cpu`, since this program computes on processors alone")
                    && words.contains("cuda_mlp")
                    && words.contains("`--device cpu`"),
                "{program} {arguments:?}: {words}"
            );
        }
        // What is said on the spot counts more.
        assert!(
            run(program, here, &["--device", "cpu"], Some("cuda")).status.success(),
            "{program}"
        );
        let words = refused(program, here, &["--device", "gpu"], None);
        assert!(
            words.contains("expected `auto`, `cpu`, `cuda` or `cuda:N`"),
            "{program}: {words}"
        );
    }
}

#[test]
fn the_tour_says_what_a_gpu_would_take() {
    let words = refused_by("cuda", &run(TOUR, Path::new("."), &["--device", "cuda"], None));
    assert_eq!(words, refused_by("cuda", &run(TOUR, Path::new("."), &[], Some("cuda"))));
}

/// Without a driver, or built without what computes on a GPU. A list of GPUs does not say that one can be used.
#[test]
fn each_network_refuses_a_gpu_that_it_cannot_use_before_it_does_anything_else() {
    let folder = tempfile::tempdir().unwrap();
    for program in NETWORKS {
        let mut run = Command::new(program);
        run.args(["--device", "cuda"]).current_dir(folder.path());
        let ended = run
            .env("CUDA_VISIBLE_DEVICES", "GPU-none")
            .env_remove("SARDANA_DEVICE")
            .output()
            .unwrap();
        let words = refused_by("cuda", &ended);
        assert!(
            words.contains("expected a ") && words.contains(", found "),
            "{program}: {words}"
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{program}");
    }
}

/// What a program says of a device that is not there.
fn refused_by(device: &str, ended: &Output) -> String {
    let words = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        !ended.status.success() && words.contains(device) && words.contains("--device cpu"),
        "{words}"
    );
    words
}

#[test]
fn a_network_of_candle_trains_on_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("mnist");
    std::fs::create_dir(&data).unwrap();
    for (part, count) in [(Part::Train, 130_u8), (Part::Test, 10)] {
        let images: Vec<Vec<u8>> = (0..count).map(|number| vec![number; 28 * 28]).collect();
        let labels: Vec<u8> = (0..count).map(|number| number % 10).collect();
        mnist::write(&data, part, 28, 28, &images, &labels).unwrap();
    }
    let usual = state(NETWORK, folder.path(), &[]);
    for device in ["auto", "cpu"] {
        assert_eq!(state(NETWORK, folder.path(), &["--device", device]), usual);
    }
    let words = refused(NETWORK, folder.path(), &["--device", "cuda"], None);
    assert!(
        words.contains("expected a GPU for `--device cuda`, found") && words.contains("`--device cpu`"),
        "{words}"
    );
    let words = refused(NETWORK, folder.path(), &["--device", "gpu"], None);
    assert!(words.contains("behind --device, found \"gpu\""), "{words}");
}
