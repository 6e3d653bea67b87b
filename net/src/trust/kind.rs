//! The kinds of messages that the table of roles is about: messages that the same role may send to the same role are one kind.

use sardana_protocol::messages::{
    AgentMessage, AgentOrder, CoordinatorMessage, DepotMessage, DepotOrder, Hello, WorkerMessage,
};
use sardana_protocol::status::{OperatorAnswer, OperatorRequest};

/// What a message is, as far as permissions go. One list, as long as it is: each role's rights are a set of these.
#[cfg_attr(test, derive(strum::VariantArray))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A worker's hello. Opens a control connection.
    WorkerHello,
    /// An agent's hello. Opens a control connection.
    AgentHello,
    /// An operator's hello. Opens a control connection.
    OperatorHello,
    /// A checkpoint actor's hello. Opens a control connection.
    DepotHello,
    /// A coordinator's hello to another one. Opens a control connection.
    CoordinatorHello,
    /// The first message on a link between workers. Opens a connection.
    LinkHello,
    /// A request for a sum or a state, or a share of one. Opens a connection.
    FetchRequest,
    /// Pieces of a checkpoint to be kept. Opens a connection.
    PieceOffer,
    /// A request for pieces of a checkpoint, or for its manifest. Opens a connection.
    PieceRequest,
    /// A request for a certificate by a process that has none yet, and so no role: none in the table sends it.
    Enrolment,
    /// What a worker says of its part in the job.
    Membership,
    /// A request for the sender's own next certificate.
    Renewal,
    /// A request for the certificate of a child.
    ChildCertification,
    /// What an agent says of itself and its children.
    ChildReport,
    /// What a checkpoint actor says of what it keeps.
    DepotReport,
    /// An operator's question. Changes nothing.
    OperatorLook,
    /// An operator's command.
    OperatorCommand,
    /// An order to a worker.
    WorkerOrder,
    /// An order to an agent.
    AgentOrder,
    /// An order to a checkpoint actor.
    DepotOrder,
    /// A certificate that was asked for.
    Certificate,
    /// An answer to an operator.
    OperatorAnswer,
}

impl Kind {
    /// The kinds that a connection may begin with.
    pub(super) const OPENING: [Self; 9] = [
        Self::WorkerHello,
        Self::AgentHello,
        Self::OperatorHello,
        Self::DepotHello,
        Self::CoordinatorHello,
        Self::LinkHello,
        Self::FetchRequest,
        Self::PieceOffer,
        Self::PieceRequest,
    ];
}

impl From<&Hello> for Kind {
    fn from(hello: &Hello) -> Self {
        match hello {
            Hello::Worker(_) => Self::WorkerHello,
            Hello::Agent(_) => Self::AgentHello,
            Hello::Operator { .. } => Self::OperatorHello,
            Hello::Depot(_) => Self::DepotHello,
            Hello::Coordinator { .. } => Self::CoordinatorHello,
        }
    }
}

impl From<&WorkerMessage> for Kind {
    fn from(message: &WorkerMessage) -> Self {
        match message {
            WorkerMessage::Renew { .. } => Self::Renewal,
            WorkerMessage::Halted { .. }
            | WorkerMessage::Ready { .. }
            | WorkerMessage::Progress { .. }
            | WorkerMessage::Finished { .. }
            | WorkerMessage::LinkBroken { .. }
            | WorkerMessage::Switched { .. }
            | WorkerMessage::RoomMade { .. }
            | WorkerMessage::Hashing { .. }
            | WorkerMessage::Snapshotted { .. }
            | WorkerMessage::Dropped { .. }
            | WorkerMessage::Saved { .. }
            | WorkerMessage::Saving { .. }
            | WorkerMessage::NotSaved { .. }
            | WorkerMessage::NotRestored { .. }
            | WorkerMessage::CaughtUp { .. }
            | WorkerMessage::Copying { .. }
            | WorkerMessage::CopyFailed { .. }
            | WorkerMessage::Leave { .. }
            | WorkerMessage::Links(_)
            | WorkerMessage::DeviceMemory(_)
            | WorkerMessage::GivenUp { .. }
            | WorkerMessage::Failed { .. } => Self::Membership,
        }
    }
}

impl From<&AgentMessage> for Kind {
    fn from(message: &AgentMessage) -> Self {
        match message {
            AgentMessage::Certify { .. } | AgentMessage::CertifyDepot { .. } => Self::ChildCertification,
            AgentMessage::Renew { .. } => Self::Renewal,
            AgentMessage::ChildStarted { .. }
            | AgentMessage::ChildExited { .. }
            | AgentMessage::ChildMotion { .. }
            | AgentMessage::Leave { .. }
            | AgentMessage::Stay { .. } => Self::ChildReport,
        }
    }
}

impl From<&OperatorRequest> for Kind {
    fn from(request: &OperatorRequest) -> Self {
        match request {
            OperatorRequest::Status => Self::OperatorLook,
            OperatorRequest::Drain { .. }
            | OperatorRequest::Kill { .. }
            | OperatorRequest::Scale { .. }
            | OperatorRequest::Stop => Self::OperatorCommand,
        }
    }
}

impl From<&CoordinatorMessage> for Kind {
    fn from(message: &CoordinatorMessage) -> Self {
        match message {
            CoordinatorMessage::Renewed { .. } => Self::Certificate,
            CoordinatorMessage::Halt { .. }
            | CoordinatorMessage::Form(_)
            | CoordinatorMessage::Prepare(_)
            | CoordinatorMessage::CloseWith { .. }
            | CoordinatorMessage::Serve(_)
            | CoordinatorMessage::Save(_)
            | CoordinatorMessage::SaveOver { .. }
            | CoordinatorMessage::Copy(_)
            | CoordinatorMessage::Released { .. }
            | CoordinatorMessage::Complete { .. }
            | CoordinatorMessage::Dismiss { .. } => Self::WorkerOrder,
        }
    }
}

impl From<&AgentOrder> for Kind {
    fn from(order: &AgentOrder) -> Self {
        match order {
            AgentOrder::Certified { .. } | AgentOrder::DepotCertified { .. } | AgentOrder::Renewed { .. } => {
                Self::Certificate
            }
            AgentOrder::JobOver | AgentOrder::Kill { .. } | AgentOrder::Start { .. } => Self::AgentOrder,
        }
    }
}

impl From<&DepotMessage> for Kind {
    fn from(message: &DepotMessage) -> Self {
        match message {
            DepotMessage::Renew { .. } => Self::Renewal,
            DepotMessage::Holds { .. }
            | DepotMessage::Deleted { .. }
            | DepotMessage::Committed { .. }
            | DepotMessage::Refused { .. }
            | DepotMessage::Fetching { .. } => Self::DepotReport,
        }
    }
}

impl From<&DepotOrder> for Kind {
    fn from(order: &DepotOrder) -> Self {
        match order {
            DepotOrder::Renewed { .. } => Self::Certificate,
            DepotOrder::Serve { .. }
            | DepotOrder::Commit { .. }
            | DepotOrder::Release { .. }
            | DepotOrder::Delete { .. }
            | DepotOrder::Fetch { .. }
            | DepotOrder::JobOver => Self::DepotOrder,
        }
    }
}

impl From<&OperatorAnswer> for Kind {
    fn from(answer: &OperatorAnswer) -> Self {
        match answer {
            OperatorAnswer::Status(_) | OperatorAnswer::Done { .. } | OperatorAnswer::Refused { .. } => Self::OperatorAnswer,
        }
    }
}
