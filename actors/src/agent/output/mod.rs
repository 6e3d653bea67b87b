//! What children print: passed on as it is, or line by line with the worker that said it, and into a file for each.
//!
//! ```text
//!  child ══ pipe ══▶ pump (a task per pipe) ── few lines ──▶ writer (a thread per stream) ──▶ terminal, and the worker's files
//! ```
//! Nothing is kept beyond a few lines: a reader that is slow makes the writer wait, the writer the pumps, and these the child. The
//! writers are threads, so that a terminal that is stopped holds up nothing else in this process.

mod lines;
mod logs;
mod pump;
mod writer;

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sardana_protocol::words::{Rank, WorkerId};
use tokio::io::AsyncRead;
use tokio::sync::mpsc;

pub use logs::LogBounds;
use logs::{Log, Logs};
use pump::{Label, pump};
use writer::Line;
pub(super) use writer::Writers;

/// Where the output of children goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Output {
    /// Where this process's own goes, as it is.
    #[default]
    Inherit,
    /// To this process's own standard output and error, in whole lines, each after the name of its worker.
    Prefixed {
        /// In addition to one file per worker in this folder.
        log_dir: Option<PathBuf>,
        /// How much is kept there.
        bounds: LogBounds,
        /// Whether names are coloured.
        colour: Colour,
    },
}

/// Whether names of workers are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Each worker has one of a few colours.
    On,
    /// The terminal has none, or they are not wanted.
    Off,
}

/// Why the output of children cannot go where it should.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The folder for their files is none, or this user may not write there. Fix the path.
    #[error("the folder for workers' logs, {}, cannot be written to: {source}; give a folder of your own", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives no thread.
    #[error("no thread for the output of workers: {0}")]
    Thread(io::Error),
}

/// The ranks of the newest generation, as far as they are known here.
pub(super) type Ranks = Arc<Mutex<BTreeMap<WorkerId, Rank>>>;

impl Output {
    /// Makes the folder for files if there is none, and tries whether files can be made in it.
    ///
    /// # Errors
    /// When they cannot.
    pub fn check(&self) -> Result<(), OutputError> {
        match self {
            Self::Inherit | Self::Prefixed { log_dir: None, .. } => Ok(()),
            Self::Prefixed {
                log_dir: Some(folder), ..
            } => writable(folder).map_err(|source| OutputError::Folder {
                folder: folder.clone(),
                source,
            }),
        }
    }
}

fn writable(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    tempfile::tempfile_in(folder).map(drop)
}

/// Passes on what children print.
#[derive(Debug, Clone)]
pub(super) struct Printer {
    logs: Option<Arc<Logs>>,
    colour: Colour,
    ranks: Ranks,
    out: mpsc::Sender<Line>,
    err: mpsc::Sender<Line>,
}

impl Printer {
    /// None if children print for themselves.
    pub(super) fn start(output: &Output, ranks: &Ranks) -> Result<Option<(Self, Writers)>, OutputError> {
        output.check()?;
        let Output::Prefixed { log_dir, bounds, colour } = output else {
            return Ok(None);
        };
        let (out, out_done) = writer::start("workers-out", io::stdout()).map_err(OutputError::Thread)?;
        let (err, err_done) = writer::start("workers-err", io::stderr()).map_err(OutputError::Thread)?;
        let printer = Self {
            logs: log_dir.as_ref().map(|folder| Arc::new(Logs::new(folder, *bounds))),
            colour: *colour,
            ranks: Arc::clone(ranks),
            out,
            err,
        };
        Ok(Some((printer, Writers::new([out_done, err_done]))))
    }

    /// The file of a worker's output, if there is to be one.
    pub(super) fn log(&self, worker: WorkerId) -> io::Result<Option<Arc<Log>>> {
        self.logs.as_ref().map(|logs| logs.of(worker)).transpose()
    }

    /// Passes on what a child prints from now on.
    pub(super) fn carry(
        &self,
        worker: WorkerId,
        log: Option<Arc<Log>>,
        stdout: Option<impl AsyncRead + Unpin + Send + 'static>,
        stderr: Option<impl AsyncRead + Unpin + Send + 'static>,
    ) {
        let label = Label {
            worker,
            ranks: Arc::clone(&self.ranks),
            colour: self.colour,
            log,
        };
        if let Some(stdout) = stdout {
            tokio::spawn(pump(stdout, label.clone(), self.out.clone()));
        }
        if let Some(stderr) = stderr {
            tokio::spawn(pump(stderr, label, self.err.clone()));
        }
    }
}

/// These are the members of the newest generation, in rank order.
pub(super) fn rank(ranks: &Ranks, members: &[WorkerId]) {
    let numbered = members.iter().copied().zip((0..).map(Rank::new));
    *ranks.lock().unwrap_or_else(PoisonError::into_inner) = numbered.collect();
}
