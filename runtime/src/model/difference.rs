//! Where two sums of one shard differ, for a person who looks for the reason. Must not know which of them is right.

use sardana_collectives::gradient::{GradientError, Mean, Sum};
use sardana_collectives::layout::Layout;
use sardana_protocol::state::Dtype;

/// The first place at which they differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// A tensor's or auxiliary sum's name.
    pub(super) place: String,
    /// Which element of the tensor, counted from 0 in the order of its memory, and the bits that each has there, divided by the samples.
    element: Option<(usize, [String; 2])>,
}

impl Difference {
    /// Between two sums of this layout, whose auxiliary sums have these names. None where all bits are equal.
    ///
    /// # Errors
    /// When they are not of this layout.
    pub(super) fn between(
        layout: &Layout,
        auxiliary: &[String],
        one: &Sum,
        other: &Sum,
    ) -> Result<Option<Self>, GradientError> {
        if one == other {
            return Ok(None);
        }
        let (one, other) = (one.mean(layout), other.mean(layout));
        for (tensor, spec) in layout.tensors().iter().enumerate() {
            let element = match spec.dtype {
                Dtype::F32 => {
                    let bits = |mean: &Mean<'_>| Ok::<_, GradientError>(mean.f32(tensor)?.into_iter().map(f32::to_bits));
                    first(bits(&one)?, bits(&other)?, |bits| format!("{bits:#010x}"))
                }
                Dtype::F64 | Dtype::U64 => {
                    let bits = |mean: &Mean<'_>| Ok::<_, GradientError>(mean.f64(tensor)?.into_iter().map(f64::to_bits));
                    first(bits(&one)?, bits(&other)?, |bits| format!("{bits:#018x}"))
                }
            };
            if element.is_some() {
                let place = spec.name.clone();
                return Ok(Some(Self { place, element }));
            }
        }
        let mut sums = one.auxiliary().into_iter().zip(other.auxiliary()).zip(auxiliary);
        let differing = sums.find(|((one, other), _)| one.to_bits() != other.to_bits());
        // Dividing by n may hide a last bit.
        let place = differing.map_or_else(|| "the last bits of a sum".to_owned(), |(_, name)| name.clone());
        Ok(Some(Self { place, element: None }))
    }

    /// With the element and the bits, where they are known.
    pub(super) fn words(&self) -> String {
        let Self { place, element } = self;
        match element {
            Some((element, [one, other])) => format!("element {element} of {place}, {one} and {other}"),
            None => place.clone(),
        }
    }
}

fn first<T: PartialEq>(
    one: impl Iterator<Item = T>,
    other: impl Iterator<Item = T>,
    words: impl Fn(T) -> String,
) -> Option<(usize, [String; 2])> {
    let mut both = one.zip(other).enumerate();
    let (element, (one, other)) = both.find(|(_, (one, other))| one != other)?;
    Some((element, [words(one), words(other)]))
}
