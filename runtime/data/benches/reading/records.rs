//! Formats of records: pictures of one size, and TFRecords.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::BufWriter;
use std::path::Path;

use sardana_data::Image;
use sardana_data::formats::Part;
use sardana_data::formats::cifar10::{self, Cifar10};
use sardana_data::formats::mnist::{self, Mnist};
use sardana_data::formats::tfrecords::framing::Writer;
use sardana_data::formats::tfrecords::{Example, Feature, TfRecords};

use crate::Failed;
use crate::timed::{Case, Size, noise};

/// Opening reads all of it and hashes it; afterwards samples are copied from memory.
pub(crate) fn mnist(place: &Path, size: Size) -> Result<(), Failed> {
    const AREA: usize = 28 * 28;
    let images = noise(size.bytes, 1);
    let images: Vec<Vec<u8>> = images.chunks_exact(AREA).map(<[u8]>::to_vec).collect();
    let labels = vec![7; images.len()];
    mnist::write(place, Part::Train, 28, 28, &images, &labels)?;
    let data = Mnist::open(place, Part::Train)?;
    let files = data.files().map(Path::to_owned);
    let mut case = Case {
        name: "mnist/open",
        files: &files,
        samples: images.len() as u64,
        size,
    };
    drop((data, images));
    let packed = files.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?;
    case.compare(
        || {
            black_box(Mnist::open(place, Part::Train)?);
            Ok(())
        },
        || {
            for bytes in &packed {
                black_box(blake3::hash(bytes));
                black_box(bytes.clone());
            }
            Ok(())
        },
    )?;
    let data = Mnist::open(place, Part::Train)?;
    case.name = "mnist/get";
    case.compare(
        || case.get_all(&data),
        || {
            for index in case.order() {
                // After the header of the file.
                let bytes = &packed[0][16 + index as usize * AREA..][..AREA];
                black_box((Image::new(1, 28, 28, bytes.to_vec())?, packed[1][8 + index as usize]));
            }
            Ok(())
        },
    )
}

pub(crate) fn cifar10(place: &Path, size: Size) -> Result<(), Failed> {
    const AREA: usize = 3 * 32 * 32;
    let images = noise(size.bytes / cifar10::TRAIN_FILES.len(), 2);
    let images: Vec<Vec<u8>> = images.chunks_exact(AREA).map(<[u8]>::to_vec).collect();
    for name in cifar10::TRAIN_FILES {
        cifar10::write_batch(&place.join(name), &images, &vec![3; images.len()])?;
    }
    let files = cifar10::TRAIN_FILES.map(|name| place.join(name));
    let records = files.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?.concat();
    let data = Cifar10::open(place, Part::Train)?;
    let case = Case {
        name: "cifar10/get",
        files: &files,
        samples: (images.len() * files.len()) as u64,
        size,
    };
    case.compare(
        || case.get_all(&data),
        || {
            for index in case.order() {
                let record = &records[index as usize * (AREA + 1)..][..AREA + 1];
                black_box((Image::new(3, 32, 32, record[1..].to_vec())?, record[0]));
            }
            Ok(())
        },
    )
}

/// The records as they are, and as examples: a picture of 3 KiB with its label. The decoder of what is not decoded copies.
pub(crate) fn tfrecords(place: &Path, size: Size) -> Result<(), Failed> {
    const PICTURE: usize = 3 << 10;
    let file = place.join("pictures.tfrecord");
    let mut writer = Writer::new(BufWriter::new(File::create_new(&file)?));
    let mut records = Vec::new();
    for (label, picture) in (0..).zip(noise(size.bytes, 3).chunks_exact(PICTURE)) {
        let example = Example::new()
            .with("image", Feature::Bytes(vec![picture.to_vec()]))
            .with("label", Feature::Ints(vec![label % 10]));
        let record = example.encode();
        writer.write(&record)?;
        records.push(record);
    }
    writer.flush()?;
    let files = [file];
    let mut case = Case {
        name: "tfrecords/get",
        files: &files,
        samples: records.len() as u64,
        size,
    };
    let data = TfRecords::open(files.clone())?;
    case.compare(
        || case.get_all(&data),
        || {
            case.order().for_each(|index| {
                black_box(records[index as usize].clone());
            });
            Ok(())
        },
    )?;
    let data = data.examples();
    case.name = "tfrecords/examples";
    case.compare(
        || case.get_all(&data),
        || {
            for index in case.order() {
                black_box(Example::decode(&records[index as usize])?);
            }
            Ok(())
        },
    )
}
