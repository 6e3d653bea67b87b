//! Pictures in a folder for each class: what most people have when they have pictures.
//!
//! ```text
//! flowers/
//!   daisy/  001.jpg 002.jpg
//!   rose/   001.png
//! ```
//!
//! Classes are numbered from 0 in the byte order of the folders' names, samples in the byte order of class and file name. Pictures are files
//! that end in `.jpg`, `.jpeg` or `.png`, in any case. Hidden files and folders, and files that end otherwise, are passed over. A link
//! counts as what it leads to. Names need not be UTF-8.

mod decode;
mod resize;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fingerprint::{Fingerprinting, Known};
use crate::{DataError, DataFingerprint, DataHash, Dataset, Image, SampleRandom};

const ENDINGS: [&str; 3] = ["jpg", "jpeg", "png"];

/// Pictures by class, decoded when they are asked for. An item is an image of shape (3, height, width), red, green and blue, and the number
/// of its class.
///
/// Grey pictures are turned to colour; what is transparent is taken as if it were not, and 16 bits are rounded to 8. A turn that EXIF asks
/// for is not made.
///
/// ```no_run
/// use std::path::Path;
///
/// use sardana_data::Dataset;
/// use sardana_data::formats::image_folder::ImageFolder;
///
/// # fn main() -> Result<(), sardana_data::DataError> {
/// let flowers = ImageFolder::open(Path::new("flowers"))?.resize(128, 128);
/// let (train, validation) = flowers.split(0.2, 7)?;
/// println!("{} classes, {} pictures, {} held out", train.classes().len(), train.len(), validation.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ImageFolder {
    folder: Arc<Path>,
    classes: Arc<[OsString]>,
    pictures: Vec<Picture>,
    /// Height and width.
    size: Option<(usize, usize)>,
}

/// A file of a class.
#[derive(Clone, Debug)]
struct Picture {
    class: u32,
    name: OsString,
}

impl ImageFolder {
    /// Lists the pictures in `folder`; none is read.
    ///
    /// # Errors
    /// When the folder has no folder in it, or one of them has no picture or has another folder in it, or the system refuses.
    pub fn open(folder: &Path) -> Result<Self, DataError> {
        let (mut classes, mut pictures) = (Vec::new(), Vec::new());
        for entry in entries(folder)? {
            if is_folder(&entry)? {
                classes.push(entry.file_name());
            }
        }
        if classes.is_empty() {
            return Err(DataError::folder(folder, "a folder of pictures for each class", "no folder"));
        }
        for (class, folder) in (0..).zip(classes.iter().map(|name| folder.join(name))) {
            let before = pictures.len();
            pictures.extend(pictures_of(&folder)?.into_iter().map(|name| Picture { class, name }));
            if pictures.len() == before {
                return Err(DataError::folder(&folder, "a file that ends in .jpg, .jpeg or .png", "none"));
            }
        }
        Ok(Self {
            folder: folder.into(),
            classes: classes.into(),
            pictures,
            size: None,
        })
    }

    /// All pictures in this size; their proportions are not kept. Without it, each has its own.
    ///
    /// The values of neighbouring pixels are mixed linearly, over as many as fall into a new one: that is the bilinear filter of Pillow and
    /// of torchvision, with antialiasing. TensorFlow's `tf.image.resize` does none unless it is asked for, so pictures that get smaller look
    /// different there.
    #[must_use]
    pub fn resize(self, height: usize, width: usize) -> Self {
        let size = Some((height, width));
        Self { size, ..self }
    }

    /// What to train on, and about `fraction` of all pictures that are held out to validate with.
    ///
    /// A hash of `seed` and of the names of class and file decides on each picture alone: a picture stays where it is when others are added
    /// or taken away, and on every host. In a small folder one of the two may be empty.
    ///
    /// # Errors
    /// When the fraction is not from 0 to 1.
    pub fn split(self, fraction: f64, seed: u64) -> Result<(Self, Self), DataError> {
        if !(0.0..=1.0).contains(&fraction) {
            let expected = "a fraction from 0 to 1 of its pictures to validate with";
            return Err(DataError::folder(&self.folder, expected, fraction.to_string()));
        }
        let held_out = |picture: &Picture| draw(seed, &self.within(picture)) < fraction;
        let (validation, train) = self.pictures.iter().cloned().partition(held_out);
        let part = |pictures| Self {
            pictures,
            ..self.clone()
        };
        Ok((part(train), part(validation)))
    }

    /// The names of the classes; a label is a place in them.
    #[must_use]
    pub fn classes(&self) -> &[OsString] {
        &self.classes
    }

    /// The files of the pictures, in the order of the samples.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.pictures.iter().map(|picture| self.folder.join(self.within(picture)))
    }

    /// Where in the folder a picture is.
    fn within(&self, picture: &Picture) -> PathBuf {
        Path::new(&self.classes[picture.class as usize]).join(&picture.name)
    }
}

impl Dataset for ImageFolder {
    type Item = (Image, u32);

    fn len(&self) -> u64 {
        self.pictures.len() as u64
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Self::Item, DataError> {
        let picture = usize::try_from(index).ok().and_then(|index| self.pictures.get(index));
        let picture = picture.ok_or(DataError::NoSample {
            samples: self.len(),
            index,
        })?;
        let image = decode::read(&self.folder.join(self.within(picture)), self.size)?;
        Ok((image, picture.class))
    }

    /// The classes, each picture by its name and the hash of its file, and the size. Every file is read.
    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        let classes = DataHash::of_named(self.classes.iter().map(|name| (name.as_encoded_bytes(), DataHash::of(&[]))));
        let mut print = Fingerprinting::default().part("the classes", classes);
        let mut known = Known::of(&self.folder);
        for picture in &self.pictures {
            let within = self.within(picture);
            let hash = known.hash(&within)?;
            print = match within.to_str() {
                Some(name) => print.part(name, hash),
                None => {
                    let hash = DataHash::of_named([(within.as_os_str().as_encoded_bytes(), hash)]);
                    print.part(within.to_string_lossy(), hash)
                }
            };
        }
        known.keep();
        if let Some((height, width)) = self.size {
            let size = format!("the size {height} x {width}");
            print = print.part(&size, DataHash::of(size.as_bytes()));
        }
        Ok(print.finish())
    }
}

/// Whether a file of this name is taken for a picture. What is in it is seen when it is read.
#[must_use]
pub fn is_picture(name: &OsStr) -> bool {
    let ending = Path::new(name).extension().map(OsStr::to_ascii_lowercase);
    ending.is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
}

/// A number in [0, 1) for a picture.
fn draw(seed: u64, within: &Path) -> f64 {
    let mut hasher = blake3::Hasher::new_derive_key("sardana split of an image folder v1");
    hasher
        .update(&seed.to_le_bytes())
        .update(within.as_os_str().as_encoded_bytes());
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    (u64::from_le_bytes(first) >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// The names of the pictures in the folder of a class.
fn pictures_of(folder: &Path) -> Result<Vec<OsString>, DataError> {
    let mut names = Vec::new();
    for entry in entries(folder)? {
        let name = entry.file_name();
        if is_folder(&entry)? {
            // Pictures in it would be left out of the training without a word.
            return Err(DataError::folder(
                folder,
                "pictures, and no folder",
                format!("the folder {}", name.display()),
            ));
        }
        if is_picture(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// What is in a folder and not hidden, in the byte order of the names.
fn entries(folder: &Path) -> Result<Vec<DirEntry>, DataError> {
    let listed = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut entries = listed.map_err(DataError::io(folder, "list it"))?;
    entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    entries.sort_by_cached_key(|entry| entry.file_name().into_encoded_bytes());
    Ok(entries)
}

/// Whether it is a folder, or a link to one.
fn is_folder(entry: &DirEntry) -> Result<bool, DataError> {
    let path = entry.path();
    let kind = entry.file_type().map_err(DataError::io(&path, "look at it"))?;
    if !kind.is_symlink() {
        return Ok(kind.is_dir());
    }
    let behind = fs::metadata(&path).map_err(DataError::io(&path, "follow the link"))?;
    Ok(behind.is_dir())
}
