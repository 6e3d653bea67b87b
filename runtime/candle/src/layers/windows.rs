//! Where the windows of a pooling layer lie in a plane. It knows no numbers.

use std::ops::Range;

use candle_core::{Result, Shape, bail};

/// Square windows at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    pub(super) kernel: usize,
    pub(super) stride: usize,
    /// How far the outermost windows reach beyond the plane.
    pub(super) padding: usize,
}

/// An input of planes, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planes {
    windows: Windows,
    images: usize,
    channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Windows {
    /// Kernel, stride and padding.
    pub(super) const fn sizes(self) -> [usize; 3] {
        [self.kernel, self.stride, self.padding]
    }

    /// The windows over an input of this shape.
    ///
    /// # Errors
    /// When there are none: the message names `layer`, and what was expected and found.
    pub(super) fn over(self, layer: &str, input: &Shape) -> Result<Planes> {
        let Self { kernel, stride, padding } = self;
        if kernel == 0 || stride == 0 {
            bail!("{layer}: expected a kernel and a stride of at least 1, found {kernel} and {stride}");
        }
        if padding > kernel / 2 {
            bail!(
                "{layer}: expected a padding of at most half the kernel of {kernel}, so that each window meets the image, found {padding}"
            );
        }
        let &[images, channels, height, width] = input.dims() else {
            bail!("{layer}: expected shape (images, channels, height, width), found {input:?}");
        };
        if images == 0 || channels == 0 || height == 0 || width == 0 {
            bail!("{layer}: expected at least one image, channel and pixel, found {input:?}");
        }
        let beyond = 2 * padding;
        if height + beyond < kernel || width + beyond < kernel {
            bail!(
                "{layer}: expected images of at least {least} × {least} for a kernel of {kernel} and a padding of {padding}, found \
                 {height} × {width}",
                least = kernel - beyond
            );
        }
        Ok(Planes {
            windows: self,
            images,
            channels,
            height,
            width,
            rows: (height + beyond - kernel) / stride + 1,
            columns: (width + beyond - kernel) / stride + 1,
        })
    }

    /// The part of window number `nth` that is within a length of `size`. It is never empty.
    fn within(self, nth: usize, size: usize) -> Range<usize> {
        let start = nth * self.stride;
        start.saturating_sub(self.padding)..(start + self.kernel - self.padding).min(size)
    }
}

impl Planes {
    /// The rows of a plane that windows of row number `row` see.
    pub(super) fn down(&self, row: usize) -> Range<usize> {
        self.windows.within(row, self.height)
    }

    /// The columns of a plane that windows of column number `column` see.
    pub(super) fn across(&self, column: usize) -> Range<usize> {
        self.windows.within(column, self.width)
    }

    /// Whether windows are 2 × 2 pixels that no other window sees.
    pub(super) fn are_pairs(&self) -> bool {
        self.windows
            == Windows {
                kernel: 2,
                stride: 2,
                padding: 0,
            }
    }

    /// How many values a plane of the input has.
    pub(super) fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// How many windows a plane has.
    pub(super) fn windows(&self) -> usize {
        self.rows * self.columns
    }

    /// The shape of the output.
    pub(super) fn output(&self) -> Shape {
        Shape::from((self.images, self.channels, self.rows, self.columns))
    }

    /// How many values the output has.
    pub(super) fn outputs(&self) -> usize {
        self.images * self.channels * self.windows()
    }
}
