//! Powers by multiplication alone. `f64::powf` is the system's: its last bit depends on the version of the C library and on the
//! processor, neither of which may reach a parameter.

/// `base` to a whole power, by repeated squaring. 0 to the power of 0 is 1.
///
/// The relative error grows with the exponent, by about 1e-16 each; a base below 1 has vanished long before that is visible.
pub(crate) fn power(base: f64, exponent: u64) -> f64 {
    let (mut square, mut left, mut product) = (base, exponent, 1.0);
    while left > 0 {
        if left & 1 == 1 {
            product *= square;
        }
        square *= square;
        left >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_those_of_the_mathematical_library() {
        for base in [0.0, 1e-3, 0.5, 0.9, 0.999, 1.0, 1.0 + 1e-9, 2.0] {
            for exponent in [0, 1, 2, 3, 10, 63, 1_000, 1_000_000] {
                let (found, expected) = (power(base, exponent), base.powf(exponent as f64));
                let tolerance = 1e-15 * (1.0 + exponent as f64);
                let close = (found - expected).abs() <= tolerance * expected;
                assert!(
                    close || found.to_bits() == expected.to_bits(),
                    "{base}^{exponent}: {found}, {expected}"
                );
            }
        }
    }

    #[test]
    fn the_largest_exponent_vanishes_or_overflows_but_is_a_number() {
        assert_eq!(power(0.999, u64::MAX), 0.0);
        assert_eq!(power(1.0, u64::MAX), 1.0);
        assert_eq!(power(1.001, u64::MAX), f64::INFINITY);
        assert_eq!(power(0.0, u64::MAX), 0.0);
    }
}
