//! What happened to a job, in words for an operator.

use std::time::Duration;

use sardana_protocol::membership::{JobEvent, Loss, Stage, Summary};
use sardana_protocol::words::{Rank, ShardRange, WorkerId, count};

/// `text` without control characters, and cut after `most` bytes: it came over a network, and goes to somebody's terminal.
pub(in crate::coordinator) fn plain(text: &str, most: usize) -> String {
    let mut plain = String::with_capacity(text.len().min(most));
    for char in text.chars() {
        let char = if char.is_control() { ' ' } else { char };
        if plain.len() + char.len_utf8() > most {
            break;
        }
        plain.push(char);
    }
    plain
}

/// From how many shards to how many one worker computes.
fn span(shards: &[ShardRange]) -> String {
    let loads = || shards.iter().map(|shards| shards.len());
    let (least, most) = (loads().min().unwrap_or(0), loads().max().unwrap_or(0));
    if least == most {
        count(most, "shard")
    } else {
        format!("{least} to {most} shards")
    }
}

fn lost(worker: WorkerId, rank: Option<Rank>, cause: &Loss, stage: Stage) -> String {
    let rank = rank.map_or_else(String::new, |rank| format!("{rank} "));
    format!("{rank}{worker} is lost while {stage}: {cause}")
}

fn cools_down(worker: WorkerId, wait: Duration) -> String {
    let wait = wait.as_secs_f64();
    format!("{worker} waits {wait:.0} s: workers at its address were left out again and again")
}

/// None for what a status says anyhow.
pub(super) fn words(event: &JobEvent) -> Option<String> {
    Some(match event {
        JobEvent::Steps(_) => return None,
        JobEvent::Joined { worker, step } => format!("{worker} joined at {step}"),
        JobEvent::Lost {
            worker,
            rank,
            cause,
            stage,
        } => lost(*worker, *rank, cause, *stage),
        JobEvent::Leaving { worker, reason } => format!("{worker} leaves at the next boundary: {reason}"),
        JobEvent::Left { worker, step } => format!("{worker} has left at {step}"),
        JobEvent::Snapshot { step, holders } => format!("a snapshot of {step} is held by {holders}"),
        JobEvent::CaughtUp { worker, step } => format!("{worker} has caught up at {step}"),
        JobEvent::CoolsDown { worker, wait } => cools_down(*worker, *wait),
        JobEvent::JoinsAnew { worker, reason } => format!("{worker} begins its join anew: {reason}"),
        JobEvent::Held { worker } => format!("all wait at a boundary until {worker} has the state"),
        JobEvent::Switched { .. } | JobEvent::Adopted { .. } => return about_generations(event),
        JobEvent::Fenced { own, by } => format!("the coordinator {by} leads the job; this one, {own}, ends"),
        JobEvent::Halting { generation } => format!("everybody was told to halt for {generation}"),
        JobEvent::Forming {
            generation,
            members,
            step,
            recomputed,
            fetching,
        } => format!(
            "{generation} forms with {} at {step}: {} again, {} the state",
            count(members.len(), "worker"),
            count(*recomputed, "shard gradient"),
            if *fetching == 1 {
                "1 fetches".to_owned()
            } else {
                format!("{fetching} fetch")
            }
        ),
        JobEvent::Formed {
            generation,
            world_size,
            took,
        } => {
            let (workers, took) = (count(*world_size, "worker"), took.as_millis());
            format!("{generation} is formed with {workers}, after {took} ms")
        }
        JobEvent::Resumed { generation, step, after } => {
            let after = after.as_millis();
            format!("{generation} has applied {step}, {after} ms after what made it necessary")
        }
        JobEvent::Waiting { have, need } => format!("training waits: it has {}, and needs {need}", count(*have, "worker")),
        JobEvent::StateLost { reached, from } => {
            format!("every holder of the state is gone: from {reached} back to {from}")
        }
        JobEvent::DepotCame { .. }
        | JobEvent::DepotLost { .. }
        | JobEvent::DepotRefused { .. }
        | JobEvent::Saved { .. }
        | JobEvent::NotSaved { .. }
        | JobEvent::Resumes { .. }
        | JobEvent::NotRestored { .. } => return about_checkpoints(event),
        JobEvent::NotRecorded { reason } => {
            format!("the job cannot be written down for the coordinator's next life, and is tried again: {reason}")
        }
        JobEvent::RecordedAgain { after } => {
            let after = after.as_secs_f64();
            format!("the job is written down again, whole, after {after:.1} s")
        }
        JobEvent::Done(Summary { step, hash, .. }) => format!("the job is done at {step}, state {hash}"),
        JobEvent::Failed { reason } => format!("the job failed: {reason}"),
    })
}

/// The words for generations that begin without a halt; none for anything else.
fn about_generations(event: &JobEvent) -> Option<String> {
    if let JobEvent::Switched {
        generation,
        members,
        shards,
        step,
    } = event
    {
        let (members, span) = (count(members.len(), "worker"), span(shards));
        return Some(format!(
            "{generation} with {members} began at {step}, with {span} for each; nobody waited"
        ));
    }
    if let JobEvent::Adopted {
        generation,
        members,
        step,
    } = event
    {
        let members = count(members.len(), "worker");
        return Some(format!(
            "this coordinator found {generation} with {members} training at {step}, and left it as it is"
        ));
    }
    None
}

/// The words for what happens to checkpoints and those who keep them; none for anything else.
fn about_checkpoints(event: &JobEvent) -> Option<String> {
    if let JobEvent::DepotCame { depot, host } = event {
        return Some(format!("the checkpoint actor {depot} on {host} is there"));
    }
    if let JobEvent::DepotLost { depot, why } = event {
        return Some(format!("the checkpoint actor {depot} is gone: {why}"));
    }
    if let JobEvent::DepotRefused { depot, step, reason } = event {
        return Some(format!(
            "the checkpoint actor {depot} cannot keep the checkpoint of {step}: {reason}"
        ));
    }
    if let JobEvent::Saved {
        key,
        hosts,
        wanted,
        took,
    } = event
    {
        let (step, took) = (key.step, took.as_millis());
        let where_to = if hosts < wanted {
            format!("{hosts} of {}: under-replicated", count(*wanted, "host"))
        } else {
            count(*hosts, "host")
        };
        return Some(format!(
            "the checkpoint of {step} is committed after {took} ms, on {where_to}"
        ));
    }
    if let JobEvent::NotSaved { step, reason } = event {
        return Some(format!("the checkpoint of {step} is given up: {reason}"));
    }
    if let JobEvent::Resumes { key, passed_over } = event {
        let mut words = format!(
            "training resumes from the checkpoint of {}, the newest that is complete",
            key.step
        );
        for (key, reason) in passed_over {
            words += &format!("; passed over that of {}: {reason}", key.step);
        }
        return Some(words);
    }
    if let JobEvent::NotRestored { key, worker, reason } = event {
        return Some(format!("{worker} could not load the checkpoint of {}: {reason}", key.step));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_but_text() {
        assert_eq!(plain("a\x1b[2Jb\nc", 100), "a [2Jb c");
        assert_eq!(plain("äöü", 3), "ä", "cut between two letters");
        assert_eq!(plain("", 0), "");
    }
}
