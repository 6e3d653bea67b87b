//! Running sums, against their references, `reduce`, and a group's reduction of halves.

use half::{bf16, f16};
use sardana_collectives::group::{Element, Group, Order, Reduction};
use sardana_collectives::layout::Layout;
use sardana_collectives::reduce;
use sardana_cuda::kernels::{Kernel, Module, NARROW_BF16, NARROW_F16, SUM_BF16, SUM_F16, SUM_F32, SUM_F32X4, SUM_F64};
use sardana_cuda::parameters::Shards;
use sardana_cuda::{geometry, reference};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_twins::{Argument, Memory, Twin};

use crate::numbers::{Any, LENGTHS, MANY, Numbers};
use crate::twin::{Found, any_geometry, in_all_orders, run, same, twin};

/// Adds shards to a running sum as a launch does.
struct Sum<'a, R, S> {
    kernel: Kernel,
    running: &'a [R],
    shards: &'a [Vec<S>],
    /// Whether the result takes the running sum's place.
    in_place: bool,
}

impl<R: Any, S: Any> Sum<'_, R, S>
where
    R: bytemuck::AnyBitPattern,
{
    fn run(&self, twin: &Twin, seed: u64, geometry: Option<geometry::Geometry>) -> Result<Vec<R>, Found> {
        let length = self.running.len();
        let mut memory = Memory::new();
        let at: Vec<u64> = self.shards.iter().map(|shard| memory.constant(shard).get()).collect();
        let (mut running, out) = if self.in_place {
            let both = memory.holding(self.running);
            (both, both)
        } else {
            (memory.constant(self.running), memory.room::<R>(length))
        };
        // Without shards it is a copy, and a launch all the same.
        let none = || (Shards { at: [0; 32] }, 0);
        let launches: Vec<_> = Shards::launches(&at).collect();
        let launches = if launches.is_empty() { vec![none()] } else { launches };
        for (shards, count) in launches {
            let arguments = [
                out.into(),
                running.into(),
                Argument::value(&shards),
                count.into(),
                (length as u64).into(),
            ];
            run((twin, seed), self.kernel, geometry, &mut memory, &arguments)?;
            running = out;
        }
        Ok(memory.read(out, length))
    }
}

fn slices<T>(shards: &[Vec<T>]) -> Vec<&[T]> {
    shards.iter().map(Vec::as_slice).collect()
}

pub(crate) fn check(twin: &Twin, seed: u64) -> Result<(), Found> {
    let mut numbers = Numbers::new(seed);
    let in_place = seed.is_multiple_of(2);
    for length in LENGTHS {
        let count = [0, 1, 3, 8, 33][numbers.below(5) as usize];
        macro_rules! compare {
            ($running:ty, $shard:ty, $reference:ident, $($kernel:ident),*) => {{
                let running: Vec<$running> = numbers.all(length);
                let shards: Vec<Vec<$shard>> = (0..count).map(|_| numbers.all(length)).collect();
                let mut expected = running.clone();
                reference::sums::$reference(&mut expected, &slices(&shards));
                for kernel in [$($kernel),*] {
                    let sum = Sum { kernel, running: &running, shards: &shards, in_place };
                    let found = sum.run(twin, seed, any_geometry(seed))?;
                    same(&format!("{} of {count} shards", kernel.name), &found, &expected)?;
                }
            }};
        }
        compare!(f32, f32, sum_f32, SUM_F32, SUM_F32X4);
        compare!(f64, f64, sum_f64, SUM_F64);
        compare!(f32, bf16, sum_bf16, SUM_BF16);
        compare!(f32, f16, sum_f16, SUM_F16);
    }
    Ok(())
}

#[test]
fn sums_are_their_references_in_any_order_and_geometry() {
    in_all_orders(Module::Sums, check);
}

/// What `reduce` makes of one tensor of this type.
fn reduced<T: Any>(dtype: Dtype, running: &[T], shards: &[Vec<T>]) -> Vec<u8> {
    let layout = Layout::new(vec![TensorSpec::new("all", dtype, &[running.len()])], 0).expect("one tensor is a gradient");
    let mut bytes = bytemuck::cast_slice(running).to_vec();
    let mut shards: Vec<&[u8]> = shards.iter().map(|shard| bytemuck::cast_slice(shard)).collect();
    reduce::add_all(&layout, 0..bytes.len(), &mut bytes, &mut shards);
    bytes
}

#[test]
fn many_elements_are_added_as_without_a_device() {
    let Some(twin) = twin(Module::Sums) else { return };
    let mut numbers = Numbers::new(5);
    let (running, shards): (Vec<f32>, Vec<Vec<f32>>) = (numbers.all(MANY), (0..3).map(|_| numbers.all(MANY)).collect());
    for (kernel, geometry) in [(SUM_F32, any_geometry(3)), (SUM_F32X4, geometry::elements(MANY as u64 / 4))] {
        let sum = Sum {
            kernel,
            running: &running,
            shards: &shards,
            in_place: false,
        };
        let found = sum.run(twin, 1, geometry).unwrap();
        assert!(
            bytemuck::cast_slice::<f32, u8>(&found) == reduced(Dtype::F32, &running, &shards),
            "{}",
            kernel.name
        );
    }
    let (running, shards): (Vec<f64>, Vec<Vec<f64>>) = (numbers.all(MANY), (0..2).map(|_| numbers.all(MANY)).collect());
    let sum = Sum {
        kernel: SUM_F64,
        running: &running,
        shards: &shards,
        in_place: true,
    };
    let found = sum.run(twin, 2, any_geometry(3)).unwrap();
    assert!(bytemuck::cast_slice::<f64, u8>(&found) == reduced(Dtype::F64, &running, &shards));
}

/// What a group of as many ranks as there are values makes of them, each rank in a thread.
pub(crate) fn grouped<E: Element + Any>(values: &[Vec<E>], order: Order, prepare: impl Fn(&mut Group)) -> Vec<E> {
    let mut groups = Group::in_process(values.len() as u32);
    groups.iter_mut().for_each(prepare);
    std::thread::scope(|scope| {
        let ranks = groups.into_iter().zip(values).map(|(mut group, own)| {
            scope.spawn(move || {
                let mut own = own.clone();
                group.all_reduce(&mut own, Reduction::Sum, order).expect("all ranks call");
                group.close().expect("all ranks close");
                own
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks
            .into_iter()
            .map(|rank| rank.join().expect("no rank panics"))
            .next_back()
            .expect("there are ranks")
    })
}

#[test]
fn halves_are_added_as_a_group_adds_them() {
    let (Some(sums), Some(halves)) = (twin(Module::Sums), twin(Module::Halves)) else {
        return;
    };
    let mut numbers = Numbers::new(6);
    macro_rules! compare {
        ($half:ty, $sum:ident, $narrow:ident, $widened:ident) => {{
            let ranks: Vec<Vec<$half>> = (0..4).map(|_| numbers.all(MANY)).collect();
            let running = reference::halves::$widened(&ranks[0]);
            let sum = Sum {
                kernel: $sum,
                running: &running,
                shards: &ranks[1..],
                in_place: true,
            };
            let sum = sum.run(sums, 3, any_geometry(3)).unwrap();
            let mut memory = Memory::new();
            let (values, out) = (memory.constant(&sum), memory.room::<$half>(sum.len()));
            let arguments = [out.into(), values.into(), (sum.len() as u64).into()];
            run((halves, 3), $narrow, any_geometry(3), &mut memory, &arguments).unwrap();
            let found: Vec<$half> = memory.read(out, sum.len());
            same("halves", &found, &grouped(&ranks, Order::Exact, |_| {})).unwrap();
        }};
    }
    compare!(bf16, SUM_BF16, NARROW_BF16, widen_bf16);
    compare!(f16, SUM_F16, NARROW_F16, widen_f16);
}
