//! What a rank calls: all that must be the same on every rank of one operation. Knows its bytes, no links.

use std::fmt;

use sardana_protocol::job::{Compression, Order};
use sardana_protocol::words::Rank;

use super::element::{ElementType, Reduction};

/// One operation as one rank calls it. All ranks call the same ones, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`super::Group::all_reduce`].
    AllReduce(Reduced),
    /// [`super::Group::reduce_scatter`].
    ReduceScatter(Reduced),
    /// [`super::Group::all_gather`].
    AllGather {
        /// The type of its values.
        element: ElementType,
        /// How many they are, of all ranks together.
        length: u64,
    },
    /// [`super::Group::allgather`]: the ranks tell each other how many values each has.
    Lengths {
        /// The type of its values.
        element: ElementType,
    },
    /// [`super::Group::broadcast`].
    Broadcast {
        /// The rank whose values they are.
        root: Rank,
        /// The type of its values.
        element: ElementType,
        /// How many they are.
        length: u64,
    },
    /// [`super::Group::barrier`].
    Barrier,
}

/// What is reduced, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduced {
    /// The type of the values.
    pub element: ElementType,
    /// How many each rank has.
    pub length: u64,
    /// What becomes of them.
    pub reduction: Reduction,
    /// In which order they are combined.
    pub order: Order,
    /// As what they travel.
    pub compression: Compression,
}

/// Bytes of an encoded call.
pub const CALL_BYTES: usize = 16;

impl Call {
    /// The payload of a call's frame: kind, type, reduction, order, root (4 bytes), length (8 bytes), little-endian; zeros where it has none. In
    /// place of a root, what is reduced has its compression.
    #[must_use]
    pub fn encode(&self) -> [u8; CALL_BYTES] {
        let (kind, element, length) = match *self {
            Self::AllReduce(reduced) => (1, Some(reduced.element), reduced.length),
            Self::ReduceScatter(reduced) => (2, Some(reduced.element), reduced.length),
            Self::AllGather { element, length } => (3, Some(element), length),
            Self::Lengths { element } => (4, Some(element), 0),
            Self::Broadcast { element, length, .. } => (5, Some(element), length),
            Self::Barrier => (6, None, 0),
        };
        let (reduction, order) = match *self {
            Self::AllReduce(reduced) | Self::ReduceScatter(reduced) => {
                (reduced.reduction as u8, order_number(reduced.order))
            }
            Self::AllGather { .. } | Self::Lengths { .. } | Self::Broadcast { .. } | Self::Barrier => (0, 0),
        };
        let root = match *self {
            Self::Broadcast { root, .. } => root.get(),
            Self::AllReduce(reduced) | Self::ReduceScatter(reduced) => compression_number(reduced.compression),
            Self::AllGather { .. } | Self::Lengths { .. } | Self::Barrier => 0,
        };
        let mut bytes = [0; CALL_BYTES];
        bytes[..4].copy_from_slice(&[kind, element.map_or(0, |element| element as u8), reduction, order]);
        bytes[4..8].copy_from_slice(&root.to_le_bytes());
        bytes[8..].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// The call with these bytes; none when no rank of this version writes them.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; CALL_BYTES] = bytes.try_into().ok()?;
        let [kind, element, reduction, order, root @ .., _, _, _, _, _, _, _, _] = bytes;
        let length = u64::from_le_bytes(*bytes.last_chunk()?);
        let (element, root) = (ElementType::from_repr(element), u32::from_le_bytes(root));
        let reduced = || {
            Some(Reduced {
                element: element?,
                length,
                reduction: Reduction::from_repr(reduction)?,
                order: [Order::Exact, Order::Fast]
                    .into_iter()
                    .find(|&known| order_number(known) == order)?,
                compression: [Compression::None, Compression::Bf16, Compression::F16]
                    .into_iter()
                    .find(|&known| compression_number(known) == root)?,
            })
        };
        let call = match kind {
            1 => Self::AllReduce(reduced()?),
            2 => Self::ReduceScatter(reduced()?),
            3 => Self::AllGather {
                element: element?,
                length,
            },
            4 => Self::Lengths { element: element? },
            5 => Self::Broadcast {
                root: Rank::new(root),
                element: element?,
                length,
            },
            6 => Self::Barrier,
            _ => return None,
        };
        // Nothing stands where it has nothing.
        (call.encode() == bytes).then_some(call)
    }
}

const fn order_number(order: Order) -> u8 {
    match order {
        Order::Exact => 1,
        Order::Fast => 2,
    }
}

const fn compression_number(compression: Compression) -> u32 {
    match compression {
        Compression::None => 0,
        Compression::Bf16 => 1,
        Compression::F16 => 2,
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllReduce(reduced) => write!(f, "all_reduce of {reduced}"),
            Self::ReduceScatter(reduced) => write!(f, "reduce_scatter of {reduced}"),
            Self::AllGather { element, length } => write!(f, "all_gather of {length} {element}"),
            Self::Lengths { element } => write!(f, "allgather of {element}"),
            Self::Broadcast { root, element, length } => write!(f, "broadcast of {length} {element} from {root}"),
            Self::Barrier => f.write_str("barrier"),
        }
    }
}

impl fmt::Display for Reduced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            element,
            length,
            reduction,
            order,
            compression,
        } = self;
        write!(f, "{length} {element}, {reduction}, {order}{}", compression.behind_order())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls() -> Vec<Call> {
        let reduced = Reduced {
            element: ElementType::Bf16,
            length: 0x0102_0304_0506_0708,
            reduction: Reduction::Mean,
            order: Order::Fast,
            compression: Compression::None,
        };
        let compressed = Reduced {
            compression: Compression::F16,
            ..reduced
        };
        let (element, length) = (ElementType::U64, u64::MAX);
        let root = Rank::new(0x0102);
        vec![
            Call::AllReduce(reduced),
            Call::ReduceScatter(reduced),
            Call::AllGather { element, length },
            Call::Lengths { element },
            Call::Broadcast { root, element, length },
            Call::Barrier,
            Call::ReduceScatter(compressed),
        ]
    }

    #[test]
    fn the_bytes_are_fixed() {
        assert_eq!(calls()[0].encode(), [1, 3, 4, 2, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(
            calls()[4].encode(),
            [5, 7, 0, 0, 2, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]
        );
        assert_eq!(calls()[6].encode(), [2, 3, 4, 2, 2, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
    }

    #[test]
    fn calls_come_back_and_other_bytes_do_not() {
        for call in calls() {
            let bytes = call.encode();
            assert_eq!(Call::decode(&bytes), Some(call));
            assert_eq!(Call::decode(&bytes[1..]), None);
            for (at, bit) in (0..CALL_BYTES).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut other = bytes;
                other[at] ^= 1 << bit;
                let decoded = Call::decode(&other);
                assert!(decoded != Some(call), "byte {at}, bit {bit} of {call}");
                assert!(decoded.is_none_or(|decoded| decoded.encode() == other));
            }
        }
    }
}
