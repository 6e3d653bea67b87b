//! Pictures in another size. One row of sums is all that is held beside the two pictures, whatever their proportions. The operations are
//! additions and products in a fixed order: every processor makes the same picture of it.

/// A channel after the other, of pixels of three channels each.
pub(super) fn planes(pixels: &[u8]) -> Vec<u8> {
    let mut planes = Vec::with_capacity(pixels.len());
    for channel in 0..3 {
        planes.extend(pixels.as_chunks::<3>().0.iter().map(|pixel| pixel[channel]));
    }
    planes
}

/// The picture of `pixels` (three channels each, row by row) in another size (height, width), channel by channel.
pub(super) fn bilinear(pixels: &[u8], from: (usize, usize), to: (usize, usize)) -> Vec<u8> {
    let (rows, columns) = (weights(from.0, to.0), weights(from.1, to.1));
    let (stride, area) = (3 * from.1, to.0 * to.1);
    let mut planes = vec![0; 3 * area];
    let mut mixed = vec![0.0_f32; stride];
    for (row, Weights { first, weights }) in rows.iter().enumerate() {
        mixed.fill(0.0);
        for (weight, source) in weights.iter().zip(pixels.chunks_exact(stride).skip(*first)) {
            mixed
                .iter_mut()
                .zip(source)
                .for_each(|(sum, &byte)| *sum += weight * f32::from(byte));
        }
        for (column, Weights { first, weights }) in columns.iter().enumerate() {
            let mut sums = [0.0_f32; 3];
            for (weight, source) in weights.iter().zip(mixed.chunks_exact(3).skip(*first)) {
                sums.iter_mut().zip(source).for_each(|(sum, value)| *sum += weight * value);
            }
            for (channel, sum) in sums.into_iter().enumerate() {
                // Weights that make 1 keep it below 256, but for rounding; the conversion stops at 255.
                planes[channel * area + row * to.1 + column] = (sum + 0.5) as u8;
            }
        }
    }
    planes
}

/// What a new row or column is mixed of.
struct Weights {
    first: usize,
    weights: Vec<f32>,
}

/// The triangle filter, as wide as the old pixels that fall into a new one, or two old ones where there are more new ones.
fn weights(from: usize, to: usize) -> Vec<Weights> {
    let scale = from as f64 / to as f64;
    let reach = scale.max(1.0);
    let at = |new: usize| {
        let centre = (new as f64 + 0.5) * scale;
        let first = (centre - reach).floor().max(0.0) as usize;
        let last = ((centre + reach).ceil() as usize).min(from);
        let weight = |old: usize| (1.0 - ((old as f64 + 0.5 - centre) / reach).abs()).max(0.0);
        let sum: f64 = (first..last).map(weight).sum();
        Weights {
            first,
            weights: (first..last).map(|old| (weight(old) / sum) as f32).collect(),
        }
    };
    (0..to).map(at).collect()
}

#[cfg(test)]
mod tests {
    use image::RgbImage;
    use image::imageops::{self, FilterType};

    use super::*;
    use crate::{CounterRng, Domain};

    /// Against the filter of another library.
    #[test]
    fn pictures_are_resized_as_others_resize_them() {
        let mut rng = CounterRng::new(1, Domain::User { stream: 0 });
        for (from, to) in [
            ((7, 5), (3, 2)),
            ((3, 2), (7, 9)),
            ((40, 64), (13, 64)),
            ((1, 50), (9, 1)),
            ((16, 16), (8, 32)),
        ] {
            let pixels: Vec<u8> = (0..from.0 * from.1 * 3).map(|_| rng.below(256) as u8).collect();
            let image = RgbImage::from_raw(from.1 as u32, from.0 as u32, pixels.clone()).unwrap();
            let expected = imageops::resize(&image, to.1 as u32, to.0 as u32, FilterType::Triangle);
            let (found, expected) = (bilinear(&pixels, from, to), planes(expected.as_raw()));
            assert_eq!(found.len(), expected.len());
            let most = found.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max();
            assert!(most <= Some(1), "{from:?} to {to:?}: {most:?}");
        }
    }

    #[test]
    fn what_is_of_one_colour_stays_so() {
        for value in [0, 1, 127, 254, 255] {
            let resized = bilinear(&[value; 3 * 11 * 7], (11, 7), (5, 20));
            assert!(resized.iter().all(|&byte| byte == value), "{value}");
        }
        assert!(bilinear(&[1; 3 * 4], (2, 2), (0, 5)).is_empty());
    }

    /// Two black pixels and two white ones, in one row: by hand.
    #[test]
    fn a_smaller_picture_is_antialiased() {
        let pixels = [0, 0, 255, 255].map(|value| [value; 3]).concat();
        // Centre 1, reach 2: pixels 0 to 2 weigh 3/4, 3/4, 1/4; the last weighs nothing.
        assert_eq!(bilinear(&pixels, (1, 4), (1, 2))[..2], [36, 219]);
    }
}
