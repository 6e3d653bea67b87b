//! A network's tensors in this process's memory, where candle computes on processors. Must not know what they are for.

use std::cell::RefCell;

use candle_core::{CpuStorage, InplaceOp1, Layout, Result, Storage, Tensor, Var, bail};
use sardana::fit::Values;
use sardana::model::{GradientWriter, ModelError};

use crate::part::Part;

/// Writes a gradient, of one part for each tensor.
pub(crate) fn write(parts: &[Part], out: &mut GradientWriter<'_>) -> std::result::Result<(), ModelError> {
    for (tensor, part) in parts.iter().enumerate() {
        let mut written = Ok(());
        match part {
            Part::Computed(gradient) => see(gradient, &mut |values| written = out.write_f32(tensor, values))?,
            Part::Told(values) => written = out.write_f32(tensor, values),
            Part::Zeros(count) => written = out.write_f32(tensor, &vec![0.0; *count]),
        }
        written?;
    }
    Ok(())
}

/// Lets `change` change a tensor where it lies.
pub(crate) fn change(value: &Var, change: &mut Changing<'_>) -> Result<()> {
    value.inplace_op1(&Change(RefCell::new(change)))
}

/// The same tensors, as another thread reads them.
pub(crate) struct Shared(pub(crate) Vec<Var>);

impl Values for Shared {
    fn see(&self, tensor: usize, visit: &mut dyn FnMut(&[f32])) -> std::result::Result<(), ModelError> {
        Ok(see(&self.0[tensor], visit)?)
    }
}

/// Shows the values of a contiguous f32 tensor in this process's memory.
fn see(tensor: &Tensor, visit: &mut dyn FnMut(&[f32])) -> Result<()> {
    let (storage, layout) = tensor.storage_and_layout();
    let (Storage::Cpu(storage), Some((start, end))) = (&*storage, layout.contiguous_offsets()) else {
        bail!("expected a contiguous tensor in this process's memory, found {layout:?}");
    };
    visit(&storage.as_slice::<f32>()?[start..end]);
    Ok(())
}

/// What changes values where they lie.
type Changing<'a> = dyn FnMut(&mut [f32]) + 'a;

/// Changes a tensor where it lies.
struct Change<'a>(RefCell<&'a mut Changing<'a>>);

impl InplaceOp1 for Change<'_> {
    fn name(&self) -> &'static str {
        "update"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (CpuStorage::F32(values), Some((start, end))) = (storage, layout.contiguous_offsets()) else {
            bail!("expected a contiguous f32 tensor, found {layout:?}");
        };
        let Ok(mut change) = self.0.try_borrow_mut() else {
            bail!("expected a tensor to be changed once at a time");
        };
        change(&mut values[start..end]);
        Ok(())
    }
}
