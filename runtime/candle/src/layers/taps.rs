//! Windows as operations of candle: for tensors on a GPU, where layers have no loops of their own. Each operation adds in an order that is always the same. It
//! knows no layer.

use candle_core::{DType, Result, Tensor, bail};

/// What windows have at each of their places, row by row: tensors of shape (…, …, rows, columns) of an input of shape (…, …, height, width). Each window is
/// `kernel` × `kernel` pixels, `stride` apart; `padding` pixels of zeros are around the input. There is at least one window.
///
/// # Errors
/// When the input is not of floating-point numbers, or candle cannot compute it.
pub(super) fn taps(input: &Tensor, [kernel, stride, padding]: [usize; 3]) -> Result<Vec<Tensor>> {
    if !input.dtype().is_float() {
        bail!("expected windows of floating-point numbers, found {:?}", input.dtype());
    }
    let (_, _, height, width) = input.dims4()?;
    let windows = |size: usize| (size + 2 * padding - kernel) / stride + 1;
    let (rows, columns) = (windows(height), windows(width));
    // As many behind the last window that all of a stride can be taken there.
    let behind = |size: usize, windows: usize| (kernel - 1 + windows * stride).saturating_sub(size + padding);
    let input = input.pad_with_zeros(2, padding, behind(height, rows))?;
    let input = input.pad_with_zeros(3, padding, behind(width, columns))?;
    let mut taps = Vec::with_capacity(kernel * kernel);
    for down in 0..kernel {
        let lines = strided(&input, 2, [down, rows, stride])?;
        for right in 0..kernel {
            taps.push(strided(&lines, 3, [right, columns, stride])?);
        }
    }
    Ok(taps)
}

/// Of each place in a window: 1 for those windows that have padding there and 0 for others, u8 of shape (1, 1, rows, columns). Empty if there is no padding.
pub(super) fn outside(input: &Tensor, sizes: [usize; 3]) -> Result<Vec<Tensor>> {
    let [_, _, padding] = sizes;
    if padding == 0 {
        return Ok(Vec::new());
    }
    let (_, _, height, width) = input.dims4()?;
    let inside = Tensor::ones((1, 1, height, width), DType::F32, input.device())?;
    taps(&inside, sizes)?.iter().map(|tap| tap.eq(0_f32)).collect()
}

/// `count` values along a dimension, from `first` on, `stride` apart.
fn strided(input: &Tensor, dimension: usize, [first, count, stride]: [usize; 3]) -> Result<Tensor> {
    let all = input.narrow(dimension, first, count * stride)?;
    if stride == 1 {
        return Ok(all);
    }
    let mut shape = all.dims().to_vec();
    shape[dimension] = count;
    shape.insert(dimension + 1, stride);
    all.reshape(shape)?.narrow(dimension + 1, 0, 1)?.squeeze(dimension + 1)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn each_place_of_a_window_is_taken_from_all_windows() {
        // Rows 1 2 3 and 4 5 6 within a border: two windows down and two across.
        let input = Tensor::arange(1_f32, 7.0, &Device::Cpu)
            .unwrap()
            .reshape((1, 1, 2, 3))
            .unwrap();
        let found: Vec<Vec<f32>> = taps(&input, [2, 2, 1])
            .unwrap()
            .iter()
            .map(|tap| {
                assert_eq!(tap.dims(), [1, 1, 2, 2]);
                tap.flatten_all().unwrap().to_vec1().unwrap()
            })
            .collect();
        let expected = [
            [0.0, 0.0, 0.0, 5.0],
            [0.0, 0.0, 4.0, 6.0],
            [0.0, 2.0, 0.0, 0.0],
            [1.0, 3.0, 0.0, 0.0],
        ];
        assert_eq!(found, expected);
    }
}
