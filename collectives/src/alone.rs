//! The sum of a step when one worker holds all its gradients: the additions of the ordered plan, without links.

use sardana_protocol::words::Step;
use smallvec::SmallVec;

use crate::gradient::{GradientBuffer, ResidentError, Sum};
use crate::layout::Layout;
use crate::reduce;

/// Adds up `pieces`, which hold the step's gradients in shard order. The first is taken over unless there is a view of it. What of them lies elsewhere is
/// waited for.
///
/// # Errors
/// When it does not come.
///
/// # Panics
/// When there is no piece, or one is not laid out by `layout`.
pub fn add_up(layout: &Layout, step: Step, pieces: impl IntoIterator<Item = GradientBuffer>) -> Result<Sum, ResidentError> {
    // As a rule there is one.
    let mut pieces: SmallVec<[GradientBuffer; 1]> = pieces.into_iter().collect();
    pieces.iter_mut().try_for_each(GradientBuffer::lower)?;
    let mut pieces = pieces.into_iter();
    let first = pieces.next().expect("a step has at least one shard");
    let mut sum = if first.is_unread() { first } else { first.clone() };
    let rest: SmallVec<[GradientBuffer; 1]> = pieces.collect();
    let mut rest: Vec<&[u8]> = rest.iter().map(GradientBuffer::bytes).collect();
    if !rest.is_empty() {
        reduce::add_all(layout, 0..layout.bytes(), sum.bytes_mut(), &mut rest);
    }
    Ok(Sum::from_buffer(step, sum))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use sardana_protocol::state::{Dtype, TensorSpec};

    use super::*;
    use crate::gradient::WriteMode;

    #[test]
    fn pieces_are_added_in_order() {
        let layout = Layout::new(vec![TensorSpec::new("w", Dtype::F32, &[2])], 0).unwrap();
        let values = [[1.0e8_f32, 1.0], [-1.0e8, 2.0], [0.5, 3.0]];
        let mut pieces: Vec<_> = values
            .iter()
            .map(|values| {
                let mut buffer = GradientBuffer::zeros(&layout);
                let mut writer = buffer.writer(&layout, WriteMode::Store);
                writer.write_f32(0, values).unwrap();
                writer.samples(1).unwrap();
                writer.finish().unwrap();
                buffer
            })
            .collect();
        let kept = pieces[0].complete();
        let before = pieces[0].bytes().to_vec();
        let sum = add_up(&layout, Step::ZERO, pieces).unwrap();
        assert_eq!(sum.mean(&layout).f32(0).unwrap(), [0.5 / 3.0, 2.0]);
        assert_eq!(sum.samples(&layout), 3);
        let read = kept.chunk(0).now_or_never();
        assert_eq!(
            read.unwrap().unwrap(),
            before,
            "a gradient that is read elsewhere is not changed"
        );
    }
}
