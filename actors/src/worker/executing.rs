//! What the worker's actor does at its machine's command.

use ractor::ActorRef;
use sardana_protocol::member::NetworkCommand;

use super::WorkerError;
use super::actor::{Message, State};
use super::driver::ActorCommand;
use crate::peers::PeerGroup;

impl State {
    pub(super) fn execute(&mut self, myself: &ActorRef<Message>, command: ActorCommand) {
        match command {
            ActorCommand::Connect { form, inbox } => {
                self.transfers.end_copy();
                self.transfers.end_fetch();
                self.rings.connect(myself, *form, inbox);
            }
            ActorCommand::Prepare { form, inbox } => self.rings.prepare(myself, *form, inbox),
            ActorCommand::Snapshot {
                snapshot,
                shares,
                copies,
            } => self.transfers.hash(snapshot, shares, copies),
            ActorCommand::Save { save, held } => {
                for event in self.saver.save(myself, *save, held) {
                    self.driver.handle(event);
                }
            }
            ActorCommand::Fail {
                generation,
                step,
                mismatch,
            } => {
                tracing::error!(worker = %self.hello.worker, %generation, %step, %mismatch, "the worker cannot go on");
                let reason = format!("{mismatch}, in {generation} at {step}");
                self.end(Err(WorkerError::Broken { reason }));
            }
            ActorCommand::Network(command) => self.execute_on_network(myself, command),
        }
    }

    fn execute_on_network(&mut self, myself: &ActorRef<Message>, command: NetworkCommand) {
        match command {
            NetworkCommand::Abort { generation } => {
                tracing::debug!(%generation, "the ring is given up");
                self.transfers.end_fetch();
                self.rings.abort();
            }
            NetworkCommand::Switch { generation, step } => {
                self.transfers.end_copy();
                self.rings.switch(generation, step);
            }
            NetworkCommand::Unprepare => self.rings.unprepare(),
            NetworkCommand::MakeRoom { shares } => self.transfers.make_room(shares),
            NetworkCommand::Admit { joiners } => self.peers.name(PeerGroup::Joiners, joiners),
            NetworkCommand::Fetch { generation, what, donor } => self.transfers.fetch(myself, generation, what, donor),
            NetworkCommand::Copy(snapshot) => self.transfers.copy(myself, *snapshot),
            NetworkCommand::Follow { sum, snapshot } => self.transfers.follow(myself, *snapshot, sum),
            NetworkCommand::EndCopy => self.transfers.end_copy(),
            NetworkCommand::EndSave => self.saver.end(),
            NetworkCommand::Restore {
                generation,
                rank,
                restore,
            } => self
                .transfers
                .restore(myself, self.reader.clone(), (generation, rank), *restore),
            NetworkCommand::EndRestore => self.peers.end_lending(),
        }
    }
}
