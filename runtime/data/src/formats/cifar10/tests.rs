//! Files as others write them, and what is damaged in them.

use tempfile::TempDir;

use super::*;

/// A record by hand: a label, and planes of one byte each but for the first of the first and the last of the last.
fn record(label: u8, planes: [u8; 3]) -> Vec<u8> {
    let mut bytes = vec![label];
    planes.into_iter().for_each(|byte| bytes.extend([byte; 1_024]));
    bytes[1] = 250;
    bytes[3_072] = 251;
    bytes
}

/// A file with these bytes, in place of what to test on.
fn folder(bytes: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(TEST_FILE), bytes).unwrap();
    folder
}

fn samples(data: &Cifar10) -> Vec<(Image, u32)> {
    let random = SampleRandom::held_out(0, 0);
    (0..data.len()).map(|index| data.get(index, &random).unwrap()).collect()
}

#[test]
fn labels_and_planes_are_where_the_format_has_them() {
    let folder = folder(&[record(9, [1, 2, 3]), record(0, [4, 5, 6])].concat());
    let data = Cifar10::open(folder.path(), Part::Test).unwrap();
    let samples = samples(&data);
    assert_eq!(samples.len(), 2);
    let (image, label) = &samples[0];
    assert_eq!((image.channels(), image.height(), image.width(), *label), (3, 32, 32, 9));
    let at = |places: [usize; 6]| places.map(|place| image.bytes()[place]);
    assert_eq!(at([0, 1, 1_023, 1_024, 2_048, 3_071]), [250, 1, 1, 2, 3, 251]);
    assert_eq!(samples[1].1, 0);
    let error = data.get(2, &SampleRandom::held_out(0, 0)).unwrap_err().to_string();
    assert!(error.contains("below 2"), "{error}");
}

#[test]
fn batches_follow_each_other_wherever_the_folder_has_them() {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("cifar-10-batches-bin");
    fs::create_dir(&inner).unwrap();
    for (number, name) in TRAIN_FILES.into_iter().enumerate() {
        // Five batches of one to five records, all labelled with the number of the batch.
        let records = vec![record(number as u8, [0; 3]); number + 1];
        fs::write(inner.join(name), records.concat()).unwrap();
    }
    let data = Cifar10::open(outer.path(), Part::Train).unwrap();
    let labels: Vec<_> = samples(&data).into_iter().map(|(_, label)| label).collect();
    assert_eq!(labels, [0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4]);
    let prints = [outer.path(), &inner].map(|folder| Cifar10::open(folder, Part::Train).unwrap().fingerprint().unwrap());
    assert_eq!(prints[0], prints[1]);
    assert_eq!(prints[0].parts().len(), 5);
    fs::remove_file(inner.join("data_batch_3.bin")).unwrap();
    let error = Cifar10::open(outer.path(), Part::Train).unwrap_err().to_string();
    assert!(
        error.contains("expected `data_batch_3.bin`, here or in `cifar-10-batches-bin`"),
        "{error}"
    );
    let error = Cifar10::open(Path::new("/nowhere/at/all"), Part::Test).unwrap_err();
    assert!(matches!(error, DataError::Io { .. }), "{error}");
}

#[test]
fn what_is_written_is_what_others_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(TEST_FILE);
    let records = [record(3, [7, 8, 9]), record(4, [1, 1, 1])];
    let images = records.clone().map(|record| record[1..].to_vec());
    write_batch(&path, &images, &[3, 4]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), records.concat());
    let refusal = |images: &[Vec<u8>], labels: &[u8]| write_batch(&path, images, labels).unwrap_err().to_string();
    assert!(refusal(&images, &[3]).contains("1 labels"));
    assert!(refusal(&images, &[3, 10]).contains("label 10"));
    assert!(refusal(&[vec![0; 3_071]], &[3]).contains("3071 bytes"));
}

#[test]
fn a_file_cut_short_is_refused_or_has_fewer_samples_and_another_fingerprint() {
    let bytes = [record(9, [1, 2, 3]), record(0, [4, 5, 6])].concat();
    let whole = folder(&bytes);
    let whole = Cifar10::open(whole.path(), Part::Test).unwrap().fingerprint().unwrap();
    for end in (0..bytes.len()).filter(|end| end % 97 == 0 || end % 3_073 < 3 || end % 3_073 > 3_070) {
        let folder = folder(&bytes[..end]);
        match Cifar10::open(folder.path(), Part::Test) {
            Ok(data) => {
                assert_eq!((data.len(), end), (1, 3_073));
                assert_ne!(data.fingerprint().unwrap(), whole);
            }
            Err(DataError::Malformed { offset, .. }) => assert_eq!(offset, end as u64 / 3_073 * 3_073),
            Err(other) => panic!("cut at {end}: {other}"),
        }
    }
}

#[test]
fn a_flipped_bit_is_refused_or_makes_other_data() {
    let bytes = [record(9, [1, 2, 3]), record(0, [4, 5, 6])].concat();
    let kept = folder(&bytes);
    let whole = Cifar10::open(kept.path(), Part::Test).unwrap();
    let expected = (samples(&whole), whole.fingerprint().unwrap());
    let labels = (0..8).chain(3_073 * 8..3_074 * 8);
    for bit in labels.chain((8..bytes.len() * 8).step_by(1_009)) {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let folder = folder(&bytes);
        match Cifar10::open(folder.path(), Part::Test) {
            Ok(data) => {
                assert_ne!(samples(&data), expected.0);
                assert_ne!(data.fingerprint().unwrap(), expected.1);
            }
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains("expected a label below 10"), "bit {bit}: {message}");
                assert_eq!(bit / 8 % 3_073, 0, "{message}");
            }
        }
    }
}

#[test]
fn a_wrong_label_is_found_wherever_it_is() {
    let records: Vec<_> = (0..200)
        .map(|number| record(if number == 150 { 10 } else { 1 }, [0; 3]))
        .collect();
    let folder = folder(&records.concat());
    let error = Cifar10::open(folder.path(), Part::Test).unwrap_err().to_string();
    assert!(
        error.contains("at byte 460950: expected a label below 10, found 10"),
        "{error}"
    );
}
