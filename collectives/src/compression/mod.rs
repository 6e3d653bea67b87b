//! Numbers of 32 bits as 16 on their way between ranks ([`Compression`]): a sum over ranks is received as halves, widened, added to in f32, and
//! rounded to halves again for the next rank. Knows bytes and where elements lie in a gradient; no ranks and no links.
//!
//! # What it costs
//!
//! Rounding to the nearest half of a number of normal magnitude is exact but for a factor: `round(x) = x (1 + δ)`, `|δ| ≤ u`, where the unit
//! roundoff u is half the distance of neighbours at 1, and so is an addition of f32 with v:
//!
//! | | significant bits | unit roundoff | largest number | normal from | below: each rounding adds at most |
//! |---|---|---|---|---|---|
//! | bf16 | 8 | u = 2⁻⁸ ≈ 0.39 % | 3.39 · 10³⁸ | 2⁻¹²⁶ | 2⁻¹³⁴ |
//! | f16 | 11 | u = 2⁻¹¹ ≈ 0.049 % | 65,504 | 2⁻¹⁴ ≈ 6.1 · 10⁻⁵ | 2⁻²⁵ ≈ 3 · 10⁻⁸ |
//! | f32 | 24 | v = 2⁻²⁴ | | | |
//!
//! Of n ≥ 2 ranks with the values x₁ … xₙ for one element, in the order in which the ring comes to them, the result is r where
//!
//! ```text
//! r₁ = round(x₁)      rₖ = round(rₖ₋₁ + xₖ)      r = rₙ
//! ```
//! since the rank that finishes a sum keeps what it passes on, so that all ranks end with the same bits. (In a job xₖ is what a rank's own shards
//! sum to, in f32, which errs by itself.) Each x is rounded to halves at most n
//! times, and at most n - 1 times to f32 (in a job at most as many times as gradients are added). A product of m such factors is 1 + θ with `|θ| ≤ γ(m) = m u / (1 - m u)` as long as m u < 1, so that
//!
//! ```text
//! |r - Σ xₖ|  ≤  γ Σ |xₖ|      1 + γ = (1 + u)ⁿ (1 + v)ⁿ⁻¹      γ ≤ n (u + v) / (1 - n (u + v))
//! ```
//! (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, 2002, Lemma 3.1 and section 4.2). For eight ranks that is 3.2 % of
//! Σ |xₖ| in bf16 and 0.39 % in f16, at worst; roundings that do not conspire come to about √n in place of n. Where numbers are smaller
//! than normal ones, n times the table's last column, times 1 + γ, is added. A mean is rounded once more in f32, before its last rounding.
//!
//! So much for finite results. What is half a unit or more beyond the largest half (65,520 for f16) becomes infinite, as IEEE 754 says, and so do
//! sums that it is added to, but for an infinity of the other sign; what is not a number becomes the one NaN of its type. One rank alone sends nothing, and rounds nothing.
//!
//! It pays where a byte on its way costs more than to round it: over QUIC, even within a host, and not through memory that ranks share.

mod gradient;
mod kernels;
#[cfg(test)]
mod tests;

use sardana_protocol::job::Compression;

pub use kernels::instructions;

use crate::limits::TILE_BYTES;

/// The type of halves that f32 travel as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Bf16,
    F16,
}

/// Bytes of a half.
pub(crate) const HALF_BYTES: usize = 2;

impl Half {
    /// As what f32 travel; none if as they are.
    pub(crate) const fn of(compression: Compression) -> Option<Self> {
        match compression {
            Compression::None => None,
            Compression::Bf16 => Some(Self::Bf16),
            Compression::F16 => Some(Self::F16),
        }
    }

    /// Rounds each f32 to the nearest half, and to an even one between two. All bytes are little-endian; `out` is half as long.
    pub(crate) fn narrow(self, values: &[u8], out: &mut [u8]) {
        debug_assert_eq!(values.len(), out.len() * 2, "a half for each f32");
        match self {
            Self::Bf16 => kernels::narrow_bf16(values, out),
            Self::F16 => kernels::narrow_f16(values, out),
        }
    }

    /// The f32 that each half is: every one is.
    pub(crate) fn widen(self, halves: &[u8], out: &mut [u8]) {
        debug_assert_eq!(halves.len() * 2, out.len(), "an f32 for each half");
        match self {
            Self::Bf16 => kernels::widen_bf16(halves, out),
            Self::F16 => kernels::widen_f16(halves, out),
        }
    }

    /// Makes each f32 what the other ranks get of it.
    pub(crate) fn round(self, values: &mut [u8]) {
        let mut halves = [0; TILE_BYTES / 2];
        for tile in values.chunks_mut(TILE_BYTES) {
            let halves = &mut halves[..tile.len() / 2];
            self.narrow(tile, halves);
            self.widen(halves, tile);
        }
    }
}
