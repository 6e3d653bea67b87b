//! Images as bytes, channel by channel, and what is done to them before a network sees them.

use super::array::Array;
use super::error::DataError;
use super::random::CounterRng;

/// An image: a byte from 0 to 255 for each channel of each pixel; channel by channel, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    channels: usize,
    height: usize,
    width: usize,
    bytes: Vec<u8>,
}

impl Image {
    /// An image of `bytes`, channel by channel, row by row.
    ///
    /// # Errors
    /// When there are not as many bytes as that.
    pub fn new(channels: usize, height: usize, width: usize, bytes: Vec<u8>) -> Result<Self, DataError> {
        let expected = channels.checked_mul(height).and_then(|bytes| bytes.checked_mul(width));
        if expected != Some(bytes.len()) {
            return Err(DataError::unfit(
                format!("a byte for each of {channels} x {height} x {width} values of an image"),
                format!("{} bytes", bytes.len()),
            ));
        }
        Ok(Self {
            channels,
            height,
            width,
            bytes,
        })
    }

    /// How many channels it has: 1 if it is grey, 3 if it is red, green and blue.
    #[must_use]
    pub const fn channels(&self) -> usize {
        self.channels
    }

    /// Rows.
    #[must_use]
    pub const fn height(&self) -> usize {
        self.height
    }

    /// Pixels in a row.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Its bytes, channel by channel, row by row.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Memory that its bytes take, with those that are to spare.
    pub(crate) const fn room(&self) -> usize {
        self.bytes.capacity()
    }

    /// Values from 0 to 1, shape (channels, height, width).
    #[must_use]
    pub fn to_unit(&self) -> Array<f32> {
        self.values(|_, byte| f32::from(byte) / 255.0)
    }

    /// (value − mean) / deviation for each channel, where values go from 0 to 1; shape (channels, height, width).
    ///
    /// # Errors
    /// When there is not one mean and one deviation for each channel, or a deviation is not above 0.
    pub fn normalise(&self, means: &[f32], deviations: &[f32]) -> Result<Array<f32>, DataError> {
        if means.len() != self.channels || deviations.len() != self.channels {
            return Err(DataError::unfit(
                format!("a mean and a deviation for each of the image's {} channels", self.channels),
                format!("{} means and {} deviations", means.len(), deviations.len()),
            ));
        }
        if let Some(deviation) = deviations.iter().find(|&&deviation| deviation.is_nan() || deviation <= 0.0) {
            return Err(DataError::unfit("deviations above 0", deviation.to_string()));
        }
        Ok(self.values(|channel, byte| (f32::from(byte) / 255.0 - means[channel]) / deviations[channel]))
    }

    fn values(&self, of: impl Fn(usize, u8) -> f32) -> Array<f32> {
        let area = (self.height * self.width).max(1);
        let mut values = Vec::with_capacity(self.bytes.len());
        for (channel, bytes) in self.bytes.chunks(area).enumerate() {
            values.extend(bytes.iter().map(|&byte| of(channel, byte)));
        }
        Array::new(&[self.channels, self.height, self.width], values).expect("a value for each byte")
    }

    /// The image with a border of `pad` zeros, cut anew to its own size at a random place: moved by up to `pad` pixels each way.
    #[must_use]
    pub fn pad_crop(&self, pad: usize, rng: &mut CounterRng) -> Self {
        let places = 2 * pad as u64 + 1;
        let (down, right) = (rng.below(places) as usize, rng.below(places) as usize);
        self.rows(|from, to, row| {
            // Row `row` of the cut is row `row + down` of what is padded, which is row `row + down - pad` of the image.
            let Some(source) = (row + down).checked_sub(pad).filter(|&source| source < self.height) else {
                return;
            };
            let source = &from[source * self.width..][..self.width];
            let (to_start, from_start) = (pad.saturating_sub(right), right.saturating_sub(pad));
            let width = self.width.saturating_sub(to_start.max(from_start));
            if width > 0 {
                to[to_start..to_start + width].copy_from_slice(&source[from_start..from_start + width]);
            }
        })
    }

    /// The image mirrored from left to right, or as it is: each as likely.
    #[must_use]
    pub fn flip(self, rng: &mut CounterRng) -> Self {
        if rng.below(2) == 0 { self } else { self.mirrored() }
    }

    /// The image mirrored from left to right.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        self.rows(|from, to, row| {
            let source = &from[row * self.width..][..self.width];
            to.iter_mut().zip(source.iter().rev()).for_each(|(to, from)| *to = *from);
        })
    }

    /// An image of this size, each row of which `fill` makes of its channel: zeros unless it writes something.
    fn rows(&self, fill: impl Fn(&[u8], &mut [u8], usize)) -> Self {
        let mut bytes = vec![0; self.bytes.len()];
        let (area, width) = (self.height * self.width, self.width);
        if area > 0 {
            for (from, to) in self.bytes.chunks(area).zip(bytes.chunks_mut(area)) {
                to.chunks_mut(width).enumerate().for_each(|(row, to)| fill(from, to, row));
            }
        }
        Self { bytes, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::SampleRandom;

    fn image() -> Image {
        Image::new(2, 2, 3, (1..=12).collect()).unwrap()
    }

    fn rng(place: u32) -> CounterRng {
        SampleRandom::new(5, 0, place).stream(0)
    }

    #[test]
    fn sizes_must_agree() {
        let error = Image::new(1, 2, 2, vec![0; 3]).unwrap_err().to_string();
        assert!(error.contains("1 x 2 x 2") && error.contains("3 bytes"), "{error}");
        assert!(Image::new(usize::MAX, 2, 2, vec![]).is_err());
        assert_eq!(Image::new(3, 0, 5, vec![]).unwrap().mirrored().to_unit().shape(), [3, 0, 5]);
    }

    #[test]
    fn normalising_is_done_channel_by_channel() {
        let values = image().normalise(&[0.0, 0.5], &[1.0, 2.0]).unwrap();
        assert_eq!(values.shape(), [2, 2, 3]);
        assert_eq!(values.values()[0], 1.0 / 255.0);
        assert_eq!(values.values()[11], (12.0 / 255.0 - 0.5) / 2.0);
        assert!(image().normalise(&[0.0], &[1.0]).is_err());
        assert!(image().normalise(&[0.0, 0.0], &[1.0, 0.0]).is_err());
    }

    #[test]
    fn a_mirrored_image_is_mirrored_row_by_row() {
        assert_eq!(image().mirrored().bytes(), [3, 2, 1, 6, 5, 4, 9, 8, 7, 12, 11, 10]);
        let flipped: BTreeSet<_> = (0..20).map(|place| image().flip(&mut rng(place)).bytes().to_vec()).collect();
        assert_eq!(flipped.len(), 2, "both occur");
    }

    /// Against the definition: pad with zeros, then cut at each of the places.
    #[test]
    fn a_padded_crop_is_one_of_all_moves() {
        let (pad, image) = (1_usize, image());
        let padded = |channel: usize, row: usize, column: usize| -> u8 {
            let inside = (pad..pad + 2).contains(&row) && (pad..pad + 3).contains(&column);
            if inside {
                image.bytes()[channel * 6 + (row - pad) * 3 + column - pad]
            } else {
                0
            }
        };
        let mut moves = BTreeSet::new();
        for down in 0..=2 * pad {
            for right in 0..=2 * pad {
                let values = (0..2).flat_map(|channel| (0..2).map(move |row| (channel, row)));
                let values = values.flat_map(|(channel, row)| (0..3).map(move |column| (channel, row, column)));
                let cut: Vec<u8> = values
                    .map(|(channel, row, column)| padded(channel, row + down, column + right))
                    .collect();
                moves.insert(cut);
            }
        }
        let found: BTreeSet<_> = (0..200)
            .map(|place| image.pad_crop(pad, &mut rng(place)).bytes().to_vec())
            .collect();
        assert_eq!(found, moves);
        // A border wider than the image may leave nothing of it.
        assert_eq!(image.pad_crop(50, &mut rng(0)).bytes().len(), 12);
    }
}
