//! Commands and events in words that are short enough to compare.

use super::*;

/// The forms among these commands, with the worker that each goes to.
pub(super) fn forms(commands: &[Command]) -> Vec<(u64, Form)> {
    let form = |command: &Command| {
        let Command::Send {
            worker,
            message: CoordinatorMessage::Form(form),
        } = command
        else {
            return None;
        };
        Some((worker.get(), form.as_ref().clone()))
    };
    commands.iter().filter_map(form).collect()
}

/// Commands in words that are short enough to compare.
pub(super) fn words(commands: &[Command]) -> Vec<String> {
    let words = |command: &Command| match command {
        Command::Send { worker, message } => format!("to w{}: {}", worker.get(), message_words(message)),
        Command::Kill { worker } => format!("kill w{}", worker.get()),
        Command::Order { depot, order } => format!("to {}: {}", depot.get(), order_words(order)),
        Command::Commit { to, contents } => {
            let to: Vec<u64> = to.iter().map(|depot| depot.get()).collect();
            format!("commit {} to {to:?}", contents.snapshot)
        }
        Command::Tell(event) => event_words(event),
    };
    commands.iter().map(words).collect()
}

pub(super) fn order_words(order: &DepotOrder) -> String {
    match order {
        DepotOrder::Serve { workers, .. } => format!("serve {:?}", numbers(workers)),
        DepotOrder::Commit { snapshot, .. } => format!("commit {snapshot}"),
        DepotOrder::Release { snapshot } => format!("release {snapshot}"),
        DepotOrder::Delete { key } => format!("delete {}", key.step),
        DepotOrder::Fetch { key, .. } => format!("fetch {}", key.step),
        DepotOrder::Renewed { .. } => "renewed".to_owned(),
        DepotOrder::JobOver => "job over".to_owned(),
    }
}

pub(super) fn message_words(message: &CoordinatorMessage) -> String {
    match message {
        CoordinatorMessage::Halt { generation } => format!("halt {generation}"),
        CoordinatorMessage::Form(form) => {
            let catch_up = match form.catch_up {
                CatchUp::None => String::new(),
                CatchUp::Sum { from } => format!(", sum from {from}"),
                CatchUp::State { from } => format!(", state from {from}"),
                CatchUp::Checkpoint => ", from a checkpoint".to_owned(),
            };
            format!("form {} {} at {}{catch_up}", form.generation, form.rank, form.step)
        }
        CoordinatorMessage::Prepare(form) => format!("prepare {} {}", form.generation, form.rank),
        CoordinatorMessage::CloseWith { generation, trailer } => {
            let trailer = match trailer {
                Trailer::Continue => "nothing".to_owned(),
                Trailer::Stop => "stop".to_owned(),
                Trailer::Snapshot => "snapshot".to_owned(),
                Trailer::Switch(next) => format!("switch to {next}"),
            };
            format!("close {generation} with {trailer}")
        }
        CoordinatorMessage::Serve(serve) => serve_words(serve),
        CoordinatorMessage::Save(save) => {
            let depots: Vec<u64> = save.depots.iter().map(|one| one.depot.get()).collect();
            format!("save {:?} of {} to {depots:?}", save.shares, save.snapshot)
        }
        CoordinatorMessage::SaveOver { snapshot } => format!("save of {snapshot} over"),
        CoordinatorMessage::Copy(snapshot) => {
            let holders: Vec<u64> = snapshot.holders.iter().flatten().map(|holder| holder.worker.get()).collect();
            format!("copy {} from {holders:?}", snapshot.id)
        }
        CoordinatorMessage::Released { step } => format!("released at {step}"),
        CoordinatorMessage::Renewed { .. } => "renewed".to_owned(),
        CoordinatorMessage::Complete { step, .. } => format!("complete {step}"),
        CoordinatorMessage::Dismiss { .. } => "dismiss".to_owned(),
    }
}

pub(super) fn numbers(workers: &[WorkerId]) -> Vec<u64> {
    workers.iter().map(|worker| worker.get()).collect()
}

pub(super) fn serve_words(serve: &Serve) -> String {
    let joiners = match &serve.joiners {
        Joiners::Only(joiners) => format!("{:?}", numbers(joiners)),
        Joiners::Changed { came, gone } => format!("+{:?} -{:?}", numbers(came), numbers(gone)),
    };
    let Some(snapshot) = serve.snapshot else {
        return format!("serve {joiners}");
    };
    let shares = match serve.shares {
        Shares::Keep => "all",
        Shares::Drop => "no shares",
    };
    format!("serve {joiners} {snapshot}, {shares}, sums from {}", serve.sums_from)
}

pub(super) fn event_words(event: &JobEvent) -> String {
    match event {
        JobEvent::Worker(WorkerEvent::Joined { worker, step }) => format!("joined w{} at {step}", worker.get()),
        JobEvent::Fenced { own, by } => format!("{own} fenced by {by}"),
        JobEvent::Generation(GenerationEvent::Adopted {
            generation,
            members,
            step,
        }) => {
            let members: Vec<u64> = members.iter().map(|member| member.get()).collect();
            format!("adopted {generation} of {members:?} at {step}")
        }
        JobEvent::Worker(WorkerEvent::Lost {
            worker, cause, stage, ..
        }) => format!("lost w{} while {stage}: {cause}", worker.get()),
        JobEvent::Worker(WorkerEvent::Leaving { worker, .. }) => format!("leaving w{}", worker.get()),
        JobEvent::Worker(WorkerEvent::Left { worker, step }) => format!("left w{} at {step}", worker.get()),
        JobEvent::Snapshot { step, holders } => format!("snapshot of {step} with {holders}"),
        JobEvent::Worker(WorkerEvent::CaughtUp { worker, step }) => format!("caught up w{} at {step}", worker.get()),
        JobEvent::Worker(WorkerEvent::CoolsDown { worker, wait }) => {
            format!("w{} cools down for {} s", worker.get(), wait.as_secs())
        }
        JobEvent::Worker(WorkerEvent::JoinsAnew { worker, reason }) => format!("joins anew w{}: {reason}", worker.get()),
        JobEvent::Worker(WorkerEvent::SharesNoMemory { worker }) => format!("shares no memory: w{}", worker.get()),
        JobEvent::Worker(WorkerEvent::Held { worker }) => format!("held for w{}", worker.get()),
        JobEvent::Generation(GenerationEvent::Switched {
            generation,
            members,
            step,
            ..
        }) => format!("switched to {generation} of {:?} at {step}", numbers(members)),
        JobEvent::Generation(GenerationEvent::Halting { generation }) => format!("halting for {generation}"),
        JobEvent::Generation(GenerationEvent::Forming {
            generation,
            members,
            step,
            ..
        }) => format!("forming {generation} of {:?} at {step}", numbers(members)),
        JobEvent::Generation(GenerationEvent::Formed { generation, .. }) => format!("formed {generation}"),
        JobEvent::Generation(GenerationEvent::Resumed { generation, step, .. }) => {
            format!("resumed {generation} with {step}")
        }
        JobEvent::Steps(reports) => {
            let steps: Vec<Step> = reports.iter().map(|report| report.step).collect();
            format!("steps {steps:?}")
        }
        JobEvent::Waiting { have, need } => format!("waiting: {have} here, needs {need}"),
        JobEvent::StateLost { reached, from } => format!("state lost: {reached} reached, again from {from}"),
        JobEvent::Checkpoint(CheckpointEvent::DepotCame { depot, .. }) => format!("depot {} came", depot.get()),
        JobEvent::Checkpoint(CheckpointEvent::DepotLost { depot, .. }) => format!("depot {} lost", depot.get()),
        JobEvent::Checkpoint(CheckpointEvent::DepotRefused { depot, reason, .. }) => {
            format!("depot {} refused: {reason}", depot.get())
        }
        JobEvent::Checkpoint(CheckpointEvent::Saved { key, hosts, wanted, .. }) => {
            format!("saved {} on {hosts} of {wanted}", key.step)
        }
        JobEvent::Checkpoint(CheckpointEvent::NotSaved { step, reason }) => format!("not saved {step}: {reason}"),
        JobEvent::Checkpoint(CheckpointEvent::Resumes { key, passed_over }) => {
            format!("resumes from {}, passing over {}", key.step, passed_over.len())
        }
        JobEvent::Checkpoint(CheckpointEvent::NotRestored { key, reason, .. }) => {
            format!("not restored {}: {reason}", key.step)
        }
        JobEvent::NotRecorded { .. } | JobEvent::RecordedAgain { .. } => unreachable!("the machine writes nothing"),
        JobEvent::Done(summary) => format!("done at {} with {:?}", summary.step, summary.hash),
        JobEvent::Failed { reason } => format!("failed: {reason}"),
    }
}
