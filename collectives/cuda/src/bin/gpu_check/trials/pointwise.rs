//! What lies between layers and behind them.

use sardana_cuda::kernels::{self, Kernel};
use sardana_cuda::reference::pointwise;

use super::Run;
use crate::on::{Both, On, Tried};

pub(super) const TRIALS: [(Kernel, Run); 4] = [
    (kernels::RECTIFY, rectify),
    (kernels::RECTIFY_BACKWARD, rectify_backward),
    (kernels::DISTANCES, distances),
    (kernels::HITS, hits),
];

fn rectify(on: &mut On<'_>) -> Tried {
    for length in on.lengths() {
        let (values, mut own) = on.any::<f32>(length)?;
        on.enqueue().rectify(&mut own.view_mut())?;
        on.same(&own, &pointwise::rectify(&values))?;
    }
    Ok(())
}

fn rectify_backward(on: &mut On<'_>) -> Tried {
    for length in on.lengths() {
        let (gradients, mut own) = on.any::<f32>(length)?;
        let (rectified, own_rectified) = on.any::<f32>(length)?;
        on.enqueue().rectify_backward(&mut own.view_mut(), &own_rectified.view())?;
        on.same(&own, &pointwise::rectify_backward(&gradients, &rectified))?;
    }
    Ok(())
}

/// Rows of scores with their labels, of so many classes.
fn each(on: &mut On<'_>, check: impl Fn(&mut On<'_>, usize, Both<f32>, Both<u32>) -> Tried) -> Tried {
    let long = (!on.is_quick()).then_some((50_001, 7));
    for (rows, classes) in [(1, 1), (7, 10), (33, 3), (257, 10)].into_iter().chain(long) {
        let scores = on.any::<f32>(rows * classes)?;
        let labels = (0..rows).map(|_| on.below(classes as u64) as u32).collect();
        let labels = on.there(labels)?;
        check(on, classes, scores, labels)?;
    }
    Ok(())
}

fn distances(on: &mut On<'_>) -> Tried {
    each(on, |on, classes, (scores, mut own), (labels, own_labels)| {
        on.enqueue().distances(&mut own.view_mut(), &own_labels.view())?;
        on.same(&own, &pointwise::distances(&scores, &labels, classes))
    })
}

fn hits(on: &mut On<'_>) -> Tried {
    each(on, |on, classes, (scores, own), (labels, own_labels)| {
        let mut out = on.room::<u32>(labels.len())?;
        on.enqueue().hits(&mut out.view_mut(), &own.view(), &own_labels.view())?;
        on.same(&out, &pointwise::hits(&scores, &labels, classes))
    })
}
