//! Tensors packed and unpacked, against their references, and the writer of gradients.

use sardana_collectives::gradient::{GradientBuffer, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_cuda::kernels::{Kernel, Module, PACK_F32, PACK_F64, UNPACK_F32, UNPACK_F64};
use sardana_cuda::parameters::Tensor;
use sardana_cuda::reference::tensors::{pack, unpack};
use sardana_cuda::{geometry, reference};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_twins::{Address, Memory, Twin};

use crate::numbers::{Any, LENGTHS, MANY, Numbers};
use crate::twin::{Found, any_geometry, in_all_orders, run, same, twin};

/// Tensors in the device's memory and their places in a gradient.
struct Placed<T> {
    offsets: Vec<usize>,
    tensors: Vec<Vec<T>>,
}

impl<T: Any + reference::Number> Placed<T> {
    /// Tensors of these lengths, with zeros between them as in a gradient.
    fn any(numbers: &mut Numbers, lengths: &[usize]) -> (Self, Vec<u8>) {
        let tensors: Vec<Vec<T>> = lengths.iter().map(|&length| numbers.all(length)).collect();
        let mut offsets = Vec::new();
        let mut end = 0_usize;
        for tensor in &tensors {
            offsets.push(end);
            end = (end + size_of_val(tensor.as_slice())).next_multiple_of(64);
        }
        let elements = end.div_ceil(size_of::<T>());
        let gradient = bytemuck::cast_slice(&numbers.all::<T>(elements)).to_vec();
        (Self { offsets, tensors }, gradient)
    }

    /// Runs a kernel, and returns the gradient and the tensors.
    fn run(
        &self,
        at: (&Twin, u64),
        kernel: Kernel,
        gradient: &[u8],
        add: bool,
        geometry: Option<geometry::Geometry>,
    ) -> Result<Both<T>, Found> {
        let mut memory = Memory::new();
        // By elements, since that is how it is written.
        let flat: Vec<T> = bytemuck::pod_collect_to_vec(gradient);
        let flat = memory.holding(&flat);
        let addresses: Vec<Address> = self.tensors.iter().map(|tensor| memory.holding(tensor)).collect();
        let rows = addresses.iter().zip(&self.offsets).zip(&self.tensors);
        let rows: Vec<_> = rows
            .map(|((at, &offset), tensor)| (at.get(), offset as u64, tensor.len() as u64))
            .collect();
        let (table, tiles) = Tensor::table(&rows);
        let table_at = memory.constant(&table);
        let arguments = [
            flat.into(),
            table_at.into(),
            (table.len() as u32).into(),
            tiles.into(),
            u32::from(add).into(),
        ];
        let geometry = geometry::tiles(tiles).and(geometry);
        run(at, kernel, geometry, &mut memory, &arguments)?;
        let tensors = addresses
            .iter()
            .zip(&self.tensors)
            .map(|(&at, tensor)| memory.read(at, tensor.len()));
        Ok((memory.read(flat, gradient.len()), tensors.collect()))
    }

    fn slices(&self) -> Vec<(usize, &[T])> {
        self.offsets
            .iter()
            .copied()
            .zip(self.tensors.iter().map(Vec::as_slice))
            .collect()
    }
}

/// A gradient's bytes, and tensors.
type Both<T> = (Vec<u8>, Vec<Vec<T>>);

fn check_type<T: Any + reference::Number + std::fmt::Debug>(
    at: (&Twin, u64),
    pack_it: Kernel,
    unpack_it: Kernel,
) -> Result<(), Found> {
    let mut numbers = Numbers::new(at.1);
    let lengths: Vec<usize> = LENGTHS.into_iter().chain([1_023, 1_024, 1_025, 0, 2_500, 1, 0]).collect();
    let (placed, gradient) = Placed::<T>::any(&mut numbers, &lengths);
    for add in [false, true] {
        let mut expected = gradient.clone();
        pack(&mut expected, &placed.slices(), add);
        let (packed, tensors) = placed.run(at, pack_it, &gradient, add, any_geometry(at.1))?;
        same(pack_it.name, &packed, &expected)?;
        same("tensors stay", &tensors.concat(), &placed.tensors.concat())?;

        let mut expected = placed.tensors.clone();
        let mut slices: Vec<_> = placed
            .offsets
            .iter()
            .copied()
            .zip(expected.iter_mut().map(Vec::as_mut_slice))
            .collect();
        unpack(&gradient, &mut slices, add);
        let (packed, tensors) = placed.run(at, unpack_it, &gradient, add, any_geometry(at.1))?;
        same(unpack_it.name, &tensors.concat(), &expected.concat())?;
        same("the gradient stays", &packed, &gradient)?;
    }
    Ok(())
}

pub(crate) fn check(twin: &Twin, seed: u64) -> Result<(), Found> {
    check_type::<f32>((twin, seed), PACK_F32, UNPACK_F32)?;
    check_type::<f64>((twin, seed), PACK_F64, UNPACK_F64)
}

#[test]
fn tensors_go_where_they_belong_in_any_order_and_geometry() {
    in_all_orders(Module::Tensors, check);
}

#[test]
fn tensors_are_packed_as_a_writer_writes_them() {
    let Some(twin) = twin(Module::Tensors) else { return };
    let mut numbers = Numbers::new(11);
    let lengths = [MANY, 3, 0, 40_000];
    let specs = lengths.iter().enumerate();
    let specs = specs.map(|(tensor, &length)| TensorSpec::new(tensor.to_string(), Dtype::F32, &[length]));
    let layout = Layout::new(specs.collect(), 0).unwrap();
    let mut buffer = GradientBuffer::zeros(&layout);
    let mut gradient = buffer.bytes().to_vec();
    for mode in [WriteMode::Store, WriteMode::Add, WriteMode::Add] {
        let (placed, _) = Placed::<f32>::any(&mut numbers, &lengths);
        let mut writer = buffer.writer(&layout, mode);
        for (tensor, values) in placed.tensors.iter().enumerate() {
            writer.write_f32(tensor, values).unwrap();
        }
        writer.samples(0).unwrap();
        writer.finish().unwrap();
        let geometry = any_geometry(3);
        gradient = placed
            .run((twin, 3), PACK_F32, &gradient, mode == WriteMode::Add, geometry)
            .unwrap()
            .0;
        assert!(gradient == buffer.bytes(), "{mode:?}");
    }
}
