//! Copies of the state that other threads make while gradients are computed. They end before the state changes.

use std::panic::resume_unwind;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::model::StateError;
use crate::trainer::TrainingError;

/// Those that are under way.
#[derive(Default)]
pub(crate) struct Copies(Vec<JoinHandle<Result<(), StateError>>>);

impl Copies {
    /// Makes one more, and sends it. What `copy` has borrowed of the state it has dropped when it returns.
    pub(crate) fn begin(
        &mut self,
        copy: impl FnOnce() -> Result<Vec<Bytes>, StateError> + Send + 'static,
        reply: oneshot::Sender<Vec<Bytes>>,
    ) -> Result<(), TrainingError> {
        let work = move || {
            // Whoever asked may have given up.
            let _ = reply.send(copy()?);
            Ok(())
        };
        let thread = thread::Builder::new().name("snapshot".to_owned()).spawn(work);
        self.0.push(thread.map_err(TrainingError::Thread)?);
        Ok(())
    }

    /// Waits for all of them.
    pub(crate) fn finish(&mut self) -> Result<(), TrainingError> {
        for copy in self.0.drain(..) {
            copy.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_state_changes_only_after_the_copy() {
        let mut copies = Copies::default();
        let (go, gate) = mpsc::channel::<()>();
        let (reply, copied) = oneshot::channel();
        let copy = move || {
            let _ = gate.recv();
            Ok(vec![Bytes::from_static(b"state")])
        };
        copies.begin(copy, reply).unwrap();
        let waiter = thread::spawn(move || {
            copies.finish().unwrap();
            copied
        });
        go.send(()).unwrap();
        assert_eq!(waiter.join().unwrap().try_recv().unwrap(), ["state"]);
    }

    #[test]
    fn a_copy_that_fails_ends_training_and_one_that_nobody_wants_does_not() {
        let mut copies = Copies::default();
        let (reply, _) = oneshot::channel();
        copies.begin(|| Ok(vec![]), reply).unwrap();
        copies.finish().unwrap();
        let (reply, copied) = oneshot::channel();
        copies.begin(|| Err(StateError::TooMany), reply).unwrap();
        assert!(matches!(copies.finish(), Err(TrainingError::State(StateError::TooMany))));
        copied.blocking_recv().unwrap_err();
        copies.finish().unwrap();
    }
}
