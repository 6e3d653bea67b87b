//! A job on several hosts: a coordinator with a state directory, invitations, and agents, workers and operators that enrol.
//!
//! - [`coordinate()`]: the coordinator, on one host; [`invite()`]: join files for the others.
//! - [`enrol_kept()`]: have credentials by a join file, again and again; [`agent()`]: be an agent with them.
//! - [`keep_checkpoints()`]: be a checkpoint actor.
//! - [`by_hand`]: be a single worker with a join file, without an agent.
//! - [`place`]: how an operator finds the jobs of [`mod@crate::launch`] without being told where they are.
//!
//! Must not know what is trained.

pub mod agent;
pub mod by_hand;
pub mod coordinate;
pub mod depot;
mod enrolling;
pub mod invite;
mod name;
pub mod place;
pub mod state;

pub use agent::{AgentHost, AgentHostError, AgentJoin, agent};
pub use by_hand::{ByHandError, JOIN_VARIABLE};
pub use coordinate::{CoordinateConfig, Hosting, HostingError, coordinate};
pub use depot::{DepotHostError, DepotJoin, keep_checkpoints};
pub use enrolling::{ArrivalError, NoKeyring, default_keyring, enrol, enrol_kept, local_ip_towards};
pub use invite::{InviteConfig, InviteError, invite};
pub use name::{HOST_NAME_BYTES, HostName, HostNameError};
pub use place::{PlaceError, default_place, find_running};
pub use sardana_net::enrol::{EnrolError, Enrolled, JoinFile, JoinFileError, Keyring, KeyringError, Moment};
pub use sardana_net::trust::{Credentials, Role};
pub use sardana_storage::private::{Existing, Missing, PrivateError, PrivateFolder};
pub use state::StateError;
