//! f32 as halves and back, against their references, and what a group sends.

use half::{bf16, f16};
use sardana_collectives::group::{Compression, Order};
use sardana_cuda::kernels::{Kernel, Module, NARROW_BF16, NARROW_F16, WIDEN_BF16, WIDEN_F16};
use sardana_cuda::reference;
use sardana_twins::{Memory, Twin};

use crate::numbers::{Any, LENGTHS, MANY, Numbers};
use crate::sums::grouped;
use crate::twin::{Found, any_geometry, in_all_orders, run, same, twin};

fn converted<From: Any, To: Any + bytemuck::AnyBitPattern>(
    (twin, seed): (&Twin, u64),
    kernel: Kernel,
    from: &[From],
) -> Result<Vec<To>, Found> {
    let mut memory = Memory::new();
    let (values, out) = (memory.constant(from), memory.room::<To>(from.len()));
    let arguments = [out.into(), values.into(), (from.len() as u64).into()];
    run((twin, seed), kernel, any_geometry(seed), &mut memory, &arguments)?;
    Ok(memory.read(out, from.len()))
}

/// f32 that are halves, lie in the middle between two, or beside it, and any others.
fn about_halves(numbers: &mut Numbers, length: usize) -> Vec<f32> {
    let mut values: Vec<f32> = numbers.all(length);
    for value in &mut values {
        let half = match numbers.below(3) {
            0 => numbers.next() as u32 & 0xffff_0000,
            1 => f16::from_bits(numbers.next() as u16).to_f32().to_bits(),
            _ => continue,
        };
        let off = [0, 1, 0x1000, 0xfff, 0x1001, 0x8000, 0x7fff, 0x8001][numbers.below(8) as usize];
        *value = f32::from_bits(half.wrapping_add(off));
    }
    values
}

pub(crate) fn check(twin: &Twin, seed: u64) -> Result<(), Found> {
    let at = (twin, seed);
    let mut numbers = Numbers::new(seed);
    for length in LENGTHS {
        let values = about_halves(&mut numbers, length);
        let (short, long): (Vec<bf16>, Vec<f16>) = (numbers.all(length), numbers.all(length));
        use reference::halves::{narrow_bf16, narrow_f16, widen_bf16, widen_f16};
        same(
            "narrow_bf16",
            &converted::<_, bf16>(at, NARROW_BF16, &values)?,
            &narrow_bf16(&values),
        )?;
        same(
            "narrow_f16",
            &converted::<_, f16>(at, NARROW_F16, &values)?,
            &narrow_f16(&values),
        )?;
        same(
            "widen_bf16",
            &converted::<_, f32>(at, WIDEN_BF16, &short)?,
            &widen_bf16(&short),
        )?;
        same("widen_f16", &converted::<_, f32>(at, WIDEN_F16, &long)?, &widen_f16(&long))?;
    }
    Ok(())
}

#[test]
fn conversions_are_their_references_in_any_order_and_geometry() {
    in_all_orders(Module::Halves, check);
}

#[test]
fn all_halves_widen_and_narrow_to_themselves() {
    let Some(twin) = twin(Module::Halves) else { return };
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let at = (twin, 8);
    let short: Vec<bf16> = all.iter().copied().map(bf16::from_bits).collect();
    let wide: Vec<f32> = converted(at, WIDEN_BF16, &short).unwrap();
    same("all bf16", &wide, &reference::halves::widen_bf16(&short)).unwrap();
    let back: Vec<bf16> = converted(at, NARROW_BF16, &wide).unwrap();
    assert!(
        short
            .iter()
            .zip(&back)
            .all(|(from, to)| if from.is_nan() { to.to_bits() == 0x7fc0 } else { from == to })
    );
    let long: Vec<f16> = all.iter().copied().map(f16::from_bits).collect();
    let wide: Vec<f32> = converted(at, WIDEN_F16, &long).unwrap();
    same("all f16", &wide, &reference::halves::widen_f16(&long)).unwrap();
    let back: Vec<f16> = converted(at, NARROW_F16, &wide).unwrap();
    assert!(
        long.iter()
            .zip(&back)
            .all(|(from, to)| if from.is_nan() { to.to_bits() == 0x7e00 } else { from == to })
    );
}

#[test]
fn many_are_rounded_as_what_a_group_sends() {
    let Some(twin) = twin(Module::Halves) else { return };
    let values = about_halves(&mut Numbers::new(9), MANY);
    // The first of two ranks sends its values as halves, and -0.0 added to them changes none.
    let ranks = [values.clone(), vec![-0.0; MANY]];
    let at = (twin, 3);
    let halves: Vec<bf16> = converted(at, NARROW_BF16, &values).unwrap();
    let found: Vec<f32> = converted(at, WIDEN_BF16, &halves).unwrap();
    let sent = grouped(&ranks, Order::Fast, |group| group.compress(Compression::Bf16));
    same("bf16 on their way", &found, &sent).unwrap();
    let halves: Vec<f16> = converted(at, NARROW_F16, &values).unwrap();
    let found: Vec<f32> = converted(at, WIDEN_F16, &halves).unwrap();
    let sent = grouped(&ranks, Order::Fast, |group| group.compress(Compression::F16));
    same("f16 on their way", &found, &sent).unwrap();
}
