//! A joiner that follows asks for one sum after the other, and for none that it has had.

use sardana_protocol::member::{Command, NetworkCommand};
use sardana_protocol::words::{Step, WorkerId};

use super::{Held, Law};

impl Law {
    /// A joiner follows. `goes_on`: whether it waits for a sum, or for none any more.
    pub(crate) fn follows(&mut self, worker: WorkerId, goes_on: bool) -> Held {
        self.check("who follows asks on", goes_on, || {
            format!("{worker} follows, and neither applies a sum nor waits for one")
        })
    }

    /// The sum of this step has come to a joiner.
    pub(crate) fn follows_up_to(&mut self, worker: WorkerId, step: Step) {
        self.followed.insert(worker, step);
    }

    /// What a joiner is handed it applies, at once or once the update before it has ended: it need not come twice, unless the joiner
    /// begins anew.
    pub(super) fn asks_for_sums(&mut self, worker: WorkerId, command: &Command) -> Held {
        if let Command::Network(NetworkCommand::Follow { sum, .. }) = command {
            let (step, had) = (sum.step, self.followed.get(&worker).copied());
            self.check("a sum comes once", had.is_none_or(|had| step > had), || {
                format!("{worker} asks for the sum of {step}, and has had that of {had:?}")
            })?;
        } else if matches!(
            command,
            Command::Network(NetworkCommand::EndCopy | NetworkCommand::Switch { .. })
        ) {
            self.followed.remove(&worker);
        }
        Ok(())
    }
}
