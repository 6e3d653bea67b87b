//! The functions that curves are made of, by operations that IEEE 754 fixes to the bit: `powf` and `cos` are the system's, and their
//! last bit depends on the version of the C library and on the processor, neither of which may reach a parameter.

use std::f64::consts::FRAC_PI_2;

/// Bits of a fraction that are looked at; a power of less than 2⁻⁶⁴ is 1 for every base that f64 has.
const FRACTION_BITS: u32 = 64;

/// Terms of the cosine's series: at π/2 the first that is left out is below 1e-18.
const COSINE_TERMS: u32 = 12;

/// `base` to the power of a part of 1: a product of those of its square roots that the part, written in binary, names.
pub(super) fn fractional_power(base: f64, part: f64) -> f64 {
    let (mut root, mut left, mut product) = (base, part, 1.0);
    for _ in 0..FRACTION_BITS {
        root = root.sqrt();
        left *= 2.0;
        if left >= 1.0 {
            left -= 1.0;
            product *= root;
        }
    }
    product
}

/// (1 + cos πx)/2, which falls from 1 at 0 to 0 at 1: the square of cos(πx/2), whose series converges fast on all of 0..=1.
pub(super) fn half_cosine(part: f64) -> f64 {
    let angle = FRAC_PI_2 * part;
    let (mut term, mut cosine) = (1.0, 1.0);
    for number in 1..COSINE_TERMS {
        let last = f64::from(2 * number);
        term *= -(angle * angle) / (last * (last - 1.0));
        cosine += term;
    }
    cosine * cosine
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::*;

    #[test]
    fn fractional_powers_are_those_of_the_mathematical_library() {
        for base in [1e-12, 0.1, 0.5, 0.97, 1.0, 1.5, 1e12] {
            for part in [0.0, 1e-25, 1e-9, 0.1, 1.0 / 3.0, 0.5, 0.875, 0.999_999, 1.0] {
                let (found, expected) = (fractional_power(base, part), base.powf(part));
                // 53 factors of half a unit in the last place each, and as many roots.
                assert!(
                    (found - expected).abs() <= 1e-14 * expected,
                    "{base}^{part}: {found}, {expected}"
                );
            }
        }
        assert_eq!(fractional_power(0.0, 0.0), 1.0);
        assert_eq!(fractional_power(0.0, 0.25), 0.0);
    }

    #[test]
    fn the_half_cosine_is_that_of_the_mathematical_library() {
        for step in 0..=1_000 {
            let part = f64::from(step) / 1_000.0;
            let (found, expected) = (half_cosine(part), f64::midpoint(1.0, (PI * part).cos()));
            assert!((found - expected).abs() <= 1e-15, "{part}: {found}, {expected}");
            assert!((0.0..=1.0).contains(&found), "{part}: {found}");
        }
        assert_eq!(half_cosine(0.0), 1.0);
    }
}
