//! What pieces of a state and manifests are called: the BLAKE3 hash of their bytes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::words::debug_as_display;

macro_rules! hash {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name([u8; 32]);

        impl $name {
            /// The hash with these bytes.
            #[must_use]
            pub const fn new(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The hash of `bytes`.
            #[must_use]
            pub fn of(bytes: &[u8]) -> Self {
                Self(blake3::hash(bytes).into())
            }

            /// The bare bytes.
            #[must_use]
            pub const fn bytes(self) -> [u8; 32] {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    };
}
pub(crate) use hash;

hash!(
    /// What a piece is called: the BLAKE3 hash of its bytes.
    PieceHash
);
hash!(
    /// What a manifest is called: the BLAKE3 hash of its bytes.
    ManifestId
);
debug_as_display!(PieceHash, ManifestId);
