//! What a coordinator writes down of its job, for its next life, in a catalogue. Training does not wait for it, and needs none of it:
//! see [`JobRecord`].

use std::path::Path;

use sardana_net::environment::Environment;
use sardana_protocol::codec::CodecError;
use sardana_protocol::job::JobIdentity;
use sardana_protocol::limits::{MAX_TEXT_BYTES, RECORD_EVERY};
use sardana_protocol::membership::{JobEvent, JobRecord};
use sardana_protocol::status::Recording;
use sardana_storage::catalogue::{CatalogueError, Repair};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::actor::{Life, State};
use super::journal::Journal;
use super::limits::{RECORD_AGAIN, RECORD_AGAIN_MOST};
use super::operating::plain;

/// A job as its coordinator last knew it.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptJob {
    /// What every worker of it computes.
    pub identity: JobIdentity,
    /// Names of the model's auxiliary sums.
    pub auxiliary: Vec<String>,
    /// Which workers were there, what is counted, what was asked for.
    pub record: JobRecord,
}

/// Where it is written.
#[derive(Debug)]
pub struct Records(Kept);

#[derive(Debug)]
enum Kept {
    Journal(Journal),
    /// By the program that embeds the coordinator.
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
    Record(#[from] CodecError),
}

impl Records {
    /// Opens the records in the folder `path`, or makes some: also what is there of a job that is not over. Blocks.
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub fn open(path: &Path) -> Result<(Self, Option<KeptJob>, Vec<Repair>), RecordsError> {
        let (journal, job, repairs) = Journal::open(path)?;
        Ok((Self(Kept::Journal(journal)), job, repairs))
    }

    /// Records that are kept elsewhere: what is to be written comes through the receiver, and nothing once the job is over. For a
    /// simulation, whose disk is its own.
    #[must_use]
    pub fn elsewhere() -> (Self, mpsc::UnboundedReceiver<Option<KeptJob>>) {
        let (kept, written) = mpsc::unbounded_channel();
        (Self(Kept::Elsewhere(kept)), written)
    }

    /// Writes down what has changed of the job, or that it is over. On the disk when this returns. After a failure the next call begins
    /// anew with what is on the disk. Blocks.
    ///
    /// # Errors
    /// See [`RecordsError`].
    pub fn write(&mut self, job: Option<&KeptJob>) -> Result<(), RecordsError> {
        match &mut self.0 {
            Kept::Journal(journal) => journal.write(job).map(drop),
            Kept::Elsewhere(kept) => {
                // A program that has dropped the receiver does not want it.
                let _ = kept.send(job.cloned());
                Ok(())
            }
        }
    }
}

#[cfg(test)]
impl Records {
    /// As after a failure.
    pub(super) fn fail(&mut self) {
        if let Kept::Journal(journal) = &mut self.0 {
            journal.close();
        }
    }
}

/// What the coordinator has of the task that writes.
#[derive(Debug)]
pub(super) struct Recorder {
    /// What is to be written: the newest counts.
    newest: watch::Sender<Option<KeptJob>>,
    /// The newest, and since when it is.
    written: Option<(Instant, KeptJob)>,
    /// Why it cannot be, if so.
    trouble: watch::Receiver<Option<Trouble>>,
    /// Since when people know.
    told: Option<Instant>,
}

/// The job cannot be written down.
#[derive(Debug, Clone)]
struct Trouble {
    since: Instant,
    reason: String,
}

impl Recorder {
    /// Whether this should be written: at once if it says more than that training goes on.
    fn lacks(&self, record: &JobRecord) -> bool {
        self.written.as_ref().is_none_or(|(at, before)| {
            record.differs_from(&before.record) || (at.elapsed() >= RECORD_EVERY && *record != before.record)
        })
    }

    /// This is to be written.
    pub(super) fn write(&mut self, job: KeptJob) {
        self.newest.send_replace(Some(job.clone()));
        self.written = Some((Instant::now(), job));
    }

    /// The job is over: nothing is left for a next life.
    pub(super) fn over(&self) {
        self.newest.send_replace(None);
    }

    /// What people should be told that they were not told yet.
    pub(super) fn news(&mut self) -> Option<JobEvent> {
        let trouble = self.trouble.borrow_and_update().clone();
        match (trouble, self.told) {
            (Some(trouble), None) => {
                self.told = Some(trouble.since);
                let reason = trouble.reason;
                Some(JobEvent::NotRecorded { reason })
            }
            (None, Some(since)) => {
                self.told = None;
                let after = since.elapsed();
                Some(JobEvent::RecordedAgain { after })
            }
            (Some(_), Some(_)) | (None, None) => None,
        }
    }
}

impl State {
    /// Has what the next life should know written down.
    pub(super) fn write_down(&mut self) {
        let (Some(recorder), Some((identity, membership)), Life::Open) = (&mut self.records, &self.job, self.life) else {
            return;
        };
        let record = membership.record();
        if recorder.lacks(&record) {
            recorder.write(KeptJob {
                identity: identity.clone(),
                auxiliary: self.operating.auxiliary().to_vec(),
                record,
            });
        }
    }

    /// Tells people whether the job is written down, when that changes.
    pub(super) fn mind_the_records(&mut self) {
        let news = self.records.as_mut().and_then(Recorder::news);
        // How an end is written down is the log's.
        if let (Some(event), Life::Open) = (news, self.life) {
            self.tell(event);
        }
    }

    /// As an operator sees it.
    pub(super) fn recording(&self) -> Recording {
        let Some(recorder) = &self.records else {
            return Recording::Off;
        };
        match &*recorder.trouble.borrow() {
            None => Recording::On,
            Some(trouble) => Recording::Failing {
                since: trouble.since.elapsed(),
                reason: plain(&trouble.reason, MAX_TEXT_BYTES),
            },
        }
    }
}

/// Writes what comes until nothing more does, and keeps nothing that waits for the coordinator waiting. Then the records are closed.
///
/// ```text
///  something has changed ──▶ written, all that has come until then
///                               │ ▲
///                    it cannot  ▼ │ it can: people are told
///                   people are told; again after 1 s, 2 s, 4 s, … 30 s
/// ```
/// Once the coordinator ends it is tried a last time.
pub(super) fn keep_writing(environment: Environment, records: Records) -> (Recorder, JoinHandle<()>) {
    let (newest, mut coming) = watch::channel(None);
    let (tell, trouble) = watch::channel(None);
    let writing = tokio::spawn(async move {
        let mut records = records;
        while coming.changed().await.is_ok() {
            let mut wait = RECORD_AGAIN;
            loop {
                let job = coming.borrow_and_update().clone();
                let writing = environment.blocking(move || (records.write(job.as_ref()), records));
                // It is cancelled only when the process ends.
                let Some((written, back)) = writing.await else { return };
                records = back;
                let Err(error) = written else { break };
                has_failed(&tell, &error);
                // What comes meanwhile is written with the rest.
                let ends = async { while coming.changed().await.is_ok() {} };
                if timeout(wait, ends).await.is_ok() {
                    let job = coming.borrow().clone();
                    return last_try(&environment, records, job).await;
                }
                wait = (wait * 2).min(RECORD_AGAIN_MOST);
            }
            tell.send_if_modified(|trouble| trouble.take().is_some());
        }
    });
    let recorder = Recorder {
        newest,
        written: None,
        trouble,
        told: None,
    };
    (recorder, writing)
}

async fn last_try(environment: &Environment, mut records: Records, job: Option<KeptJob>) {
    let written = environment.blocking(move || records.write(job.as_ref())).await;
    if let Some(Err(error)) = written {
        tracing::error!(target: "sardana::event::records", %error, "the job could not be written down to its end");
    }
}

fn has_failed(tell: &watch::Sender<Option<Trouble>>, error: &RecordsError) {
    let reason = error.to_string();
    tell.send_modify(|trouble| {
        let since = trouble.as_ref().map_or_else(Instant::now, |before| before.since);
        *trouble = Some(Trouble { since, reason });
    });
}
