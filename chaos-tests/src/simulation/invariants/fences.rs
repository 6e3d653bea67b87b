//! GEN-3: a frame of another generation, job or incarnation changes nothing. What a worker has promised outranks all before it.

use sardana_protocol::member::{Command, NetworkCommand};
use sardana_protocol::messages::WorkerMessage;
use sardana_protocol::words::{Generation, Incarnation, WorkerId};

use super::{Held, Law};

impl Law {
    /// A coordinator's life has welcomed a worker: from now on no earlier one counts for it.
    pub(crate) fn welcomed(&mut self, worker: WorkerId, incarnation: Incarnation) -> Held {
        let known = self.welcomed.entry(worker).or_insert(incarnation);
        let before = std::mem::replace(known, incarnation.max(*known));
        // A worker that was away may have gone on with a gradient that others computed as well.
        if self.promised.contains_key(&worker) && before == incarnation {
            self.doubts.uncountable = true;
        }
        self.check("GEN-3, welcoming", incarnation >= before, || {
            format!("{incarnation} welcomes {worker}, which knows {before}")
        })
    }

    /// A worker's machine commands something. `summed`: the generation of the sum that it has just been shown, if it was.
    pub(crate) fn obeys(&mut self, worker: WorkerId, command: &Command, summed: Option<Generation>) -> Held {
        if let Command::Send(WorkerMessage::Ready { generation }) = command {
            self.says_ready(worker, *generation);
        }
        self.asks_for_sums(worker, command)?;
        let Some((generation, act)) = act(command, summed) else {
            return Ok(());
        };
        let promised = self.promised.get(&worker).copied().unwrap_or(Generation::NONE);
        let fence = self.welcomed.get(&worker).copied().unwrap_or(Incarnation::ZERO);
        let fenced = generation.incarnation() < fence;
        let (current, promises) = match act {
            // A sum of the worker's own generation; a generation that is prepared is yet to come.
            Act::Accepts => (generation == promised, false),
            Act::Prepares => (generation > promised && !fenced, false),
            // A trailer's word holds, though the coordinator that ordered it may be gone.
            Act::Switches => (generation > promised, true),
            Act::Connects => (generation >= promised && !fenced, true),
            Act::Promises => (generation >= promised, true),
        };
        if promises {
            self.promised.insert(worker, generation.max(promised));
        }
        self.check("GEN-3", current, || {
            format!("{worker} has promised {promised} and knows {fence}, and does {command:?} for {generation}")
        })
    }
}

/// What a command has to do with a generation.
#[derive(Clone, Copy)]
enum Act {
    Connects,
    Prepares,
    Switches,
    Promises,
    Accepts,
}

fn act(command: &Command, summed: Option<Generation>) -> Option<(Generation, Act)> {
    if let Command::Connect(form) = command {
        Some((form.generation, Act::Connects))
    } else if let Command::Prepare(form) = command {
        Some((form.generation, Act::Prepares))
    } else if let Command::Network(NetworkCommand::Switch { generation, .. }) = command {
        Some((*generation, Act::Switches))
    } else if let Command::Send(WorkerMessage::Halted { generation, .. }) = command {
        Some((*generation, Act::Promises))
    } else if matches!(command, Command::Accept { .. }) {
        Some((summed?, Act::Accepts))
    } else {
        None
    }
}
