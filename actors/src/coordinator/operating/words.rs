//! What happened to a job, in words for an operator.

use sardana_protocol::membership::{JobEvent, Loss, Stage, Summary};
use sardana_protocol::words::{Rank, ShardRange, WorkerId};

/// `text` without control characters, and cut after `most` bytes: it came over a network, and goes to somebody's terminal.
pub(super) fn plain(text: &str, most: usize) -> String {
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
        format!("{most}")
    } else {
        format!("{least} to {most}")
    }
}

fn lost(worker: WorkerId, rank: Option<Rank>, cause: &Loss, stage: Stage) -> String {
    let rank = rank.map_or_else(String::new, |rank| format!("{rank} "));
    format!("{rank}{worker} is lost while {stage}: {cause}")
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
        JobEvent::CoolsDown { worker, wait } => {
            let wait = wait.as_secs_f64();
            format!("{worker} waits {wait:.0} s: workers at its address were left out again and again")
        }
        JobEvent::JoinsAnew { worker, reason } => format!("{worker} begins its join anew: {reason}"),
        JobEvent::Held { worker } => format!("all wait at a boundary until {worker} has the state"),
        JobEvent::Switched {
            generation,
            members,
            shards,
            step,
        } => format!(
            "{generation} with {} workers began at {step}, with {} shards; nobody waited",
            members.len(),
            span(shards)
        ),
        JobEvent::Fenced { own, by } => format!("the coordinator {by} leads the job; this one, {own}, ends"),
        JobEvent::Adopted {
            generation,
            members,
            step,
        } => format!(
            "this coordinator found {generation} with {} workers training at {step}, and left it as it is",
            members.len()
        ),
        JobEvent::Halting { generation } => format!("everybody was told to halt for {generation}"),
        JobEvent::Forming {
            generation,
            members,
            step,
            recomputed,
            fetching,
        } => format!(
            "{generation} forms with {} workers at {step}: {recomputed} shard gradients again, {fetching} fetch the state",
            members.len()
        ),
        JobEvent::Formed {
            generation,
            world_size,
            took,
        } => {
            let took = took.as_millis();
            format!("{generation} is formed with {world_size} workers, after {took} ms")
        }
        JobEvent::Resumed { generation, step, after } => {
            let after = after.as_millis();
            format!("{generation} has applied {step}, {after} ms after what made it necessary")
        }
        JobEvent::Waiting { have, need } => format!("training waits: {have} workers are there, it needs {need}"),
        JobEvent::StateLost { reached, from } => {
            format!("every holder of the state is gone: from {reached} back to {from}")
        }
        JobEvent::DepotCame { depot, host } => format!("the checkpoint actor {depot} on {host} is there"),
        JobEvent::DepotLost { depot, why } => format!("the checkpoint actor {depot} is gone: {why}"),
        JobEvent::DepotRefused { depot, step, reason } => {
            format!("the checkpoint actor {depot} cannot keep the checkpoint of {step}: {reason}")
        }
        JobEvent::Saved {
            key,
            hosts,
            wanted,
            took,
        } => {
            let (step, took) = (key.step, took.as_millis());
            if hosts < wanted {
                format!(
                    "the checkpoint of {step} is committed on {hosts} of {wanted} hosts, after {took} ms: under-replicated"
                )
            } else {
                format!("the checkpoint of {step} is committed on {hosts} hosts, after {took} ms")
            }
        }
        JobEvent::NotSaved { step, reason } => format!("the checkpoint of {step} is given up: {reason}"),
        JobEvent::Resumes { key, passed_over } => {
            let mut words = format!(
                "training resumes from the checkpoint of {}, the newest that is complete",
                key.step
            );
            for (key, reason) in passed_over {
                words += &format!("; passed over that of {}: {reason}", key.step);
            }
            words
        }
        JobEvent::NotRestored { key, worker, reason } => {
            format!("{worker} could not load the checkpoint of {}: {reason}", key.step)
        }
        JobEvent::Done(Summary { step, hash, .. }) => format!("the job is done at {step}, state {hash}"),
        JobEvent::Failed { reason } => format!("the job failed: {reason}"),
    })
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
