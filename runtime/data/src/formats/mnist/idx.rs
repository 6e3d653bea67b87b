//! The idx format: unsigned bytes in N dimensions. A magic number, the size of each dimension (all big-endian, 4 bytes each), the values.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::{DataError, DataHash};

/// Where the first size is, which is how many images or labels there are.
pub(super) const COUNT_AT: u64 = 4;

/// The first two bytes are 0, the third says unsigned bytes, the fourth is the number of dimensions.
const UNSIGNED_BYTES: u32 = 0x0800;

/// What a packed file may unpack to: twice the largest that is published (EMNIST by class, 547 MB). A larger one is refused until it is
/// unpacked, since what is packed can pretend to be of any size.
const MAX_UNPACKED_BYTES: u64 = 1 << 30;

/// No packed byte unpacks to more, see "Maximum Compression Factor" at <https://zlib.net/zlib_tech.html>.
const MAX_DEFLATE_FACTOR: u64 = 1_032;

/// A file of unsigned bytes in N dimensions, none but the first of which is empty.
#[derive(Clone, Debug)]
pub(super) struct Idx<const N: usize> {
    pub(super) path: PathBuf,
    /// Its plain name, however it is packed and whatever is circulated.
    pub(super) name: String,
    pub(super) sizes: [usize; N],
    /// As many as the product of the sizes.
    pub(super) values: Vec<u8>,
    /// Of all of the file, unpacked.
    pub(super) hash: DataHash,
}

/// A file under way: plain, or unpacked as it is read.
struct Unpacking<'a> {
    path: &'a Path,
    reader: Box<dyn Read>,
    /// Bytes read so far.
    offset: u64,
    /// How long it may be at most; as a plain file, how long it is.
    most: u64,
    packed: bool,
}

/// Reads the file of `folder` whose name begins with `stem`.
pub(super) fn read<const N: usize>(folder: &Path, stem: &str) -> Result<Idx<N>, DataError> {
    let path = find::<N>(folder, stem)?;
    let mut file = Unpacking::open(&path)?;
    let header = file.take(4 + 4 * N as u64, "the header")?;
    let mut numbers = header
        .chunks_exact(4)
        .map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    let (magic, expected) = (numbers.next().expect("a header begins with it"), UNSIGNED_BYTES + N as u32);
    if magic != expected {
        return Err(DataError::malformed(
            &path,
            0,
            format!("the magic number {expected} of unsigned bytes in {N} dimensions"),
            magic.to_string(),
        ));
    }
    let stated: Vec<u32> = numbers.collect();
    let bytes = file.check(&stated)?;
    let values = file.take(bytes, "the values that the header states")?;
    file.end()?;
    let mut hasher = DataHash::hasher();
    hasher.update(&header).update(&values);
    Ok(Idx {
        name: name::<N>(stem),
        sizes: std::array::from_fn(|dimension| stated[dimension] as usize),
        values,
        hash: DataHash::finish(&hasher),
        path,
    })
}

/// Writes a plain file of `values` in these sizes.
pub(super) fn write<const N: usize>(folder: &Path, stem: &str, sizes: [usize; N], values: &[u8]) -> Result<(), DataError> {
    let mut bytes = (UNSIGNED_BYTES + N as u32).to_be_bytes().to_vec();
    for size in sizes {
        let size = u32::try_from(size).map_err(|_| DataError::unfit("sizes below 2^32", size.to_string()))?;
        bytes.extend(size.to_be_bytes());
    }
    bytes.extend(values);
    fs::create_dir_all(folder).map_err(DataError::io(folder, "make the folder"))?;
    let path = folder.join(name::<N>(stem));
    fs::write(&path, bytes).map_err(DataError::io(&path, "write it"))
}

fn name<const N: usize>(stem: &str) -> String {
    format!("{stem}-idx{N}-ubyte")
}

/// The file in `folder` by one of its names, the plain ones first.
fn find<const N: usize>(folder: &Path, stem: &str) -> Result<PathBuf, DataError> {
    fs::metadata(folder).map_err(DataError::io(folder, "look into it"))?;
    let plain = name::<N>(stem);
    let dotted = format!("{stem}.idx{N}-ubyte");
    for name in [plain.clone(), dotted.clone(), format!("{plain}.gz"), format!("{dotted}.gz")] {
        let path = folder.join(name);
        if path.try_exists().map_err(DataError::io(&path, "look for it"))? {
            return Ok(path);
        }
    }
    let expected = format!("`{plain}` or `{dotted}`, each plain or with `.gz`");
    Err(DataError::folder(folder, expected, "none of them"))
}

impl<'a> Unpacking<'a> {
    fn open(path: &'a Path) -> Result<Self, DataError> {
        let file = File::open(path).map_err(DataError::io(path, "open it"))?;
        let length = file.metadata().map_err(DataError::io(path, "read its length"))?.len();
        let packed = path.extension().is_some_and(|extension| extension == "gz");
        let (reader, most): (Box<dyn Read>, _) = if packed {
            let most = length.saturating_mul(MAX_DEFLATE_FACTOR).min(MAX_UNPACKED_BYTES);
            (Box::new(MultiGzDecoder::new(BufReader::new(file))), most)
        } else {
            (Box::new(file), length)
        };
        Ok(Self {
            path,
            reader,
            offset: 0,
            most,
            packed,
        })
    }

    /// How many bytes the values in dimensions of these sizes take: no more than the file can hold, so that they may be read.
    fn check(&self, sizes: &[u32]) -> Result<u64, DataError> {
        if let Some(dimension) = sizes.iter().skip(1).position(|&size| size == 0) {
            let at = COUNT_AT + 4 * (1 + dimension as u64);
            return Err(DataError::malformed(self.path, at, "rows and columns", "0 of them"));
        }
        let bytes = sizes
            .iter()
            .try_fold(1_u64, |product, &size| product.checked_mul(size.into()));
        let room = self.most.saturating_sub(self.offset);
        let fits = |&bytes: &u64| if self.packed { bytes <= room } else { bytes == room };
        bytes.filter(fits).ok_or_else(|| {
            let hint = if self.packed {
                "at most, or an unpacked file"
            } else {
                "as the file's length says"
            };
            DataError::malformed(
                self.path,
                COUNT_AT,
                format!("sizes that make {room} values {hint}"),
                format!("the sizes {sizes:?}"),
            )
        })
    }

    /// The next `bytes` bytes, which are `what`.
    fn take(&mut self, bytes: u64, what: &str) -> Result<Vec<u8>, DataError> {
        // What is plain is known to have so many.
        let mut taken = Vec::with_capacity(if self.packed { 0 } else { bytes.min(self.most) as usize });
        let outcome = self.reader.by_ref().take(bytes).read_to_end(&mut taken);
        taken.shrink_to_fit();
        self.offset += taken.len() as u64;
        match outcome {
            Err(source) => Err(self.refusal(source)),
            Ok(_) if taken.len() as u64 == bytes => Ok(taken),
            Ok(read) => Err(DataError::malformed(
                self.path,
                self.offset,
                format!("{} more bytes of {what}", bytes - read as u64),
                "the end of the file",
            )),
        }
    }

    /// Checks that nothing follows. In a packed file this is also where its checksum is compared.
    fn end(&mut self) -> Result<(), DataError> {
        match self.reader.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => {
                let expected = "the end of the file, after as many values as its header states";
                Err(DataError::malformed(self.path, self.offset, expected, "more bytes"))
            }
            Err(source) => Err(self.refusal(source)),
        }
    }

    fn refusal(&self, source: io::Error) -> DataError {
        let damage = matches!(
            source.kind(),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
        );
        if self.packed && damage {
            DataError::malformed(self.path, self.offset, "what gzip has packed", source.to_string())
        } else {
            DataError::io(self.path, "read it")(source)
        }
    }
}
