//! What an array in a file says of itself: a dictionary in Python's words, of three entries that are always the same.
//!
//! It is read without recursion and without anything that Python could compute; whatever else is there is refused.

use std::path::Path;

use super::super::element::Element;
use super::super::excerpt::excerpt;
use super::super::positioned::Positioned;
use crate::DataError;

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// As many as numpy itself reads of a file that it is not told to trust.
const MAX_TEXT_BYTES: u64 = 10_000;

/// What is used of a header.
pub(super) struct Header {
    pub(super) shape: Vec<u64>,
    /// Where the shape is stated.
    pub(super) shape_at: u64,
    /// How long it is: where the array begins.
    pub(super) bytes: u64,
}

/// Reads the header of an array of `T` in C order.
pub(super) fn read<T: Element>(file: &Positioned) -> Result<Header, DataError> {
    let (start, bytes) = beginning(file)?;
    let text = Text::new(file.path(), start, &bytes);
    let (shape, shape_at) = text.dictionary(|text| text.described(T::NPY, T::RUST))?;
    let bytes = start + bytes.len() as u64;
    Ok(Header { shape, shape_at, bytes })
}

/// What numpy calls the numbers of an array in C order, and where that is stated.
pub(super) fn descr(file: &Positioned) -> Result<(String, u64), DataError> {
    let (start, bytes) = beginning(file)?;
    let mut found = None;
    Text::new(file.path(), start, &bytes).dictionary(|text| {
        text.blanks();
        let at = text.offset();
        found = Some((String::from_utf8_lossy(text.string()?).into_owned(), at));
        Ok(true)
    })?;
    Ok(found.expect("a dictionary without it is refused"))
}

/// Where the text of the header begins, and that text.
fn beginning(file: &Positioned) -> Result<(u64, Vec<u8>), DataError> {
    const BEGINNING: &str = "the header of a numpy array";
    let beginning = file.read(0, 8, BEGINNING)?;
    if !beginning.starts_with(MAGIC) {
        let found = format!("`{}`", excerpt(&beginning));
        return Err(DataError::malformed(
            file.path(),
            0,
            "`\\x93NUMPY`, as numpy's arrays begin",
            found,
        ));
    }
    let length_bytes: u64 = match beginning[6..] {
        [1, 0] => 2,
        [2 | 3, 0] => 4,
        _ => {
            let expected = "version 1.0, 2.0 or 3.0 of the format";
            return Err(DataError::malformed(
                file.path(),
                6,
                expected,
                format!("{:?}", &beginning[6..]),
            ));
        }
    };
    let length = file.read(8, length_bytes, BEGINNING)?;
    let length = length.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    if length > MAX_TEXT_BYTES {
        let expected = format!("a header of at most {MAX_TEXT_BYTES} bytes");
        return Err(DataError::malformed(file.path(), 8, expected, length.to_string()));
    }
    let start = 8 + length_bytes;
    Ok((start, file.read(start, length, BEGINNING)?))
}

/// The text of a header, and how far it has been read.
struct Text<'a> {
    file: &'a Path,
    /// Where in the file the text begins.
    start: u64,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Text<'a> {
    fn new(file: &'a Path, start: u64, bytes: &'a [u8]) -> Self {
        let at = 0;
        Self { file, start, bytes, at }
    }

    /// The shape, and where it is, if the array is of a type that `take_type` takes.
    fn dictionary(
        mut self,
        mut take_type: impl FnMut(&mut Self) -> Result<bool, DataError>,
    ) -> Result<(Vec<u64>, u64), DataError> {
        let (mut described, mut ordered, mut shape) = (false, false, None);
        self.expect("{")?;
        while !self.take("}") {
            let key = self.string()?;
            self.expect(":")?;
            match key {
                b"descr" => described = take_type(&mut self)?,
                b"fortran_order" => ordered = self.ordered()?,
                b"shape" => shape = Some(self.shape()?),
                _ => return Err(self.refusal("`descr`, `fortran_order` or `shape`")),
            }
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        self.blanks();
        if self.at < self.bytes.len() {
            return Err(self.refusal("blanks up to the end of the header"));
        }
        match shape {
            Some(shape) if described && ordered => Ok(shape),
            _ => Err(self.refusal("`descr`, `fortran_order` and `shape`, each once")),
        }
    }

    /// The type of the numbers, which is one that is called `descr`.
    fn described(&mut self, descr: &str, name: &str) -> Result<bool, DataError> {
        self.blanks();
        let before = self.at;
        let expected = format!("numbers of type {name} (`{descr}`)");
        let found = self.string().ok();
        // The order of single bytes does not matter, and each writer has its own sign for it.
        let fits = found
            .is_some_and(|found| found == descr.as_bytes() || (descr == "|u1" && matches!(found, b"<u1" | b"=u1" | b"u1")));
        if fits {
            return Ok(true);
        }
        self.at = before;
        Err(self.refusal(&expected))
    }

    /// The order of the axes, which is C's.
    fn ordered(&mut self) -> Result<bool, DataError> {
        if self.take("False") {
            return Ok(true);
        }
        Err(self.refusal("`False`, an array in C order; save `np.ascontiguousarray(array)`"))
    }

    /// The shape, and where it is.
    fn shape(&mut self) -> Result<(Vec<u64>, u64), DataError> {
        self.blanks();
        let (mut sizes, at) = (Vec::new(), self.offset());
        self.expect("(")?;
        while !self.take(")") {
            self.blanks();
            let digits = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number = str::from_utf8(&self.bytes[self.at..][..digits])
                .ok()
                .and_then(|text| text.parse().ok());
            sizes.push(number.ok_or_else(|| self.refusal("a size below 2^64"))?);
            self.at += digits;
            // Python 2 has marked long numbers.
            self.take("L");
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok((sizes, at))
    }

    /// A string without any escapes.
    fn string(&mut self) -> Result<&'a [u8], DataError> {
        self.blanks();
        let bytes: &'a [u8] = self.bytes;
        let quoted = bytes[self.at..]
            .split_first()
            .filter(|(quote, _)| matches!(quote, b'\'' | b'"'));
        if let Some((quote, inner)) = quoted
            && let Some(length) = inner.iter().position(|byte| byte == quote)
        {
            self.at += length + 2;
            return Ok(&inner[..length]);
        }
        Err(self.refusal("a string"))
    }

    fn blanks(&mut self) {
        let blanks = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_whitespace());
        self.at += blanks.count();
    }

    /// Passes over `word`, if it is next.
    fn take(&mut self, word: &str) -> bool {
        self.blanks();
        let next = self.bytes[self.at..].starts_with(word.as_bytes());
        if next {
            self.at += word.len();
        }
        next
    }

    fn expect(&mut self, word: &str) -> Result<(), DataError> {
        if self.take(word) {
            Ok(())
        } else {
            Err(self.refusal(&format!("`{word}`")))
        }
    }

    fn offset(&self) -> u64 {
        self.start + self.at as u64
    }

    fn refusal(&self, expected: &str) -> DataError {
        let rest = self.bytes[self.at..].trim_ascii();
        let found = if rest.is_empty() {
            "the end of the header".to_owned()
        } else {
            format!("`{}`", excerpt(rest))
        };
        DataError::malformed(self.file, self.offset(), expected, found)
    }
}
