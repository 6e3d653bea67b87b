//! Tables of numbers in text: rows of cells, some of which are the input and some the target.
//!
//! Cells may be quoted (RFC 4180) and may have blanks around them. Every cell of a row that is used must be a finite number as
//! [`f64::from_str`](std::str::FromStr::from_str) reads it (`1`, `-0.5`, `1e-3`); the others may be anything.

mod columns;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use csv::{ByteRecord, ErrorKind, ReaderBuilder, Trim};

use super::excerpt::excerpt;
use crate::fingerprint::Fingerprinting;
use crate::{Array, DataError, DataFingerprint, DataHash, Dataset, SampleRandom};
pub use columns::Column;
use columns::Columns;

/// What is in the lines of a table, and what a row is made of. By default: a header, commas, the last column is the target, the others are
/// the input.
#[derive(Clone, Debug)]
pub struct CsvOptions {
    header: Header,
    delimiter: u8,
    inputs: Option<Vec<Column>>,
    targets: Option<Vec<Column>>,
}

/// What the first line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Header {
    /// The names of the columns.
    Names,
    /// A row like the others.
    Row,
}

impl fmt::Display for Header {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Names => "a header and rows",
            Self::Row => "rows",
        })
    }
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            header: Header::Names,
            delimiter: b',',
            inputs: None,
            targets: None,
        }
    }
}

impl CsvOptions {
    /// The first line is a row like the others.
    #[must_use]
    pub fn without_header(self) -> Self {
        let header = Header::Row;
        Self { header, ..self }
    }

    /// What is between cells: `b';'`, `b'\t'`.
    #[must_use]
    pub fn delimiter(self, delimiter: u8) -> Self {
        Self { delimiter, ..self }
    }

    /// The columns that are the input, in this order: by name, or by number from 0. By default all that are not the target.
    #[must_use]
    pub fn inputs<C: Into<Column>>(self, columns: impl IntoIterator<Item = C>) -> Self {
        let inputs = Some(columns.into_iter().map(Into::into).collect());
        Self { inputs, ..self }
    }

    /// The columns that are the target, in this order: by name, or by number from 0. By default the last.
    #[must_use]
    pub fn targets<C: Into<Column>>(self, columns: impl IntoIterator<Item = C>) -> Self {
        let targets = Some(columns.into_iter().map(Into::into).collect());
        Self { targets, ..self }
    }
}

/// Rows of a table, held in memory. An item is the row of inputs and the row of targets.
///
/// ```no_run
/// use std::path::Path;
///
/// use sardana_data::Dataset;
/// use sardana_data::formats::csv::{Csv, CsvOptions};
///
/// # fn main() -> Result<(), sardana_data::DataError> {
/// let houses = Csv::open(Path::new("houses.csv"), &CsvOptions::default().targets(["price"]))?;
/// let iris = Csv::open(
///     Path::new("iris.csv"),
///     &CsvOptions::default().without_header().inputs(0..4).targets([4]),
/// )?;
/// assert_eq!(iris.len(), 150);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Csv {
    /// The file's name.
    name: String,
    hash: DataHash,
    /// How it is read, in words.
    reading: String,
    columns: Columns,
    rows: u64,
    inputs: Vec<f64>,
    targets: Vec<f64>,
}

impl Csv {
    /// Reads all rows of `file`.
    ///
    /// # Errors
    /// When there is no such column, or one is both input and target, or rows have different numbers of cells, or a cell that is used is
    /// missing or not a finite number. The error has line and column, and the byte at which the row begins.
    pub fn open(file: &Path, options: &CsvOptions) -> Result<Self, DataError> {
        let opened = File::open(file).map_err(DataError::io(file, "open it"))?;
        let mut reader = ReaderBuilder::new()
            .has_headers(options.header == Header::Names)
            .delimiter(options.delimiter)
            .trim(Trim::All)
            .from_reader(Hashing {
                inner: opened,
                hasher: DataHash::hasher(),
            });
        let refusal = |error| refusal(file, error);
        let names = match options.header {
            Header::Names => Some(reader.byte_headers().map_err(refusal)?.clone()),
            Header::Row => None,
        };
        let mut row = ByteRecord::new();
        let mut more = reader.read_byte_record(&mut row).map_err(refusal)?;
        let count = names.as_ref().map_or(row.len(), ByteRecord::len);
        let columns = Columns::choose(file, names.as_ref(), count, options)?;
        let (mut rows, mut inputs, mut targets) = (0, Vec::new(), Vec::new());
        while more {
            rows += 1;
            for (chosen, values) in [(&columns.inputs, &mut inputs), (&columns.targets, &mut targets)] {
                for &column in chosen {
                    values.push(number(file, &row, column, names.as_ref())?);
                }
            }
            more = reader.read_byte_record(&mut row).map_err(refusal)?;
        }
        inputs.shrink_to_fit();
        targets.shrink_to_fit();
        Ok(Self {
            name: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            // The last row is only known to be so at the end of the file: all of it is hashed.
            hash: DataHash::finish(&reader.get_ref().hasher),
            reading: format!("{columns}; {} cut at {:?}", options.header, char::from(options.delimiter)),
            columns,
            rows,
            inputs,
            targets,
        })
    }
}

impl Dataset for Csv {
    type Item = (Array<f64>, Array<f64>);

    fn len(&self) -> u64 {
        self.rows
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Self::Item, DataError> {
        let samples = self.rows;
        let row = usize::try_from(index).ok().filter(|_| index < samples);
        let row = row.ok_or(DataError::NoSample { samples, index })?;
        let of = |values: &[f64], width: usize| Array::row(values[row * width..][..width].to_vec());
        Ok((
            of(&self.inputs, self.columns.inputs.len()),
            of(&self.targets, self.columns.targets.len()),
        ))
    }

    /// The file, and how it is read.
    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        Ok(Fingerprinting::default()
            .part(&self.name, self.hash)
            .part(&self.reading, DataHash::of(self.reading.as_bytes()))
            .finish())
    }
}

/// The number in a cell.
fn number(file: &Path, row: &ByteRecord, column: usize, names: Option<&ByteRecord>) -> Result<f64, DataError> {
    let cell = row.get(column).expect("all rows have as many cells as the first");
    let parsed = str::from_utf8(cell).ok().and_then(|text| text.parse::<f64>().ok());
    if let Some(value) = parsed.filter(|value| value.is_finite()) {
        return Ok(value);
    }
    let found = match parsed {
        Some(_) => format!("`{}`, after which every weight would be NaN", excerpt(cell)),
        None if cell.is_empty() => "an empty cell; fill it in, or leave out the row or the column".to_owned(),
        None => format!("`{}`", excerpt(cell)),
    };
    let name = names
        .and_then(|names| names.get(column))
        .map(|name| format!(" (`{}`)", excerpt(name)));
    let (line, byte) = row.position().map_or((0, 0), |position| (position.line(), position.byte()));
    let expected = format!("a finite number in line {line}, column {column}{}", name.unwrap_or_default());
    Err(DataError::malformed(file, byte, expected, found))
}

fn refusal(file: &Path, error: csv::Error) -> DataError {
    let (line, byte) = error.position().map_or((0, 0), |position| (position.line(), position.byte()));
    let kind = error.into_kind();
    if let ErrorKind::Io(source) = kind {
        return DataError::io(file, "read it")(source);
    }
    if let ErrorKind::UnequalLengths { expected_len, len, .. } = kind {
        let expected = format!("{expected_len} cells in line {line}, as many as in the first");
        return DataError::malformed(file, byte, expected, format!("{len} of them"));
    }
    // None that reading bytes gives.
    DataError::malformed(file, byte, format!("a row in line {line}"), format!("{kind:?}"))
}

/// Hashes what is read through it.
struct Hashing<R> {
    inner: R,
    hasher: blake3::Hasher,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}
