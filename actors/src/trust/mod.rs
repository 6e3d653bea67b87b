//! Who may talk to whom: the job's own certificate authority, what it certifies, and which role may dial which.
//!
//! A peer is what its verified certificate says, never what its messages say (SEC-1). Nothing here knows how connections are
//! configured or what is said over them.

mod authority;
mod credentials;
mod identity;
pub mod limits;
mod role;

pub use authority::{Authority, AuthorityError};
pub use credentials::{Credentials, CredentialsError};
pub use identity::{IdentityError, PeerIdentity, identity_of};
pub use role::{Role, may_connect};
