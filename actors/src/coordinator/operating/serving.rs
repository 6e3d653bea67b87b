//! An operator's control connection at the coordinator: requests and answers, one after the other.

use ractor::ActorRef;
use sardana_net::log::refused;
use sardana_net::quic::REFUSED;
use sardana_net::trust::PeerIdentity;
use sardana_net::wire::limits::HELLO_FRAME_BYTES;
use sardana_net::wire::{FrameError, read_frame, write_frame};
use sardana_protocol::messages::Greeting;
use sardana_protocol::status::OperatorRequest;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;

use crate::coordinator::actor::Message;
use crate::coordinator::session::Streams;
use crate::operator::limits::{ANSWER_BYTES, ANSWER_EVERY, MAX_OPERATORS, REQUEST_BYTES};

impl Streams {
    /// Answers an operator's requests one after the other, and not faster than a person can read.
    pub(in crate::coordinator) async fn serve_operator(
        mut self,
        peer: PeerIdentity,
        coordinator: &ActorRef<Message>,
        operators: &Semaphore,
    ) {
        let Ok(_place) = operators.try_acquire() else {
            let reason = format!("{MAX_OPERATORS} operators are connected already: end one of them");
            refused!(%peer, %reason, "an operator was refused");
            return self.refuse(Greeting::Refused { reason }).await;
        };
        self.welcome();
        match self.answer_operator(coordinator).await {
            // As the endpoint is closed with: nothing is wrong.
            Ok(why) => self.connection.close(0_u32.into(), why.as_bytes()),
            // It may just close its connection.
            Err(error @ FrameError::Connection(_)) => self.connection.close(REFUSED, error.to_string().as_bytes()),
            Err(error) => {
                refused!(%peer, %error, "an operator's session is over");
                self.connection.close(REFUSED, error.to_string().as_bytes());
            }
        }
    }

    /// Returns why there is nothing more to answer.
    async fn answer_operator(&mut self, coordinator: &ActorRef<Message>) -> Result<&'static str, FrameError> {
        const OVER: &str = "the job is over";
        write_frame(&mut self.send, &Greeting::Welcome, HELLO_FRAME_BYTES).await?;
        while let Some(request) = read_frame::<OperatorRequest>(&mut self.receive, REQUEST_BYTES).await? {
            let (reply, answer) = oneshot::channel();
            // No answer comes once the coordinator ends.
            if coordinator.cast(Message::Asked { request, reply }).is_err() {
                return Ok(OVER);
            }
            let Ok(answer) = answer.await else { return Ok(OVER) };
            write_frame(&mut self.send, &answer, ANSWER_BYTES).await?;
            sleep(ANSWER_EVERY).await;
        }
        Ok("the operator left")
    }
}
