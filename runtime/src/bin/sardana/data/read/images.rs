//! Formats of images that have a label each.

use sardana::data::formats::Part;
use sardana::data::formats::cifar10::Cifar10;
use sardana::data::formats::image_folder::ImageFolder;
use sardana::data::formats::mnist::Mnist;
use sardana::data::{DataError, Dataset, Image};

use super::super::survey::{Contents, DataSet, Extent, Labels};
use super::{Reading, bytes};

/// One part of what is kept as MNIST is.
pub(super) fn mnist(part: Part, set: &mut DataSet, reading: &mut Reading<'_>) -> Result<(), DataError> {
    let data = Mnist::open(&set.at, part)?;
    set.bytes = Some(bytes(data.files())?);
    images(&data, set, reading, |label| label.to_string())
}

/// One part of CIFAR-10.
pub(super) fn cifar10(part: Part, set: &mut DataSet, reading: &mut Reading<'_>) -> Result<(), DataError> {
    let data = Cifar10::open(&set.at, part)?;
    set.bytes = Some(bytes(data.files())?);
    images(&data, set, reading, |label| label.to_string())
}

/// A folder of pictures for each class.
pub(super) fn folder(set: &mut DataSet, reading: &mut Reading<'_>) -> Result<(), DataError> {
    let data = ImageFolder::open(&set.at)?;
    set.bytes = Some(bytes(data.files())?);
    let name = |label: i64| {
        let class = usize::try_from(label).ok().and_then(|label| data.classes().get(label));
        class.map_or_else(|| label.to_string(), |class| class.to_string_lossy().into_owned())
    };
    images(&data, set, reading, name)
}

/// Reads all of them.
fn images(
    data: &impl Dataset<Item = (Image, u32)>,
    set: &mut DataSet,
    reading: &mut Reading<'_>,
    name: impl Fn(i64) -> String,
) -> Result<(), DataError> {
    let (mut extent, mut labels) = (None, Labels::default());
    let read = reading.each(data, set, |(image, label)| {
        extent = Some(Extent::with(extent, &image));
        labels.count(label.into());
    });
    set.contents = extent.map_or(Contents::Unknown, Contents::Images);
    set.labels = Some(labels.named(name));
    read
}
