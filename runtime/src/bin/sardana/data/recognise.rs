//! Which formats the data at a path are of, by names and first bytes. Nothing is read here to its end.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sardana::data::DataError;
use sardana::data::formats::tfrecords::framing;
use sardana::data::formats::{Part, cifar10, image_folder, tfrecords};

use super::survey::Format;

/// As many names of what is at a path are told where nothing is recognised.
const NAMES_TOLD: usize = 8;

/// As many folders in a folder are looked into where it has no data itself.
const FOLDERS_LOOKED_INTO: usize = 20;

/// What is looked for.
const LOOKED_FOR: &str = "MNIST (`train-images-idx3-ubyte`, `t10k-labels-idx1-ubyte.gz` and their like), CIFAR-10 (`data_batch_1.bin` and \
     its like, here or in `cifar-10-batches-bin`), a folder of pictures for each class (`.jpg`, `.jpeg`, `.png`), TFRecords (`*.tfrecord`, \
     `*.tfrecords`, `name-00000-of-00010`), or files that end in `.csv`, `.npy` or `.safetensors`";

/// What is at a path.
#[derive(Debug)]
pub(super) enum Recognised {
    /// Data, one or more.
    Data(Vec<Candidate>),
    /// None.
    Nothing(Nothing),
}

/// Data of a format, by all appearances.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Which.
    pub(super) format: Format,
    /// The folder or the file that has them.
    pub(super) at: PathBuf,
}

/// What is at a path where no format is recognised.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Nothing {
    /// The first few names there.
    pub(super) names: Vec<String>,
    /// How many more there are.
    pub(super) more: usize,
    /// What is in folders there, of a known format: perhaps one of them was meant.
    pub(super) within: Vec<Candidate>,
}

impl fmt::Display for Nothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {LOOKED_FOR}; found ")?;
        let names: Vec<_> = self.names.iter().map(|name| format!("`{name}`")).collect();
        match (&names[..], self.more) {
            ([], _) => f.write_str("nothing")?,
            (names, 0) => f.write_str(&names.join(", "))?,
            (names, more) => write!(f, "{} and {more} more", names.join(", "))?,
        }
        match &self.within[..] {
            [] => f.write_str("; give the folder or the file that has the data"),
            [first, rest @ ..] => {
                write!(f, "; perhaps {} was meant, which has {}", first.at.display(), first.format)?;
                rest.iter()
                    .try_for_each(|other| write!(f, ", or {}, which has {}", other.at.display(), other.format))
            }
        }
    }
}

/// Looks at `path`.
///
/// # Errors
/// When there is nothing, or the system does not show it.
pub(super) fn at(path: &Path) -> Result<Recognised, DataError> {
    let metadata = fs::metadata(path).map_err(DataError::io(path, "look at it"))?;
    if !metadata.is_dir() {
        let found = if metadata.is_file() { file(path)? } else { None };
        return Ok(found.map_or_else(
            || Recognised::Nothing(Nothing::of([path.file_name().unwrap_or_default().to_owned()])),
            |found| Recognised::Data(vec![found]),
        ));
    }
    let listed = Listed::of(path)?;
    let found = listed.data(path)?;
    if found.is_empty() {
        return Ok(Recognised::Nothing(listed.nothing(path)));
    }
    Ok(Recognised::Data(found))
}

/// A single file, by its name or its first bytes.
fn file(path: &Path) -> Result<Option<Candidate>, DataError> {
    let name = path.file_name().unwrap_or_default();
    let by_name = by_name(name);
    if let Some(format) = by_name {
        let at = match format {
            // Other files belong to it.
            Format::Mnist(_) | Format::Cifar10(_) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                folder.unwrap_or(Path::new(".")).to_owned()
            }
            Format::ImageFolder | Format::TfRecords | Format::Csv | Format::Npy | Format::Safetensors => path.to_owned(),
        };
        return Ok(Some(Candidate { format, at }));
    }
    let mut beginning = Vec::new();
    let opened = File::open(path).map_err(DataError::io(path, "open it"))?;
    let read = opened.take(framing::HEAD_BYTES).read_to_end(&mut beginning);
    read.map_err(DataError::io(path, "read it"))?;
    let at = path.to_owned();
    Ok(by_beginning(&beginning).map(|format| Candidate { format, at }))
}

/// What files of this name are of. Pictures are nothing by themselves.
fn by_name(name: &OsStr) -> Option<Format> {
    let text = name.to_string_lossy();
    let ending = Path::new(name).extension().map(OsStr::to_ascii_lowercase);
    if let Some(part) = mnist(&text) {
        return Some(Format::Mnist(part));
    }
    if let Some(part) = cifar10(&text) {
        return Some(Format::Cifar10(part));
    }
    if tfrecords::is_named(&text) {
        return Some(Format::TfRecords);
    }
    match ending?.to_str()? {
        "csv" => Some(Format::Csv),
        "npy" => Some(Format::Npy),
        "safetensors" => Some(Format::Safetensors),
        _ => None,
    }
}

fn mnist(name: &str) -> Option<Part> {
    let is_of = |stem| {
        name.strip_prefix(stem)
            .is_some_and(|rest| rest.starts_with(['-', '.']) && rest[1..].starts_with("idx"))
    };
    match name {
        _ if is_of("train-images") || is_of("train-labels") => Some(Part::Train),
        _ if is_of("t10k-images") || is_of("t10k-labels") => Some(Part::Test),
        _ => None,
    }
}

fn cifar10(name: &str) -> Option<Part> {
    match name {
        cifar10::TEST_FILE => Some(Part::Test),
        name if cifar10::TRAIN_FILES.contains(&name) => Some(Part::Train),
        _ => None,
    }
}

/// What a file is of that begins so. Names of TFRecords are anybody's, but their first record has a checksum of its length.
fn by_beginning(beginning: &[u8]) -> Option<Format> {
    if beginning.starts_with(b"\x93NUMPY") {
        return Some(Format::Npy);
    }
    let (length, checksum) = beginning.split_first_chunk::<8>()?;
    (framing::masked_crc(length).to_le_bytes() == checksum).then_some(Format::TfRecords)
}

/// What is in a folder and not hidden, in the byte order of the names.
struct Listed {
    files: Vec<OsString>,
    folders: Vec<OsString>,
}

impl Listed {
    fn of(folder: &Path) -> Result<Self, DataError> {
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        for name in names(folder)? {
            let name = name.map_err(DataError::io(folder, "list it"))?;
            let into = if folder.join(&name).is_dir() {
                &mut folders
            } else {
                &mut files
            };
            into.push(name);
        }
        files.sort_unstable();
        folders.sort_unstable();
        Ok(Self { files, folders })
    }

    /// What data there are, each once.
    fn data(&self, folder: &Path) -> Result<Vec<Candidate>, DataError> {
        let mut found = Vec::new();
        let unpacked = folder.join(cifar10::CHILD);
        if self.folders.iter().any(|name| name == cifar10::CHILD) {
            let parts = Self::of(&unpacked)?
                .files
                .into_iter()
                .filter_map(|name| cifar10(&name.to_string_lossy()));
            found.extend(parts.map(|part| Candidate::of(Format::Cifar10(part), folder)));
        }
        for name in &self.files {
            let Some(format) = by_name(name) else { continue };
            match format {
                // All such files are one data set.
                Format::Mnist(_) | Format::Cifar10(_) | Format::TfRecords | Format::ImageFolder => {
                    found.push(Candidate::of(format, folder));
                }
                Format::Csv | Format::Npy | Format::Safetensors => found.push(Candidate::of(format, &folder.join(name))),
            }
        }
        let with_pictures = self.folders.iter().filter(|name| has_pictures(&folder.join(name))).count();
        // A folder of pictures beside other data may have nothing to do with them, unless all folders are such.
        if with_pictures > 0 && (found.is_empty() || with_pictures == self.folders.len()) {
            found.push(Candidate::of(Format::ImageFolder, folder));
        }
        // What to train on comes first, then what to test on.
        found.sort_by_key(|data| (data.format.order(), data.at.clone()));
        found.dedup();
        Ok(found)
    }

    /// What is there where it is no data.
    fn nothing(&self, folder: &Path) -> Nothing {
        let within = |name: &OsString| {
            let child = folder.join(name);
            // What cannot be listed is not recommended.
            let found = Self::of(&child).and_then(|listed| listed.data(&child));
            let first = found.unwrap_or_default().into_iter().next();
            first.map(|data| Candidate::of(data.format, &child))
        };
        let folders = self.folders.iter().map(|name| Path::new(name).join("").into_os_string());
        Nothing {
            within: self.folders.iter().take(FOLDERS_LOOKED_INTO).filter_map(within).collect(),
            ..Nothing::of(folders.chain(self.files.iter().cloned()))
        }
    }
}

impl Nothing {
    fn of(names: impl IntoIterator<Item = OsString>) -> Self {
        let mut names = names.into_iter();
        let told: Vec<_> = names.by_ref().take(NAMES_TOLD).collect();
        Self {
            names: told.iter().map(|name| name.to_string_lossy().into_owned()).collect(),
            more: names.count(),
            within: Vec::new(),
        }
    }
}

impl Candidate {
    fn of(format: Format, at: &Path) -> Self {
        let at = at.to_owned();
        Self { format, at }
    }
}

impl Format {
    /// In which order data in one folder are told.
    const fn order(self) -> u8 {
        match self {
            Self::Mnist(Part::Train) => 0,
            Self::Mnist(Part::Test) => 1,
            Self::Cifar10(Part::Train) => 2,
            Self::Cifar10(Part::Test) => 3,
            Self::ImageFolder => 4,
            Self::TfRecords => 5,
            Self::Csv => 6,
            Self::Npy => 7,
            Self::Safetensors => 8,
        }
    }
}

/// The names in a folder that are not hidden.
fn names(folder: &Path) -> Result<impl Iterator<Item = io::Result<OsString>>, DataError> {
    let listed = fs::read_dir(folder).map_err(DataError::io(folder, "list it"))?;
    let names = listed.map(|entry| entry.map(|entry| entry.file_name()));
    let is_shown = |name: &io::Result<OsString>| !name.as_ref().is_ok_and(|name| name.as_encoded_bytes().starts_with(b"."));
    Ok(names.filter(is_shown))
}

/// Whether there is a picture in the folder itself.
fn has_pictures(folder: &Path) -> bool {
    let mut names = names(folder).into_iter().flatten();
    names.any(|name| name.is_ok_and(|name| image_folder::is_picture(&name)))
}
