//! Join files for the job of a coordinator, and the processes that use them.

use std::net::SocketAddr;
use std::time::SystemTime;

use sardana_actors::coordinator::{CoordinatorConfig, CoordinatorError, Past};
use sardana_net::enrol::{Invitation, JoinFile, Moment, Terms, invite};
use sardana_net::trust::{Authority, Credentials, Role};
use sardana_protocol::messages::Greeting;
use sardana_protocol::words::Incarnation;

use super::raw::{JOB, Site, Wire, agent, soon};

impl Site {
    /// The next life of the coordinator that was at `listen`, and that this very process may still be letting go of.
    pub(crate) async fn again(authority: impl Fn() -> Authority, listen: SocketAddr) -> Self {
        let trying = async {
            loop {
                let next = Self::with(authority(), |config| CoordinatorConfig {
                    listen,
                    incarnation: Incarnation::new(2),
                    past: Past::Unknown,
                    ..config
                });
                match next.await {
                    Ok(site) => return site,
                    Err(CoordinatorError::Bind(_)) => tokio::task::yield_now().await,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        soon(trying).await
    }

    pub(crate) fn join_file(&self, role: Role, uses: u32) -> JoinFile {
        let invitation = invitation(&self.authority, role, uses);
        JoinFile::new(invitation, &self.authority, vec![self.coordinator.address()])
    }
}

pub(crate) fn invitation(authority: &Authority, role: Role, uses: u32) -> Invitation {
    let now = Moment::of(SystemTime::now());
    let expires = Moment::new(now.seconds() + 3_600);
    invite(authority, Terms { role, expires, uses }, now).unwrap()
}

/// Says hello as an agent, and returns the answer.
pub(crate) async fn greeted(credentials: &Credentials, address: SocketAddr) -> Greeting {
    Wire::dial(credentials, address).await.greeted(&agent(JOB)).await
}
