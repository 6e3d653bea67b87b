//! The roles that a certificate can carry, and the table of which role may send what to which.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::VariantArray;

use super::kind::Kind;

/// What a process is to its job; its certificate says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, VariantArray)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Forms generations. Has the id 0, so that every process knows its full name beforehand.
    Coordinator,
    /// Starts workers on its host and reports their ends.
    Agent,
    /// Computes shards.
    Worker,
    /// Watches and steers the job.
    Operator,
    /// Keeps checkpoints.
    Checkpoint,
}

impl Role {
    /// The role's word in names and messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Agent => "agent",
            Self::Worker => "worker",
            Self::Operator => "operator",
            Self::Checkpoint => "checkpoint",
        }
    }

    /// Whether a process from outside may be invited to it.
    #[must_use]
    pub const fn is_invited(self) -> bool {
        match self {
            Self::Agent | Self::Worker | Self::Operator | Self::Checkpoint => true,
            Self::Coordinator => false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Which role may send what to which. What is not here is refused.
const TABLE: [(Role, Kind, Role); 26] = [
    (Role::Worker, Kind::WorkerHello, Role::Coordinator),
    (Role::Worker, Kind::Membership, Role::Coordinator),
    (Role::Worker, Kind::Renewal, Role::Coordinator),
    (Role::Worker, Kind::LinkHello, Role::Worker),
    (Role::Worker, Kind::FetchRequest, Role::Worker),
    (Role::Agent, Kind::AgentHello, Role::Coordinator),
    (Role::Agent, Kind::ChildCertification, Role::Coordinator),
    (Role::Agent, Kind::ChildReport, Role::Coordinator),
    (Role::Agent, Kind::Renewal, Role::Coordinator),
    (Role::Operator, Kind::OperatorHello, Role::Coordinator),
    (Role::Operator, Kind::OperatorLook, Role::Coordinator),
    (Role::Operator, Kind::OperatorCommand, Role::Coordinator),
    (Role::Checkpoint, Kind::DepotHello, Role::Coordinator),
    (Role::Checkpoint, Kind::DepotReport, Role::Coordinator),
    (Role::Checkpoint, Kind::Renewal, Role::Coordinator),
    (Role::Worker, Kind::PieceOffer, Role::Checkpoint),
    (Role::Worker, Kind::PieceRequest, Role::Checkpoint),
    // What a host that was lost had is fetched from the others.
    (Role::Checkpoint, Kind::PieceRequest, Role::Checkpoint),
    (Role::Coordinator, Kind::CoordinatorHello, Role::Coordinator),
    (Role::Coordinator, Kind::WorkerOrder, Role::Worker),
    (Role::Coordinator, Kind::AgentOrder, Role::Agent),
    (Role::Coordinator, Kind::DepotOrder, Role::Checkpoint),
    (Role::Coordinator, Kind::Certificate, Role::Checkpoint),
    (Role::Coordinator, Kind::OperatorAnswer, Role::Operator),
    (Role::Coordinator, Kind::Certificate, Role::Worker),
    // Its own, and those of its children.
    (Role::Coordinator, Kind::Certificate, Role::Agent),
];

/// Whether a `sender` may send a message of `kind` to a `receiver`.
#[must_use]
pub fn may_send(sender: Role, kind: Kind, receiver: Role) -> bool {
    TABLE.contains(&(sender, kind, receiver))
}

/// Whether a `client` may open connections to a `server`: it has something to say there first.
#[must_use]
pub fn may_connect(client: Role, server: Role) -> bool {
    Kind::OPENING.into_iter().any(|kind| may_send(client, kind, server))
}

#[cfg(test)]
mod tests {
    use super::Role::{Agent, Checkpoint, Coordinator, Operator, Worker};
    use super::*;

    /// Which role may send what, written down once more: sender and receiver, then one column per kind, in the order of [`Kind::VARIANTS`].
    #[rustfmt::skip]
    const MATRIX: [(Role, Role, &str); 25] = [
        //                          hellos: worker, agent, operator, depot, coordinator, link; fetch; piece offer, piece request; enrolment; membership; renewal;
        //                                  child certification, report; depot report; look, command; worker order, agent order, depot order; certificate; answer
        (Coordinator,Coordinator, "....x................."),
        (Coordinator, Agent,       "..................x.x."),
        (Coordinator, Worker,      ".................x..x."),
        (Coordinator, Operator,    ".....................x"),
        (Coordinator, Checkpoint,  "...................xx."),
        (Agent,       Coordinator, ".x.........xxx........"),
        (Agent,Agent,       "......................"),
        (Agent,       Worker,      "......................"),
        (Agent,       Operator,    "......................"),
        (Agent,       Checkpoint,  "......................"),
        (Worker,      Coordinator, "x.........xx.........."),
        (Worker,      Agent,       "......................"),
        (Worker,Worker,      ".....xx..............."),
        (Worker,      Operator,    "......................"),
        (Worker,      Checkpoint,  ".......xx............."),
        (Operator,    Coordinator, "..x............xx....."),
        (Operator,    Agent,       "......................"),
        (Operator,    Worker,      "......................"),
        (Operator,Operator,    "......................"),
        (Operator,    Checkpoint,  "......................"),
        (Checkpoint,  Coordinator, "...x.......x..x......."),
        (Checkpoint,  Agent,       "......................"),
        (Checkpoint,  Worker,      "......................"),
        (Checkpoint,  Operator,    "......................"),
        (Checkpoint,Checkpoint,  "........x............."),
    ];

    #[test]
    fn the_table_cell_by_cell() {
        let mut cells = 0;
        for (sender, receiver, row) in MATRIX {
            assert_eq!(row.len(), Kind::VARIANTS.len());
            for (&kind, cell) in Kind::VARIANTS.iter().zip(row.chars()) {
                assert_eq!(
                    may_send(sender, kind, receiver),
                    cell == 'x',
                    "{kind:?} from {sender} to {receiver}"
                );
                cells += 1;
            }
        }
        assert_eq!(cells, Role::VARIANTS.len() * Role::VARIANTS.len() * Kind::VARIANTS.len());
    }

    #[test]
    fn who_may_dial_whom() {
        let allowed = [
            (Agent, Coordinator),
            (Worker, Coordinator),
            (Worker, Worker),
            (Operator, Coordinator),
            (Checkpoint, Coordinator),
            (Worker, Checkpoint),
            (Checkpoint, Checkpoint),
            (Coordinator, Coordinator),
        ];
        for &client in Role::VARIANTS {
            for &server in Role::VARIANTS {
                assert_eq!(
                    may_connect(client, server),
                    allowed.contains(&(client, server)),
                    "{client} to {server}"
                );
            }
        }
    }

    #[test]
    fn nobody_is_invited_to_lead() {
        let invited: Vec<Role> = Role::VARIANTS.iter().copied().filter(|role| role.is_invited()).collect();
        assert_eq!(invited, [Agent, Worker, Operator, Checkpoint]);
    }
}
