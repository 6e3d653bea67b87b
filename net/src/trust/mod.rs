//! Which process may talk to which: the job's own certificate authority, what it certifies, and which role may send what to which.
//!
//! A peer is what its verified certificate says, never what its messages say (SEC-1). Nothing here knows how connections are
//! configured or what is said over them.

mod authority;
mod clock;
mod credentials;
mod even;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod holder;
mod identity;
mod kind;
pub mod limits;
mod moment;
mod public_key;
mod request;
mod role;
mod rotating;
mod store;

pub use authority::{Authority, AuthorityError, CertifyError};
pub use clock::Clock;
pub use credentials::{Credentials, CredentialsError};
pub use even::EVEN_BYTES;
pub(crate) use even::ends_evenly;
#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz;
pub use holder::{Holder, HolderError};
pub use identity::{IdentityError, PeerIdentity, identity_of};
pub use kind::Kind;
pub use moment::Moment;
pub use public_key::{KeyDigest, SigningRequest};
pub use request::PendingKey;
pub(crate) use request::certificate_ends;
pub use role::{Role, may_connect, may_send};
pub use rotating::{Renewal, Renewals, RotatingCredentials};
pub use store::{AUTHORITY_FILE, StoreError};
