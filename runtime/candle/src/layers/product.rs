//! Products of matrices that lie in slices, with the kernels that candle multiplies with. It knows no layer.
#![expect(unsafe_code, reason = "the kernels take pointers")]

use gemm::{Parallelism, gemm};

use super::values::Real;

/// A matrix whose values lie row by row, or the transpose of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix<'a, T> {
    values: &'a [T],
    rows: usize,
    columns: usize,
    /// How far apart two rows are, and two columns.
    down: usize,
    across: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// The first values of a slice, row by row.
    pub(super) fn new(values: &'a [T], rows: usize, columns: usize) -> Self {
        Self {
            values: &values[..rows * columns],
            rows,
            columns,
            down: columns,
            across: 1,
        }
    }

    pub(super) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            down: self.across,
            across: self.down,
            ..self
        }
    }
}

/// Writes the product of two matrices, row by row, or adds it to what is there. Any number of `threads` gives the same bits: each value is
/// computed by one of them.
///
/// # Panics
/// When the sizes do not fit.
pub(super) fn product<T: Real>(to: &mut [T], lhs: Matrix<'_, T>, rhs: Matrix<'_, T>, adds: bool, threads: usize) {
    assert_eq!(lhs.columns, rhs.rows, "a row is multiplied with a column");
    let to = &mut to[..lhs.rows * rhs.columns];
    let parallelism = if threads > 1 {
        Parallelism::Rayon(threads)
    } else {
        Parallelism::None
    };
    let stride = |stride: usize| stride as isize;
    // SAFETY: a matrix has as many values as rows times columns, whichever way it is turned, and so has `to`; `to` is borrowed alone. T is
    // f32 or f64, which the kernels know.
    unsafe {
        gemm(
            lhs.rows,
            rhs.columns,
            lhs.columns,
            to.as_mut_ptr(),
            1,
            stride(rhs.columns),
            adds,
            lhs.values.as_ptr(),
            stride(lhs.across),
            stride(lhs.down),
            rhs.values.as_ptr(),
            stride(rhs.across),
            stride(rhs.down),
            T::one(),
            T::one(),
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// A matrix of so many rows and columns, turned: its columns lie one after the other.
pub(super) fn transposed<T: Real>(matrix: &[T], rows: usize, columns: usize) -> Vec<T> {
    // Blocks of both fit into the fastest cache.
    const BLOCK: usize = 16;
    let mut turned = vec![T::zero(); rows * columns];
    for (top, left) in (0..rows)
        .step_by(BLOCK)
        .flat_map(|top| (0..columns).step_by(BLOCK).map(move |left| (top, left)))
    {
        for column in left..columns.min(left + BLOCK) {
            for row in top..rows.min(top + BLOCK) {
                turned[column * rows + row] = matrix[row * columns + column];
            }
        }
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_are_multiplied_whichever_way_they_are_turned() {
        // (1 2 3; 4 5 6) and (1 0; 0 1; 2 2).
        let (lhs, rhs) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 0.0, 0.0, 1.0, 2.0, 2.0]);
        let (lhs, rhs) = (Matrix::new(&lhs, 2, 3), Matrix::new(&rhs, 3, 2));
        let mut found = [1.0; 4];
        product(&mut found, lhs, rhs, false, 1);
        assert_eq!(found, [7.0, 8.0, 16.0, 17.0]);
        product(&mut found, rhs.transposed(), lhs.transposed(), true, 1);
        assert_eq!(found, [14.0, 24.0, 24.0, 34.0]);
    }

    #[test]
    fn threads_change_no_bits() {
        let (m, n, k) = (130, 207, 300);
        let values = |count: usize| -> Vec<f32> { (0..count).map(|at| ((at * 37 % 101) as f32).sin()).collect() };
        let (lhs, rhs) = (values(m * k), values(k * n));
        let of = |threads| {
            let mut found = vec![0.0_f32; m * n];
            product(&mut found, Matrix::new(&lhs, m, k), Matrix::new(&rhs, k, n), false, threads);
            found.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(2));
        assert_eq!(of(1), of(3));
    }
}
