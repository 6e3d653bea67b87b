//! From a JPEG or PNG file to pixels, within limits: a picture of a few bytes can state any size.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};

use super::resize;
use crate::{DataError, Image};

/// 67 million pixels, 192 MiB once decoded: more than cameras take, and few enough for several threads to decode side by side.
const MAX_PIXELS: u64 = 64 << 20;

/// The longest side of a JPEG; a PNG may state more, and no camera does.
const MAX_SIDE: u32 = 65_535;

/// What a decoder may allocate: four bytes for each channel of the largest picture, which is what a progressive JPEG or 16 bits and a
/// copy take.
const MAX_DECODER_BYTES: u64 = 12 * MAX_PIXELS;

/// The largest file: what the largest picture takes if it is hardly compressed.
const MAX_FILE_BYTES: u64 = 4 * MAX_PIXELS;

/// The picture in `file`, in the size (height, width) if there is one.
pub(super) fn read(file: &Path, size: Option<(usize, usize)>) -> Result<Image, DataError> {
    if let Some((height, width)) = size.filter(|&(height, width)| height as u128 * width as u128 > MAX_PIXELS.into()) {
        return Err(DataError::unfit(
            format!("a size of at most {MAX_PIXELS} pixels"),
            format!("{height} x {width}"),
        ));
    }
    let opened = File::open(file).map_err(DataError::io(file, "open it"))?;
    let stated = opened.metadata().map_err(DataError::io(file, "read its length"))?.len();
    let mut bytes = Vec::with_capacity(stated.min(MAX_FILE_BYTES) as usize);
    opened
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(DataError::io(file, "read it"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let expected = format!("the end of a picture, of at most {MAX_FILE_BYTES} bytes");
        return Err(DataError::malformed(file, MAX_FILE_BYTES, expected, "more bytes"));
    }
    let pixels = decode(file, &bytes)?.into_rgb8();
    let from = (pixels.height() as usize, pixels.width() as usize);
    let (height, width) = size.unwrap_or(from);
    let planes = if from == (height, width) {
        resize::planes(pixels.as_raw())
    } else {
        resize::bilinear(pixels.as_raw(), from, (height, width))
    };
    Image::new(3, height, width, planes)
}

fn decode(file: &Path, bytes: &[u8]) -> Result<DynamicImage, DataError> {
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format();
    let mut reader = reader.map_err(DataError::io(file, "read it"))?;
    // What a file is called is not believed: many a `.png` is a JPEG.
    match reader.format() {
        Some(ImageFormat::Png) => {}
        Some(ImageFormat::Jpeg) if is_whole(bytes) => {}
        Some(ImageFormat::Jpeg) => {
            let expected = "more of a JPEG up to its end-of-image marker";
            return Err(DataError::malformed(
                file,
                bytes.len() as u64,
                expected,
                "the end of the file",
            ));
        }
        other => {
            let found = other.map_or("neither".to_owned(), |format| format!("{format:?}"));
            return Err(DataError::malformed(file, 0, "the first bytes of a JPEG or PNG", found));
        }
    }
    let mut limits = Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(MAX_SIDE), Some(MAX_SIDE));
    limits.max_alloc = Some(MAX_DECODER_BYTES);
    reader.limits(limits);
    // Decoders do not say where, and some end a message with the end of a line.
    let refusal = |error: ImageError| {
        let found = error.to_string().replace(char::is_control, " ");
        DataError::malformed(file, 0, "a picture that can be decoded", found.trim_end())
    };
    let decoder = reader.into_decoder().map_err(refusal)?;
    let (width, height) = decoder.dimensions();
    if !(1..=MAX_PIXELS).contains(&(u64::from(width) * u64::from(height))) {
        let expected = format!("a picture of 1 to {MAX_PIXELS} pixels");
        return Err(DataError::malformed(file, 0, expected, format!("{height} x {width}")));
    }
    DynamicImage::from_decoder(decoder).map_err(refusal)
}

/// Whether a JPEG goes on to the marker that ends it. The decoder fills what is cut off with grey, and says nothing.
fn is_whole(jpeg: &[u8]) -> bool {
    const MARKER: u8 = 0xff;
    /// After a marker's first byte: a byte of the picture, another first byte, or where a decoder may start anew.
    const NONE: [u8; 2] = [0x00, 0xff];
    const RESTARTS: std::ops::RangeInclusive<u8> = 0xd0..=0xd7;
    const START: u8 = 0xd8;
    const END: u8 = 0xd9;
    let mut at = 0;
    loop {
        let is_marker = |pair: &[u8]| pair[0] == MARKER && !NONE.contains(&pair[1]) && !RESTARTS.contains(&pair[1]);
        let Some(skipped) = jpeg.get(at..).and_then(|rest| rest.windows(2).position(is_marker)) else {
            return false;
        };
        at += skipped + 2;
        match jpeg[at - 1] {
            END => return true,
            START => {}
            // What has a length is passed over by it: there may be a small picture with an end of its own in it.
            _ => match jpeg.get(at..at + 2) {
                Some(length) => at += usize::from(u16::from_be_bytes([length[0], length[1]])),
                None => return false,
            },
        }
    }
}
