//! The task that makes the links of a generation, and tells how it went. Must not know what follows from it.

use sardana_collectives::ring::RingLinks;
use sardana_protocol::words::{Generation, WorkerId};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::shell::Message;
use crate::panicked::or_tell;
use crate::peers::LinkingError;

/// Starts the task that makes `links` with these `others`. One that panics has made none of them.
pub(super) fn start_linking(
    generation: Generation,
    others: Vec<WorkerId>,
    shell: mpsc::UnboundedSender<Message>,
    links: impl Future<Output = Result<RingLinks, Vec<LinkingError>>> + Send + 'static,
) -> AbortHandle {
    let messages = shell.clone();
    let tell = move || {
        let made = Err(others.into_iter().map(|peer| LinkingError::Panicked { peer }).collect());
        let _ = messages.send(Message::Linked { generation, made });
    };
    let task = async move {
        let made = links.await;
        let _ = shell.send(Message::Linked { generation, made });
    };
    tokio::spawn(or_tell(task, tell)).abort_handle()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_has_made_no_link() {
        let (shell, mut inbox) = mpsc::unbounded_channel();
        let (generation, peer) = (Generation::NONE.next(), WorkerId::new(7));
        start_linking(generation, vec![peer], shell, async { panic!("as a test wants it") });
        let Some(Message::Linked { generation: of, made }) = inbox.recv().await else {
            panic!("expected to hear of the links");
        };
        let peers: Vec<WorkerId> = made.err().iter().flatten().map(LinkingError::peer).collect();
        assert_eq!((of, peers), (generation, vec![peer]));
    }
}
