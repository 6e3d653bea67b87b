//! What a coordinator writes down of its job, for its next life, in a catalogue. Nobody waits for it, and training needs none of it:
//! see [`JobRecord`].

use std::path::Path;
use std::time::Duration;

use sardana_protocol::job::JobIdentity;
use sardana_protocol::membership::JobRecord;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::actor::{Life, State};
use crate::catalogue::limits::VALUE_BYTES;
use crate::catalogue::{Batch, Catalogue, CatalogueError, Repair};
use crate::ground::Ground;
use crate::wire::{FrameError, decode, encode};

/// The table of the job's record: its parts, numbered.
const TABLE: &str = "job";

/// Most parts, each as long as a value may be: they change in one commit.
const PARTS: u8 = 3;

/// A job as its coordinator last knew it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptJob {
    /// What every worker of it computes.
    pub identity: JobIdentity,
    /// Names of the model's auxiliary sums.
    pub auxiliary: Vec<String>,
    /// Who was there, what is counted, what was asked for.
    pub record: JobRecord,
}

/// Where it is written.
#[derive(Debug)]
pub struct Records(Kept);

#[derive(Debug)]
enum Kept {
    Catalogue(Catalogue),
    /// By whoever embeds the coordinator.
    Elsewhere(mpsc::UnboundedSender<Option<KeptJob>>),
}

/// Why there are no records, or they cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The catalogue says no. Its message says what to do; here one may also do without.
    #[error(
        "the job's records cannot be used: {0} (or move the folder away: the workers know all that counts, and only the count of their \
         gradients is lost)"
    )]
    Catalogue(#[from] CatalogueError),
    /// What is there was written by another version, or is too much. Begin with an empty state directory, or take over from the
    /// workers.
    #[error(
        "the job's record cannot be read or written: {0}; take over from the workers (--take-over), which know all that counts"
    )]
    Record(#[from] FrameError),
}

impl Records {
    /// Opens the records in the folder `path`, or makes some: also what is there of a job that is not over. Blocks.
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub fn open(path: &Path) -> Result<(Self, Option<KeptJob>, Vec<Repair>), RecordsError> {
        let opened = Catalogue::open(path)?;
        let repairs = match opened.found {
            crate::catalogue::Found::Fresh | crate::catalogue::Found::Used => Vec::new(),
            crate::catalogue::Found::Repaired(repairs) => repairs,
        };
        let job = read(&opened.catalogue)?;
        Ok((Self(Kept::Catalogue(opened.catalogue)), job, repairs))
    }

    /// Records that are kept elsewhere: what is to be written comes through the receiver, and nothing once the job is over. For a
    /// simulation, whose disk is its own.
    #[must_use]
    pub fn elsewhere() -> (Self, mpsc::UnboundedReceiver<Option<KeptJob>>) {
        let (kept, written) = mpsc::unbounded_channel();
        (Self(Kept::Elsewhere(kept)), written)
    }

    /// Writes the job down, or that it is over. On the disk when this returns. Blocks.
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub fn write(&self, job: Option<&KeptJob>) -> Result<(), RecordsError> {
        match &self.0 {
            Kept::Catalogue(catalogue) => write(catalogue, job),
            Kept::Elsewhere(kept) => {
                // Whoever does not listen does not want it.
                let _ = kept.send(job.cloned());
                Ok(())
            }
        }
    }
}

fn read(catalogue: &Catalogue) -> Result<Option<KeptJob>, RecordsError> {
    let table = catalogue.table(TABLE)?;
    let mut bytes = Vec::new();
    for part in 0..PARTS {
        let Some(more) = table.get(&[part])? else { break };
        bytes.extend(more);
    }
    Ok(if bytes.is_empty() {
        None
    } else {
        Some(decode(&bytes, usize::from(PARTS) * VALUE_BYTES)?)
    })
}

fn write(catalogue: &Catalogue, job: Option<&KeptJob>) -> Result<(), RecordsError> {
    let bytes = match job {
        Some(job) => encode(job, usize::from(PARTS) * VALUE_BYTES)?,
        None => Vec::new(),
    };
    let mut parts = bytes.chunks(VALUE_BYTES);
    let batch = (0..PARTS).fold(Batch::new(), |batch, part| match parts.next() {
        Some(bytes) => batch.put(TABLE, &[part], bytes),
        None => batch.remove(TABLE, &[part]),
    });
    catalogue.commit(&batch)?;
    Ok(())
}

/// What is to be written: the newest counts.
pub(super) type Newest = watch::Sender<Option<KeptJob>>;

/// Between two writings of how far the job is, if nothing else has changed: what the next life tells people again, or not at all.
const WRITE_EVERY: Duration = Duration::from_secs(1);

impl State {
    /// Has what the next life should know written down: at once if that is not only that training goes on.
    pub(super) fn write_down(&mut self) {
        let (Some(newest), Some((identity, membership)), Life::Open) = (&self.records, &self.job, self.life) else {
            return;
        };
        let record = membership.record();
        let due = self.written.as_ref().is_none_or(|(at, before)| {
            record.differs_from(&before.record) || (at.elapsed() >= WRITE_EVERY && record != before.record)
        });
        if due {
            let job = KeptJob {
                identity: identity.clone(),
                auxiliary: self.operating.auxiliary().to_vec(),
                record,
            };
            newest.send_replace(Some(job.clone()));
            self.written = Some((Instant::now(), job));
        }
    }
}

/// Writes what comes until nothing more does, beside those who wait for the coordinator. Then the records are closed.
pub(super) fn keep_writing(ground: Ground, records: Records) -> (Newest, JoinHandle<()>) {
    let (newest, mut coming) = watch::channel(None);
    let writing = tokio::spawn(async move {
        let mut records = records;
        while coming.changed().await.is_ok() {
            let job = coming.borrow_and_update().clone();
            let writing = ground.beside(move || (records.write(job.as_ref()), records));
            // It is cancelled only when the process ends.
            let Some((written, back)) = writing.await else { return };
            records = back;
            if let Err(error) = written {
                tracing::error!(target: "sardana::event::records", %error, "the job is not written down any more; training goes on");
                return;
            }
        }
    });
    (newest, writing)
}

#[cfg(test)]
mod tests {
    use sardana_protocol::job::{Fingerprint, JobSpec, Order};
    use sardana_protocol::membership::{Balance, Config, Membership};
    use sardana_protocol::state::StateHash;
    use sardana_protocol::words::{Incarnation, Step};

    use super::*;

    fn job(name: &str) -> KeptJob {
        let hash = StateHash::of(b"x");
        let spec = JobSpec {
            name: name.to_owned(),
            seed: 1,
            shards: 8,
            steps: Step::new(10),
            samples: 64,
            batch: 16,
            order: Order::Exact,
        };
        let config = Config {
            min: 1,
            expected: 1,
            max: 8,
            shards: 8,
            steps: Step::new(10),
            order: Order::Exact,
            balance: Balance::default(),
            task: hash,
            build: hash,
            saves: None,
        };
        KeptJob {
            identity: JobIdentity {
                spec,
                state_zero: hash,
                fingerprint: Fingerprint {
                    program: hash,
                    tensors: hash,
                    processor: "x".to_owned(),
                    device: "cpu".to_owned(),
                    libraries: "l".to_owned(),
                    probe: hash,
                },
            },
            auxiliary: vec!["loss".to_owned()],
            record: Membership::new(config, Incarnation::new(1), Duration::ZERO).record(),
        }
    }

    #[test]
    fn a_job_is_there_until_it_is_over() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("records");
        let (records, none, _) = Records::open(&path).unwrap();
        assert_eq!(none, None);
        records.write(Some(&job("one"))).unwrap();
        // Longer than one value may be.
        let long = job(&"x".repeat(VALUE_BYTES + 5));
        records.write(Some(&long)).unwrap();
        drop(records);
        let (records, found, _) = Records::open(&path).unwrap();
        assert_eq!(found, Some(long));
        records.write(Some(&job("two"))).unwrap();
        drop(records);
        let (records, found, _) = Records::open(&path).unwrap();
        assert_eq!(found, Some(job("two")));
        let too_long = job(&"x".repeat(usize::from(PARTS) * VALUE_BYTES));
        assert!(matches!(records.write(Some(&too_long)), Err(RecordsError::Record(_))));
        records.write(None).unwrap();
        drop(records);
        assert_eq!(Records::open(&path).unwrap().1, None);
    }
}
