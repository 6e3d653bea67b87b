//! Shards added to running sums, halves, means.

use half::{bf16, f16};
use sardana_cuda::device::{Float, Half, Summed};
use sardana_cuda::kernels::{self, Kernel};
use sardana_cuda::reference::{halves, sums, updates};

use super::Run;
use crate::numbers::Any;
use crate::on::{On, Tried};

pub(super) const TRIALS: [(Kernel, Run); 11] = [
    // Behind one element no address is a multiple of 16, which the other kernel needs.
    (kernels::SUM_F32, |on| summed::<f32>(on, 1, sums::sum_f32)),
    (kernels::SUM_F32X4, |on| summed::<f32>(on, 0, sums::sum_f32)),
    (kernels::SUM_F64, |on| summed::<f64>(on, 0, sums::sum_f64)),
    (kernels::SUM_BF16, |on| summed::<bf16>(on, 0, sums::sum_bf16)),
    (kernels::SUM_F16, |on| summed::<f16>(on, 0, sums::sum_f16)),
    (kernels::NARROW_BF16, |on| narrowed::<bf16>(on, halves::narrow_bf16)),
    (kernels::NARROW_F16, |on| narrowed::<f16>(on, halves::narrow_f16)),
    (kernels::WIDEN_BF16, |on| widened::<bf16>(on, halves::widen_bf16)),
    (kernels::WIDEN_F16, |on| widened::<f16>(on, halves::widen_f16)),
    (kernels::MEAN_F32, |on| mean::<f32>(on, 3.0, updates::mean_f32)),
    (kernels::MEAN_F64, |on| mean::<f64>(on, 3.0, updates::mean_f64)),
];

/// So many shards that one launch has none, one, some, and that a second one is needed.
const COUNTS: [usize; 4] = [0, 1, 3, 33];

fn summed<S: Summed + Any>(on: &mut On<'_>, behind: usize, add: fn(&mut [S::Running], &[&[S]])) -> Tried
where
    S::Running: Any,
{
    for length in on.lengths() {
        let counts = if length > 1_000 { &COUNTS[2..3] } else { &COUNTS[..] };
        let own = behind..behind + length;
        for &count in counts {
            let (mut expected, mut sum) = on.any::<S::Running>(own.end)?;
            let shards = (0..count).map(|_| on.any::<S>(own.end)).collect::<Result<Vec<_>, _>>()?;
            let parts: Vec<&[S]> = shards.iter().map(|(values, _)| &values[own.clone()]).collect();
            add(&mut expected[own.clone()], &parts);
            let parts: Vec<_> = shards.iter().map(|(_, tensor)| tensor.part(own.clone())).collect();
            on.enqueue().add(&mut sum.part_mut(own.clone()), &parts)?;
            on.same(&sum, &expected)?;
        }
    }
    Ok(())
}

fn narrowed<H: Half>(on: &mut On<'_>, reference: fn(&[f32]) -> Vec<H>) -> Tried {
    for length in on.lengths() {
        let (values, tensor) = on.any::<f32>(length)?;
        let mut out = on.room::<H>(length)?;
        on.enqueue().narrow(&mut out.view_mut(), &tensor.view())?;
        on.same(&out, &reference(&values))?;
    }
    Ok(())
}

fn widened<H: Half + Any>(on: &mut On<'_>, reference: fn(&[H]) -> Vec<f32>) -> Tried {
    for length in on.lengths() {
        let (values, tensor) = on.any::<H>(length)?;
        let mut out = on.room::<f32>(length)?;
        on.enqueue().widen(&mut out.view_mut(), &tensor.view())?;
        on.same(&out, &reference(&values))?;
    }
    Ok(())
}

fn mean<T: Float + Any>(on: &mut On<'_>, divisor: T, reference: fn(&[T], T) -> Vec<T>) -> Tried {
    for length in on.lengths() {
        let (values, tensor) = on.any::<T>(length)?;
        let mut out = on.room::<T>(length)?;
        on.enqueue().mean(&mut out.view_mut(), &tensor.view(), divisor)?;
        on.same(&out, &reference(&values, divisor))?;
    }
    Ok(())
}
