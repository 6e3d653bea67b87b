//! Windows as operations of candle: for tensors on a GPU, where layers have no loops of their own. Each operation adds in an order that is always the same. It
//! knows no layer.

use candle_core::{Result, Tensor};

/// What windows have at each of their places, row by row: tensors of shape (…, …, rows, columns) of an input of shape (…, …, height, width). Each window is
/// `kernel` × `kernel` pixels, `stride` apart; `padding` pixels of `border` are around the input. There is at least one window.
pub(super) fn taps(input: &Tensor, [kernel, stride, padding]: [usize; 3], border: f32) -> Result<Vec<Tensor>> {
    let (_, _, height, width) = input.dims4()?;
    let windows = |size: usize| (size + 2 * padding - kernel) / stride + 1;
    let (rows, columns) = (windows(height), windows(width));
    // As many behind the last window that all of a stride can be taken there.
    let behind = |size: usize, windows: usize| (kernel - 1 + windows * stride).saturating_sub(size + padding);
    let input = bordered(input, 2, [padding, behind(height, rows)], border)?;
    let input = bordered(&input, 3, [padding, behind(width, columns)], border)?;
    let mut taps = Vec::with_capacity(kernel * kernel);
    for down in 0..kernel {
        let lines = strided(&input, 2, [down, rows, stride])?;
        for right in 0..kernel {
            taps.push(strided(&lines, 3, [right, columns, stride])?);
        }
    }
    Ok(taps)
}

/// With so many values of `border` before and behind all others along a dimension.
fn bordered(input: &Tensor, dimension: usize, [before, behind]: [usize; 2], border: f32) -> Result<Tensor> {
    let edge = |size: usize| {
        let mut shape = input.dims().to_vec();
        shape[dimension] = size;
        Tensor::full(border, shape, input.device())?.to_dtype(input.dtype())
    };
    match (before, behind) {
        (0, 0) => Ok(input.clone()),
        (before, 0) => Tensor::cat(&[&edge(before)?, input], dimension),
        (0, behind) => Tensor::cat(&[input, &edge(behind)?], dimension),
        (before, behind) => Tensor::cat(&[&edge(before)?, input, &edge(behind)?], dimension),
    }
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
        // Rows 0 1 2 and 3 4 5 within a border: two windows down and two across.
        let input = Tensor::arange(0_f32, 6.0, &Device::Cpu)
            .unwrap()
            .reshape((1, 1, 2, 3))
            .unwrap();
        let found: Vec<Vec<f32>> = taps(&input, [2, 2, 1], -1.0)
            .unwrap()
            .iter()
            .map(|tap| {
                assert_eq!(tap.dims(), [1, 1, 2, 2]);
                tap.flatten_all().unwrap().to_vec1().unwrap()
            })
            .collect();
        let expected = [
            [-1.0, -1.0, -1.0, 4.0],
            [-1.0, -1.0, 3.0, 5.0],
            [-1.0, 1.0, -1.0, -1.0],
            [0.0, 2.0, -1.0, -1.0],
        ];
        assert_eq!(found, expected);
    }
}
