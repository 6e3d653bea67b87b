//! Events of a job as sentences, for a person's log or screen. Without a full stop: what shows them adds where and when.

use std::fmt;

use super::job_event::{GenerationEvent, JobEvent, Need, Summary, WorkerEvent};
use crate::memory::Bytes;
use crate::words::{ShardRange, count};

impl fmt::Display for JobEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(event) => event.fmt(f),
            Self::Generation(event) => event.fmt(f),
            Self::Checkpoint(event) => event.fmt(f),
            Self::Steps(reports) => {
                let Some((first, last)) = reports.first().zip(reports.last()) else {
                    return f.write_str("no step is applied");
                };
                write!(f, "{} to {} are applied", first.step, last.step)
            }
            Self::Snapshot { step, holders } => write!(f, "a snapshot of {step} is held by {holders}"),
            Self::Waiting { have, need } => write!(f, "training waits: it has {}, and needs {need}", count(*have, "worker")),
            Self::StateLost { reached, from } => {
                write!(f, "every holder of the state is gone: from {reached} back to {from}")
            }
            Self::Fenced { own, by } => write!(f, "the coordinator {by} leads the job; this one, {own}, ends"),
            Self::NotRecorded { reason } => write!(
                f,
                "the job cannot be written down for the coordinator's next life, and is tried again: {reason}"
            ),
            Self::RecordedAgain { after } => {
                let after = after.as_secs_f64();
                write!(f, "the job is written down again, whole, after {after:.1} s")
            }
            Self::Done(summary) if summary.is_of_a_group() => f.write_str("the job is done"),
            Self::Done(Summary { step, hash, .. }) => write!(f, "the job is done at {step}, state {hash}"),
            Self::Failed { reason } => write!(f, "the job failed: {reason}"),
        }
    }
}

impl fmt::Display for WorkerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { worker, step } => write!(f, "{worker} joined at {step}"),
            Self::CaughtUp { worker, step } => write!(f, "{worker} has caught up at {step}"),
            Self::JoinsAnew { worker, reason } => write!(f, "{worker} begins its join anew: {reason}"),
            Self::SharesNoMemory { worker } => write!(
                f,
                "{worker} should share memory with other workers of its host, and its links to them are QUIC: large gradients are summed more slowly. Look what \
                 keeps it from it: SELinux, seccomp, the limit of open files or the memory of its cgroup; or start all with --link quic"
            ),
            Self::CoolsDown { worker, wait } => {
                let wait = wait.as_secs_f64();
                write!(
                    f,
                    "{worker} waits {wait:.0} s: workers at its address were left out again and again"
                )
            }
            Self::Held { worker } => write!(f, "all wait at a boundary until {worker} has the state"),
            Self::Leaving { worker, reason } => write!(f, "{worker} leaves at the next boundary: {reason}"),
            Self::Left { worker, step } => write!(f, "{worker} has left at {step}"),
            Self::Lost {
                worker,
                rank,
                cause,
                stage,
            } => {
                if let Some(rank) = rank {
                    write!(f, "{rank} ")?;
                }
                write!(f, "{worker} is lost while {stage}: {cause}")
            }
        }
    }
}

impl fmt::Display for GenerationEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Halting { generation } => write!(f, "all workers were told to halt for {generation}"),
            Self::Forming {
                generation,
                members,
                step,
                recomputed,
                fetching,
                dropping,
            } => {
                let workers = count(members.len(), "worker");
                write!(f, "{generation} forms with {workers} at {step}")?;
                if *recomputed > 0 {
                    write!(f, ", {} again", count(*recomputed, "shard gradient"))?;
                }
                if *fetching > 0 {
                    let fetch = if *fetching == 1 { "fetches" } else { "fetch" };
                    write!(f, ", {fetching} {fetch} the state")?;
                }
                if *dropping {
                    f.write_str(
                        ", some compute their shards anew, for want of memory or since what they have is of another state",
                    )?;
                }
                Ok(())
            }
            Self::Formed {
                generation,
                world_size,
                took,
            } => {
                let (workers, took) = (count(*world_size, "worker"), took.as_millis());
                write!(f, "{generation} is formed with {workers}, after {took} ms")
            }
            Self::Resumed { generation, step, after } => {
                let after = after.as_millis();
                write!(f, "{generation} has applied {step}, {after} ms after what made it necessary")
            }
            Self::Switched {
                generation,
                members,
                shards,
                step,
            } => {
                let (workers, span) = (count(members.len(), "worker"), span(shards));
                write!(
                    f,
                    "{generation} with {workers} began at {step}, with {span} for each; no worker waited"
                )
            }
            Self::Adopted {
                generation,
                members,
                step,
            } => {
                let workers = count(members.len(), "worker");
                write!(
                    f,
                    "this coordinator found {generation} with {workers} training at {step}, and left it as it is"
                )
            }
        }
    }
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

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workers(workers) => write!(f, "at least {}", count(*workers, "worker")),
            Self::Room { room, shards, gradient } => write!(
                f,
                "room for {}, there is room for {room} ({} and {} of gradients)",
                count(*shards, "shard"),
                Bytes(gradient.saturating_mul(u64::from(*shards))),
                Bytes(gradient.saturating_mul(*room))
            ),
            Self::State => f.write_str("a worker that holds the state and may be on its way back"),
            Self::Depots => f.write_str(
                "a checkpoint actor, to know from which checkpoint to resume; start one, or run without checkpoints",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::checkpoint::{ManifestId, ManifestKey};
    use crate::checkpoint_manager::CheckpointEvent;
    use crate::membership::Loss;
    use crate::status::Stage;
    use crate::words::{Generation, Incarnation, Rank, Step, WorkerId};

    fn sentence(event: impl Into<JobEvent>) -> String {
        event.into().to_string()
    }

    #[test]
    fn a_loss_names_the_rank_if_there_was_one() {
        let lost = |rank| WorkerEvent::Lost {
            worker: WorkerId::new(7),
            rank,
            cause: Loss::Exited {
                how: "signal 9".to_owned(),
                tally: None,
            },
            stage: Stage::Running,
        };
        let (with, without) = (sentence(lost(Some(Rank::new(2)))), sentence(lost(None)));
        assert!(with.starts_with("r2 w0000000000000007 is lost while running: "), "{with}");
        assert_eq!(without, with["r2 ".len()..]);
    }

    #[test]
    fn numbers_agree_with_their_nouns() {
        let forming = |fetching, recomputed, dropping| GenerationEvent::Forming {
            generation: Generation::new(Incarnation::new(1), 4),
            members: vec![WorkerId::new(7)],
            step: Step::new(3),
            recomputed,
            fetching,
            dropping,
        };
        let one = "g1.4 forms with 1 worker at s3, 1 shard gradient again, 1 fetches the state";
        assert_eq!(sentence(forming(1, 1, false)), one);
        let more = "g1.4 forms with 1 worker at s3, 2 shard gradients again";
        assert_eq!(sentence(forming(0, 2, false)), more);
        let scarce = format!(
            "{more}, some compute their shards anew, for want of memory or since what they have is of another state"
        );
        assert_eq!(sentence(forming(0, 2, true)), scarce);
    }

    #[test]
    fn a_checkpoint_says_where_it_is_and_why_others_were_passed_over() {
        let key = |step| ManifestKey {
            step: Step::new(step),
            id: ManifestId::new([1; 32]),
        };
        let saved = |hosts| CheckpointEvent::Saved {
            key: key(5),
            hosts,
            wanted: 2,
            took: Duration::from_millis(30),
        };
        assert_eq!(
            sentence(saved(2)),
            "the checkpoint of s5 is committed after 30 ms, on 2 hosts"
        );
        let thin = "the checkpoint of s5 is committed after 30 ms, on 1 of 2 hosts: under-replicated";
        assert_eq!(sentence(saved(1)), thin);
        let resumes = sentence(CheckpointEvent::Resumes {
            key: key(5),
            passed_over: vec![(key(9), "a piece is nowhere".to_owned())],
        });
        assert!(
            resumes.ends_with("complete; passed over that of s9: a piece is nowhere"),
            "{resumes}"
        );
    }

    #[test]
    fn an_event_is_called_what_it_is_called_in_its_group() {
        let event = JobEvent::from(WorkerEvent::Held {
            worker: WorkerId::new(7),
        });
        assert_eq!(event.name(), "Held");
        assert_eq!(JobEvent::Steps(Vec::new()).name(), "Steps");
    }
}
