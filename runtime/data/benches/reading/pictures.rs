//! Pictures of 128 x 128 pixels in folders. The decoder alone makes pixels of a file's bytes, red, green and blue by turns.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};

use image::{Rgb, RgbImage};
use sardana_data::formats::image_folder::ImageFolder;

use crate::Failed;
use crate::timed::{Case, Size, noise};

pub(crate) fn jpeg(place: &Path, size: Size) -> Result<(), Failed> {
    compare("image_folder/jpeg", place, "jpg", size)
}

pub(crate) fn png(place: &Path, size: Size) -> Result<(), Failed> {
    compare("image_folder/png", place, "png", size)
}

fn compare(name: &str, place: &Path, ending: &str, size: Size) -> Result<(), Failed> {
    for number in 0..size.pictures {
        let class = place.join(["ant", "bee"][number as usize % 2]);
        fs::create_dir_all(&class)?;
        picture(number).save(class.join(format!("{number:05}.{ending}")))?;
    }
    let data = ImageFolder::open(place)?;
    let files: Vec<PathBuf> = data.files().collect();
    let bytes = files.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?;
    let samples = files.len() as u64;
    let case = Case {
        name,
        files: &files,
        samples,
        size,
    };
    case.compare(
        || case.get_all(&data),
        || {
            for index in case.order() {
                black_box(image::load_from_memory(&bytes[index as usize])?.into_rgb8());
            }
            Ok(())
        },
    )
}

/// Smooth, with some noise, as photographs are.
fn picture(number: u32) -> RgbImage {
    let grain = noise(128 * 128, number.into());
    RgbImage::from_fn(128, 128, |x, y| {
        let grain = u32::from(grain[(y * 128 + x) as usize] % 8);
        let channel = |slope: u32| ((x * slope / 2 + y + number * 7) % 240 + grain) as u8;
        Rgb([channel(1), channel(2), channel(3)])
    })
}
