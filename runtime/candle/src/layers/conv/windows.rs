//! Which windows a convolution looks at together, and how their pixels become the columns of a matrix. It knows no weights.

use candle_core::{Result, Shape, bail};

use super::super::values::Real;
use super::NAME;

/// How many columns a matrix of windows should have: fewer give products that are mostly loading.
const COLUMNS: usize = 256;

/// How many values it should have: as many as stay in a core's cache, beside what is multiplied with them.
const VALUES: usize = 1 << 16;

/// Square windows at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) padding: usize,
}

/// An input, and how its windows are taken: a tile at a time. All of it follows from the shapes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    windows: Windows,
    pub(super) images: usize,
    channels: usize,
    height: usize,
    width: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// How far apart two rows of windows are in a matrix: the width of a padded image, so that neighbours in the image stay neighbours and
    /// one copy takes many rows, or the number of windows in a row. Columns between are of no window.
    pitch: usize,
    /// How many images a tile has, or how many rows of windows of one image.
    pub(super) group: usize,
    band: usize,
}

/// Windows whose pixels are in a matrix together: of whole images, or some rows of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub(super) images: usize,
    pub(super) top: usize,
    pub(super) rows: usize,
}

impl Plan {
    /// The windows over an input of this shape.
    ///
    /// # Errors
    /// When there are none.
    pub(super) fn of(windows: Windows, channels: usize, input: &Shape) -> Result<Self> {
        let Windows { kernel, stride, padding } = windows;
        let &[images, found, height, width] = input.dims() else {
            bail!("{NAME}: expected shape (images, {channels}, height, width), found {input:?}");
        };
        if stride == 0 {
            bail!("{NAME}: expected a stride of at least 1, found 0");
        }
        let (high, wide) = (height + 2 * padding, width + 2 * padding);
        if found != channels || images * height * width == 0 || high < kernel || wide < kernel {
            bail!(
                "{NAME}: expected at least one image of {channels} channels and {least} × {least} pixels or more, for a kernel of {kernel} and \
                 a padding of {padding}; found {input:?}",
                least = kernel.saturating_sub(2 * padding).max(1)
            );
        }
        let (rows, columns) = ((high - kernel) / stride + 1, (wide - kernel) / stride + 1);
        // An eighth of a matrix may be of no window.
        let pitch = if stride == 1 && columns >= 8 * (kernel - 1) {
            wide
        } else {
            columns
        };
        let most = COLUMNS.max(VALUES / (channels * kernel * kernel));
        let group = (most / (rows * pitch)).clamp(1, images);
        let bands = rows.div_ceil((most / pitch).max(1));
        Ok(Self {
            windows,
            images,
            channels,
            height,
            width,
            rows,
            columns,
            pitch,
            group,
            band: rows.div_ceil(bands),
        })
    }

    /// Values of a window.
    pub(super) fn taps(&self) -> usize {
        self.channels * self.windows.kernel * self.windows.kernel
    }

    /// Values of an image.
    pub(super) fn pixels(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Windows of an image.
    pub(super) fn places(&self) -> usize {
        self.rows * self.columns
    }

    /// The tiles of so many images, from top to bottom.
    pub(super) fn tiles(&self, images: usize) -> impl Iterator<Item = Tile> + use<> {
        let Self { rows, band, .. } = *self;
        (0..rows).step_by(band).map(move |top| Tile {
            images,
            top,
            rows: band.min(rows - top),
        })
    }

    /// Columns of a tile's matrix that one image has.
    pub(super) fn span(&self, tile: Tile) -> usize {
        (tile.rows - 1) * self.pitch + self.columns
    }

    /// Columns of a tile's matrix.
    pub(super) fn across(&self, tile: Tile) -> usize {
        tile.images * self.span(tile)
    }

    /// Of each row of a tile: where it begins within an image's span, and within an image's windows.
    pub(super) fn lines(&self, tile: Tile) -> impl Iterator<Item = (usize, usize)> + use<> {
        let Self { pitch, columns, .. } = *self;
        (0..tile.rows).map(move |row| (row * pitch, (tile.top + row) * columns))
    }

    fn padded_width(&self) -> usize {
        self.width + 2 * self.windows.padding
    }

    fn padded_plane(&self) -> usize {
        (self.height + 2 * self.windows.padding) * self.padded_width()
    }

    /// Where the rows of images lie in padded ones.
    fn padded_rows(&self) -> impl Fn(usize) -> usize + use<> {
        let (padding, wide, high) = (
            self.windows.padding,
            self.padded_width(),
            self.height + 2 * self.windows.padding,
        );
        let height = self.height;
        move |row| ((row / height) * high + row % height + padding) * wide + padding
    }

    /// Images with their border of zeros; themselves, if there is none.
    pub(super) fn pad<'a, T: Real>(&self, images: &'a [T], padded: &'a mut Vec<T>) -> &'a [T] {
        if self.windows.padding == 0 {
            return images;
        }
        padded.clear();
        padded.resize(images.len() / (self.height * self.width) * self.padded_plane(), T::zero());
        let place = self.padded_rows();
        for (row, values) in images.chunks_exact(self.width).enumerate() {
            padded[place(row)..][..self.width].copy_from_slice(values);
        }
        padded
    }

    /// The other way: what `fill` adds to images of zeros with a border, without it.
    pub(super) fn cropped<T: Real>(&self, images: &mut [T], padded: &mut Vec<T>, fill: impl FnOnce(&mut [T])) {
        if self.windows.padding == 0 {
            return fill(images);
        }
        padded.clear();
        padded.resize(images.len() / (self.height * self.width) * self.padded_plane(), T::zero());
        fill(padded);
        let place = self.padded_rows();
        for (row, values) in images.chunks_exact_mut(self.width).enumerate() {
            values.copy_from_slice(&padded[place(row)..][..self.width]);
        }
    }

    /// Calls `each` with runs of neighbours: the place of the first in the matrix, how many they are, the place of the first one's pixel in
    /// the padded images, and how far apart their pixels are.
    fn runs(&self, tile: Tile, mut each: impl FnMut(usize, usize, usize)) {
        let Windows { kernel, stride, .. } = self.windows;
        let (wide, plane, span) = (self.padded_width(), self.padded_plane(), self.span(tile));
        let whole = stride == 1 && self.pitch == wide;
        let mut to = 0;
        for channel in 0..self.channels {
            for (down, right) in (0..kernel).flat_map(|down| (0..kernel).map(move |right| (down, right))) {
                for image in 0..tile.images {
                    let from = (image * self.channels + channel) * plane + (tile.top * stride + down) * wide + right;
                    if whole {
                        each(to, span, from);
                    } else {
                        (0..tile.rows).for_each(|row| each(to + row * self.pitch, self.columns, from + row * stride * wide));
                    }
                    to += span;
                }
            }
        }
    }

    /// Writes the matrix of a tile's windows: a column for each, a row for each value of a window.
    pub(super) fn unfold<T: Real>(&self, tile: Tile, padded: &[T], matrix: &mut [T]) {
        let stride = self.windows.stride;
        self.runs(tile, |to, count, from| {
            let to = &mut matrix[to..to + count];
            if stride == 1 {
                to.copy_from_slice(&padded[from..from + count]);
            } else {
                let seen = padded[from..].iter().step_by(stride);
                to.iter_mut().zip(seen).for_each(|(to, from)| *to = *from);
            }
        });
    }

    /// The other way: adds what each pixel is in all windows of a tile.
    pub(super) fn fold<T: Real>(&self, tile: Tile, matrix: &[T], padded: &mut [T]) {
        let stride = self.windows.stride;
        self.runs(tile, |from, count, to| {
            let from = &matrix[from..from + count];
            if stride == 1 {
                let seen = &mut padded[to..to + count];
                seen.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
            } else {
                let seen = padded[to..].iter_mut().step_by(stride);
                seen.zip(from).for_each(|(to, from)| *to += *from);
            }
        });
    }
}
