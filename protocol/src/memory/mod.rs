//! How many gradients a worker's memory holds, and whether workers like it can ever hold a job's.
//!
//! In exact order a worker keeps the gradient of each of its shards apart until the running sum comes by: a [piece](crate::words) each. The
//! shards from 0 on share one piece, whatever their number, since there the running sum is known; in fast order any run of shards does. So
//! the first rank, and a worker that is alone, needs little memory for any K. Beside its pieces a worker has the last sum and the one that
//! is being filled, and while another joins it keeps some sums more: room that also serves where a sum that it has borrowed is gathered for a member that is behind.
//! What its [links](links_hold) may hold is taken off first.

mod device;
mod links;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::job::Order;
use crate::limits::{KEEP_BYTES, KEEP_LEAST};

pub use device::{DeviceMemory, DeviceTooSmall, SHARERS_VARIABLE};
pub use links::{Windows, link_keeps, link_receives, link_sends, links_hold};

/// Gradient buffers in use besides those of pieces: the sum that is kept, and the one that the ring fills.
pub const SUMS: u32 = 2;

/// What a worker says of its memory for gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GradientMemory {
    /// Bytes of one gradient.
    pub gradient: u64,
    /// How many bytes gradients and sums may take together; [`u64::MAX`] if that is not known, or left to a capacity that a person has set.
    pub room: u64,
    /// How many bytes its links may hold besides.
    pub links: u64,
}

/// The job that a worker comes to, as far as it decides how much memory a worker needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// In which order it adds.
    pub order: Order,
    /// K.
    pub shards: u32,
    /// How many workers compute at most.
    pub workers: u32,
}

/// Why workers like this one cannot hold a step's gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLittle {
    memory: GradientMemory,
    lacks: Lacks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    /// Room for one gradient.
    One,
    /// Room for all, among as many workers as there may be, each of which holds `most`.
    All { demand: Demand, most: u32 },
}

impl std::error::Error for TooLittle {}

impl fmt::Display for TooLittle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GradientMemory { gradient, room, links } = self.memory;
        let all = |gradients: u32| Bytes(gradient.saturating_mul(u64::from(gradients)));
        write!(f, "a gradient has {}", Bytes(gradient))?;
        let (demand, most) = match self.lacks {
            Lacks::All { demand, most } => (demand, most),
            Lacks::One => {
                return write!(
                    f,
                    " and a worker needs {}, room for its own, the last sum and the next; this one has {} for gradients, beside \
                     {} that its links may hold: give it more memory, start fewer workers on its host, or set .shard_capacity if it has \
                     more than it knows of",
                    all(LEAST),
                    Bytes(room),
                    Bytes(links)
                );
            }
        };
        let Demand { shards, workers, .. } = demand;
        let each = shards.div_ceil(workers.max(1));
        write!(
            f,
            "; with K = {shards} shards each of at most N = {workers} workers would hold {each}, which want {}, and this one holds {most}",
            all(each)
        )?;
        if self.memory.is_known() {
            let (room, links) = (Bytes(room), Bytes(links));
            write!(
                f,
                " (it has {room}, {SUMS} gradients of it for sums, beside {links} that its links may hold)"
            )?;
        }
        write!(
            f,
            ": set fewer shards (up to {}), let more workers take part (.max_workers, --max; {} or more), give them more memory, or set \
             a larger .shard_capacity if they have it",
            held_by_all(most, workers),
            shards.div_ceil(most.max(1))
        )
    }
}

/// The fewest gradients that a worker must hold at once: one piece, and the sums.
const LEAST: u32 = SUMS + 1;

/// How many shards so many workers hold that hold so many each.
fn held_by_all(most: u32, workers: u32) -> u64 {
    u64::from(most) * u64::from(workers)
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// How many sums of this many bytes a worker keeps for joiners that follow.
#[must_use]
pub fn sums_kept(gradient: u64) -> u32 {
    narrow(KEEP_BYTES / gradient.max(1)).max(KEEP_LEAST)
}

impl GradientMemory {
    /// As much as wanted.
    #[must_use]
    pub const fn unbounded(gradient: u64) -> Self {
        Self {
            gradient,
            room: u64::MAX,
            links: 0,
        }
    }

    /// What is left for gradients of so many bytes where they and the links may take `bytes` together; [`u64::MAX`] if that is not known. At
    /// least what any worker may keep of sums: so much is not worth a refusal.
    #[must_use]
    pub fn beside_links(gradient: u64, bytes: u64, windows: Windows) -> Self {
        let links = links_hold(gradient, windows);
        let room = match bytes {
            u64::MAX => u64::MAX,
            known => known.saturating_sub(links).max(KEEP_BYTES),
        };
        Self { gradient, room, links }
    }

    /// Whether the room is more than a word for as much as wanted.
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.room < u64::MAX
    }

    /// How many gradients there is room for, besides the sums of every step.
    fn gradients(self) -> u32 {
        narrow((self.room / self.gradient.max(1)).saturating_sub(u64::from(SUMS)))
    }

    /// How many pieces it holds in a generation: what is left beside the sums, also those that are kept while another joins. One, if there
    /// is less: a worker that holds one can take part, and gives up sums that it has no room for.
    #[must_use]
    pub fn pieces(self) -> u32 {
        self.gradients().saturating_sub(sums_kept(self.gradient)).max(1)
    }

    fn lacks(self, lacks: Lacks) -> TooLittle {
        TooLittle { memory: self, lacks }
    }

    /// Whether workers like this one, none of which is given more than `capacity` shards, hold a step's gradients between them. A worker
    /// that is alone, and any in fast order, adds as it computes. Of several in exact order the first could, and compute what the others
    /// cannot hold, while they wait: good enough where others were lost, but nothing to begin with.
    ///
    /// # Errors
    /// [`TooLittle`] if they cannot.
    pub fn suffices(self, demand: Demand, capacity: u32) -> Result<(), TooLittle> {
        let gradients = self.gradients();
        if gradients == 0 {
            return Err(self.lacks(Lacks::One));
        }
        // More workers than shards are no help.
        let workers = demand.workers.clamp(1, demand.shards.max(1));
        let demand = Demand { workers, ..demand };
        let one_piece = demand.order == Order::Fast || workers == 1;
        let most = if one_piece { capacity } else { capacity.min(gradients) };
        if held_by_all(most, workers) < u64::from(demand.shards) {
            return Err(self.lacks(Lacks::All { demand, most }));
        }
        Ok(())
    }
}

/// A number of bytes for people, never more than there are: `512 GiB`, `1.5 GiB`, `24 B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut unit = 0;
        while unit + 1 < UNITS.len() && self.0 >> (10 * (unit + 1)) > 0 {
            unit += 1;
        }
        let whole = self.0 >> (10 * unit);
        let rest = u128::from(self.0) - (u128::from(whole) << (10 * unit));
        match (rest * 10) >> (10 * unit) {
            0 => write!(f, "{whole} {}", UNITS[unit]),
            tenth => write!(f, "{whole}.{tenth} {}", UNITS[unit]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn has(gibs: u64) -> GradientMemory {
        GradientMemory {
            gradient: GIB,
            room: gibs * GIB,
            links: 0,
        }
    }

    fn among(workers: u32, shards: u32) -> Demand {
        Demand {
            order: Order::Exact,
            shards,
            workers,
        }
    }

    fn refused(memory: GradientMemory, demand: Demand, capacity: u32) -> String {
        memory.suffices(demand, capacity).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_fit_is_told_with_its_sizes() {
        let words = refused(has(64), among(8, 4_096), 4_096);
        for part in [
            "1 GiB",
            "K = 4096",
            "N = 8",
            "would hold 512, which want 512 GiB",
            "holds 62",
            "it has 64 GiB",
            "up to 496",
            "67 or more",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert!(refused(has(513), among(8, 4_096), 4_096).contains("holds 511"));
        assert_eq!(has(514).suffices(among(8, 4_096), 4_096), Ok(()));
        assert_eq!(has(64).suffices(among(67, 4_096), 4_096), Ok(()), "more workers hold it");
        assert_eq!(has(64).suffices(among(8, 496), 496), Ok(()), "fewer shards fit");
    }

    #[test]
    fn a_worker_whose_room_holds_the_gradients_but_not_the_links_is_refused_with_both_sizes() {
        let windows = Windows {
            unread: 16 << 20,
            unacknowledged: 32 << 20,
        };
        let links = links_hold(GIB, windows);
        let memory = |bytes| GradientMemory::beside_links(GIB, bytes, windows);
        let words = refused(memory(3 * GIB), among(1, 8), 8);
        for part in [
            "needs 3 GiB",
            "this one has 2.6 GiB",
            "beside ",
            " MiB that its links may hold",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert!(words.contains(&Bytes(links).to_string()), "{words}");
        assert_eq!(memory(3 * GIB + links).suffices(among(1, 8), 8), Ok(()));
        // Too little to be worth a refusal, and what is not known.
        let small = GradientMemory::beside_links(1 << 20, 0, windows);
        assert_eq!((small.room, small.suffices(among(1, 8), 8)), (KEEP_BYTES, Ok(())));
        assert!(!memory(u64::MAX).is_known());
    }

    #[test]
    fn who_adds_as_it_computes_needs_little_for_any_number_of_shards() {
        assert_eq!(has(3).suffices(among(1, 4_096), 4_096), Ok(()));
        let fast = Demand {
            order: Order::Fast,
            ..among(8, 4_096)
        };
        assert_eq!(has(3).suffices(fast, 4_096), Ok(()));
        for demand in [among(1, 1), among(8, 4_096), fast] {
            let words = refused(has(2), demand, 4_096);
            assert!(words.contains("needs 3 GiB") && words.contains("has 2 GiB"), "{words}");
        }
        // More workers than shards are no help, and a single one is not held to be several.
        assert_eq!(has(3).suffices(among(1_024, 8), 8), Ok(()));
        assert_eq!(has(3).suffices(among(1_024, 1), 1), Ok(()));
    }

    #[test]
    fn a_capacity_that_a_person_has_set_is_believed() {
        let unknown = GradientMemory::unbounded(GIB);
        assert_eq!(unknown.suffices(among(8, 4_096), 512), Ok(()));
        let words = refused(unknown, among(8, 4_096), 511);
        assert!(words.contains("holds 511:"), "{words}");
        assert!(refused(unknown, among(1, 8), 7).contains("N = 1 "));
    }

    #[test]
    fn pieces_leave_room_for_sums() {
        assert_eq!(has(64).pieces(), 64 - SUMS - KEEP_LEAST);
        assert_eq!(has(3).pieces(), 1, "who holds one can take part");
        let small = GradientMemory {
            gradient: 1 << 20,
            room: GIB,
            links: 0,
        };
        assert_eq!(small.pieces(), 1_024 - SUMS - 256);
    }

    #[test]
    fn sums_are_kept_up_to_a_bound_of_bytes() {
        assert_eq!(sums_kept(KEEP_BYTES / 10), 10);
        assert_eq!(sums_kept(KEEP_BYTES), KEEP_LEAST);
        assert_eq!(sums_kept(0), u32::try_from(KEEP_BYTES).unwrap());
    }

    #[test]
    fn no_number_is_too_large_to_be_reckoned_with() {
        for gradient in [0, 1, u64::MAX] {
            for room in [0, 1, u64::MAX] {
                let memory = GradientMemory {
                    gradient,
                    room,
                    links: u64::MAX,
                };
                assert!(memory.pieces() > 0);
                for demand in [among(0, 0), among(u32::MAX, u32::MAX), among(2, u32::MAX)] {
                    for capacity in [0, 1, u32::MAX] {
                        let _ = memory.suffices(demand, capacity).map_err(|error| error.to_string());
                    }
                }
            }
        }
    }

    #[test]
    fn bytes_are_written_for_people_and_never_as_more() {
        for (bytes, words) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_536, "1.5 KiB"),
            ((1 << 20) - 1, "1023.9 KiB"),
            (512 * GIB, "512 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), words);
        }
    }
}
