//! The roles that a certificate can carry and the table of who may dial whom.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a process is to its job; its certificate says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Forms generations. Has the id 0, so that everybody knows its full name beforehand.
    Coordinator,
    /// Starts workers on its host and reports their ends.
    Agent,
    /// Computes shards.
    Worker,
    /// Watches and steers the job for a person.
    Operator,
}

impl Role {
    pub(super) const ALL: [Self; 4] = [Self::Coordinator, Self::Agent, Self::Worker, Self::Operator];

    /// The role's word in names and messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Agent => "agent",
            Self::Worker => "worker",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Who may dial whom. What is not here is refused.
const CONNECTIONS: [(Role, Role); 4] = [
    (Role::Worker, Role::Coordinator),
    (Role::Agent, Role::Coordinator),
    (Role::Worker, Role::Worker),
    (Role::Operator, Role::Coordinator),
];

/// Whether a `client` may open connections to a `server`.
#[must_use]
pub fn may_connect(client: Role, server: Role) -> bool {
    CONNECTIONS.contains(&(client, server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_cell_by_cell() {
        use Role::{Agent, Coordinator, Operator, Worker};
        let cells = [
            // client, then as server: coordinator, agent, worker, operator
            (Coordinator, [false, false, false, false]),
            (Agent, [true, false, false, false]),
            (Worker, [true, false, true, false]),
            (Operator, [true, false, false, false]),
        ];
        for (client, row) in cells {
            for (server, allowed) in Role::ALL.into_iter().zip(row) {
                assert_eq!(may_connect(client, server), allowed, "{client} to {server}");
            }
        }
    }
}
