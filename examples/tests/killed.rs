//! Jobs of the examples in real processes: killed again and again, lost as a whole, resumed with other numbers of workers and threads, and
//! refused on other data. The state that each ends in is that of the plain loop.

mod processes;

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;

use processes::{Job, Run};
use sardana::data::formats::{Part, cifar10, mnist};
use sardana::device::DeviceChoice;
use sardana_examples::{chars, cifar, diabetes, mnist as digits};

/// An image of so many bytes, in one of ten patterns.
fn image(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at * (number % 10 + 1)) % 251) as u8).collect()
}

/// A label for each of so many images.
fn labels(count: usize) -> Vec<u8> {
    (0..count).map(|number| (number % 10) as u8).collect()
}

/// Writes made-up images of 28 × 28 pixels; the label of one of them is given.
fn write_mnist(folder: &Path, training: usize, label: u8) {
    for (part, count) in [(Part::Train, training), (Part::Test, 20)] {
        let images: Vec<_> = (0..count).map(|number| image(number, 28 * 28)).collect();
        let mut labels = labels(count);
        labels[17] = label;
        mnist::write(folder, part, 28, 28, &images, &labels).expect("a set is written");
    }
}

/// Writes made-up photographs, so many in each file.
fn write_cifar(folder: &Path, each: usize) {
    for name in cifar10::TRAIN_FILES.iter().chain([&cifar10::TEST_FILE]) {
        let images: Vec<_> = (0..each).map(|number| image(number, 3 * 32 * 32)).collect();
        cifar10::write_batch(&folder.join(name), &images, &labels(each)).expect("a file is written");
    }
}

fn arguments(data: &Path, more: &[&str]) -> Vec<OsString> {
    let data = ["--data".into(), data.into()];
    data.into_iter().chain(more.iter().map(OsString::from)).collect()
}

#[test]
fn a_dense_network_ends_in_one_state_and_is_refused_on_other_data() {
    let folder = tempfile::tempdir().unwrap();
    let [data, other, checkpoints] = ["data", "other", "checkpoints"].map(|name| folder.path().join(name));
    let job = |data: &Path, label| {
        write_mnist(data, 400, label);
        // Many steps, since each takes only some milliseconds: a slow disk, too, has a checkpoint before the end.
        let arguments = arguments(data, &["--epochs", "50"]);
        let job = digits::Data::in_folder(data).job(50).unwrap();
        Job::new(env!("CARGO_BIN_EXE_mnist"), &arguments, &checkpoints, job)
    };
    let mut mnist = job(&data, 3);
    let three = Run {
        workers: 3,
        threads: 1,
        kills: &[1, 3],
    };
    mnist.is_lost(three, 9);
    // With another label it is another job.
    let one = Run {
        workers: 1,
        threads: 1,
        kills: &[],
    };
    let reason = job(&other, 4).fails(one);
    assert!(reason.contains("other data"), "{reason}");
    let two = Run {
        workers: 2,
        threads: 1,
        kills: &[5, 11],
    };
    mnist.ends_like_the_plain_loop(two, |spec| digits::Data::in_folder(&data).dense(spec, DeviceChoice::Cpu));
}

#[test]
fn a_convolutional_network_ends_in_one_state() {
    let folder = tempfile::tempdir().unwrap();
    let [data, checkpoints] = ["data", "checkpoints"].map(|name| folder.path().join(name));
    write_mnist(&data, 72, 3);
    let arguments = arguments(&data, &["--network", "cnn", "--epochs", "8"]);
    let job = digits::Data::in_folder(&data).job(8).unwrap();
    let mut mnist = Job::new(env!("CARGO_BIN_EXE_mnist"), &arguments, &checkpoints, job);
    let two = Run {
        workers: 2,
        threads: 1,
        kills: &[1],
    };
    mnist.is_lost(two, 4);
    let three = Run {
        workers: 3,
        threads: 2,
        kills: &[2],
    };
    mnist.ends_like_the_plain_loop(three, |spec| digits::Data::in_folder(&data).cnn(spec, DeviceChoice::Cpu));
}

#[test]
fn a_residual_network_ends_in_one_state() {
    let folder = tempfile::tempdir().unwrap();
    let [data, checkpoints] = ["data", "checkpoints"].map(|name| folder.path().join(name));
    std::fs::create_dir(&data).unwrap();
    // One step an epoch: those left over are dropped.
    write_cifar(&data, 26);
    let arguments = arguments(&data, &["--depth", "8", "--width", "2", "--epochs", "24"]);
    let job = cifar::Data::in_folder(&data).job(24).unwrap();
    let mut cifar = Job::new(env!("CARGO_BIN_EXE_cifar"), &arguments, &checkpoints, job);
    let three = Run {
        workers: 3,
        threads: 2,
        kills: &[1, 3],
    };
    cifar.is_lost(three, 4);
    let four = Run {
        workers: 4,
        threads: 1,
        kills: &[2],
    };
    cifar.ends_like_the_plain_loop(four, |spec| {
        cifar::Data::in_folder(&data).model(spec, 8, 2, DeviceChoice::Cpu)
    });
}

#[test]
fn a_transformer_ends_in_one_state() {
    let folder = tempfile::tempdir().unwrap();
    let [text, checkpoints] = ["text", "checkpoints"].map(|name| folder.path().join(name));
    // 37 stretches are trained on: a batch of 32, and one of 5, in which shards are empty.
    let words: String = (0..2_640).map(|at| char::from(b'a' + (at * at % 23) as u8)).collect();
    std::fs::write(&text, words).unwrap();
    let job = chars::Text::read(&text).unwrap().job(9).unwrap();
    let arguments = arguments(&text, &["--epochs", "9"]);
    let mut chars = Job::new(env!("CARGO_BIN_EXE_chars"), &arguments, &checkpoints, job);
    let three = Run {
        workers: 3,
        threads: 1,
        kills: &[1, 3],
    };
    chars.is_lost(three, 4);
    let two = Run {
        workers: 2,
        threads: 2,
        kills: &[2],
    };
    chars.ends_like_the_plain_loop(two, |spec| chars::Text::read(&text)?.model(spec, DeviceChoice::Cpu));
}

#[test]
fn a_linear_layer_lost_twice_ends_in_one_state() {
    let folder = tempfile::tempdir().unwrap();
    let [table, checkpoints] = ["table.csv", "checkpoints"].map(|name| folder.path().join(name));
    let mut rows = "a,b,c,target\n".to_owned();
    for row in 0..1_000 {
        let [a, b, c] = [7, 11, 13].map(|factor| row * factor % 101);
        writeln!(rows, "{a},{b},{c},{}", 2 * a - b + row % 5).unwrap();
    }
    std::fs::write(&table, rows).unwrap();
    let job = diabetes::Patients::read(&table).unwrap().job().unwrap();
    let mut diabetes = Job::new(env!("CARGO_BIN_EXE_diabetes"), &arguments(&table, &[]), &checkpoints, job);
    let three = Run {
        workers: 3,
        threads: 1,
        kills: &[1, 3],
    };
    diabetes.is_lost(three, 9);
    let two = Run {
        workers: 2,
        threads: 2,
        kills: &[4],
    };
    diabetes.is_lost(two, 60);
    let five = Run {
        workers: 5,
        threads: 1,
        kills: &[2, 5, 8],
    };
    diabetes.ends_like_the_plain_loop(five, |spec| diabetes::Patients::read(&table)?.model(spec, DeviceChoice::Cpu));
}
