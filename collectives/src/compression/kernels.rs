//! The conversions themselves. Each loop is compiled several times, and the processor decides which one runs: they differ in how many elements an
//! instruction takes, and not in what becomes of an element. That is whole numbers' arithmetic and one addition of f32, without branches.

/// Bits of an f32 but for its sign.
const MAGNITUDE: u32 = 0x7fff_ffff;

/// Exponents of 0, of the least normal f16 and of the first power of two that is none, in f32's bits.
const BIAS: u32 = 127 << 23;
const LEAST_NORMAL: u32 = (127 - 14) << 23;
const TOO_LARGE: u32 = (127 + 16) << 23;

/// What an f32's exponent is more than an f16's.
const MORE_BIAS: u32 = (127 - 15) << 23;

macro_rules! loops {
    ($narrow:ident, $narrow_each:ident, $narrow_one:ident, $widen:ident, $widen_each:ident, $widen_one:ident) => {
        #[multiversion::multiversion(targets("x86_64+avx512f+avx512bw+avx512vl+avx512dq", "x86_64+avx2"))]
        pub(super) fn $narrow(values: &[u8], out: &mut [u8]) {
            $narrow_each(values, out);
        }

        #[inline(always)]
        pub(super) fn $narrow_each(values: &[u8], out: &mut [u8]) {
            let (values, _) = values.as_chunks::<4>();
            let (out, _) = out.as_chunks_mut::<2>();
            for (value, out) in values.iter().zip(out) {
                *out = $narrow_one(f32::from_le_bytes(*value)).to_le_bytes();
            }
        }

        #[multiversion::multiversion(targets("x86_64+avx512f+avx512bw+avx512vl+avx512dq", "x86_64+avx2"))]
        pub(super) fn $widen(halves: &[u8], out: &mut [u8]) {
            $widen_each(halves, out);
        }

        #[inline(always)]
        pub(super) fn $widen_each(halves: &[u8], out: &mut [u8]) {
            let (halves, _) = halves.as_chunks::<2>();
            let (out, _) = out.as_chunks_mut::<4>();
            for (half, out) in halves.iter().zip(out) {
                *out = $widen_one(u16::from_le_bytes(*half)).to_le_bytes();
            }
        }
    };
}

loops!(narrow_bf16, narrow_each_bf16, to_bf16, widen_bf16, widen_each_bf16, of_bf16);
loops!(narrow_f16, narrow_each_f16, to_f16, widen_f16, widen_each_f16, of_f16);

/// The instructions that these loops use on this processor.
#[multiversion::multiversion(targets("x86_64+avx512f+avx512bw+avx512vl+avx512dq", "x86_64+avx2"))]
#[must_use]
pub fn instructions() -> &'static str {
    multiversion::target::match_target! {
        "x86_64+avx512f+avx512bw+avx512vl+avx512dq" => "AVX-512",
        "x86_64+avx2" => "AVX2",
        _ => "those that every processor of its kind has",
    }
}

/// The upper half of the bits, one more where the lower half is more than half a unit, or half a unit beside an odd number.
#[inline(always)]
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if value.is_nan() { 0x7fc0 } else { rounded as u16 }
}

#[inline(always)]
fn of_bf16(half: u16) -> f32 {
    let value = f32::from_bits(u32::from(half) << 16);
    if value.is_nan() { f32::NAN } else { value }
}

/// Normal numbers as in bf16, thirteen bits shorter and with another bias. Of smaller ones the lowest bits of the sum with 0.5, whose unit is
/// that of the smallest f16: the addition rounds them.
#[inline(always)]
fn to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, magnitude) = ((bits >> 16) as u16 & 0x8000, bits & MAGNITUDE);
    let normal = magnitude.wrapping_sub(MORE_BIAS).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
    let half = BIAS - (1 << 23);
    let small = (f32::from_bits(magnitude) + f32::from_bits(half))
        .to_bits()
        .wrapping_sub(half);
    let finite = if magnitude < LEAST_NORMAL { small } else { normal };
    let rounded = if magnitude >= TOO_LARGE { 0x7c00 } else { finite as u16 };
    if value.is_nan() { 0x7e00 } else { rounded | sign }
}

/// Normal numbers with another bias. Smaller ones are what they are more than the least normal number, when they are made its fraction.
#[inline(always)]
fn of_f16(half: u16) -> f32 {
    let (sign, magnitude) = ((u32::from(half) & 0x8000) << 16, (u32::from(half) & 0x7fff) << 13);
    let small = f32::from_bits(magnitude + LEAST_NORMAL) - f32::from_bits(LEAST_NORMAL);
    let bits = match half & 0x7c00 {
        0 => small.to_bits(),
        0x7c00 => magnitude | f32::INFINITY.to_bits(),
        _ => magnitude + MORE_BIAS,
    };
    let value = f32::from_bits(bits | sign);
    if value.is_nan() { f32::NAN } else { value }
}
