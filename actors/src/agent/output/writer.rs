//! Writes lines to one of this process's own streams, and to workers' files, from a thread of its own.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::logs::Log;
use crate::agent::limits::{LINE_BYTES, LINES_WAITING};

/// One line of a worker, or a piece of a long one.
#[derive(Debug)]
pub(super) struct Line {
    /// With the worker's name in front and a newline at the end.
    pub(super) bytes: Vec<u8>,
    /// Which of them the worker printed.
    pub(super) own: Range<usize>,
    pub(super) log: Option<Arc<Log>>,
}

/// Starts a writer. It ends, and says so, when all senders are gone.
pub(super) fn start(
    name: &str,
    stream: impl Write + Send + 'static,
) -> io::Result<(mpsc::Sender<Line>, oneshot::Receiver<()>)> {
    let (sender, lines) = mpsc::channel(LINES_WAITING);
    let (done, is_done) = oneshot::channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        write_all(lines, stream);
        // The caller may not wait.
        let _ = done.send(());
    })?;
    Ok((sender, is_done))
}

fn write_all(mut lines: mpsc::Receiver<Line>, stream: impl Write) {
    let mut stream = Some(stream);
    let mut together = Vec::new();
    while let Some(line) = lines.blocking_recv() {
        let mut next = Some(line);
        // What waits already goes out in one write.
        while let Some(line) = next {
            if let Some(log) = &line.log {
                log.append(&line.bytes[line.own]);
            }
            together.extend_from_slice(&line.bytes);
            next = if together.len() < LINE_BYTES {
                lines.try_recv().ok()
            } else {
                None
            };
        }
        // The program that read it may be gone, as with `| head`: workers go on, and so do their files.
        stream = stream.take().and_then(|mut stream| {
            let written = stream.write_all(&together).and_then(|()| stream.flush());
            written.is_ok().then_some(stream)
        });
        together.clear();
    }
}

/// The writers of a printer.
#[derive(Debug)]
pub(in crate::agent) struct Writers([oneshot::Receiver<()>; 2]);

impl Writers {
    pub(super) fn new(done: [oneshot::Receiver<()>; 2]) -> Self {
        Self(done)
    }

    /// Waits until everything is written, or `patience` is over: a child's own child may keep a pipe open, and a terminal may be
    /// stopped.
    pub(in crate::agent) async fn finish(self, patience: Duration) {
        let [out, err] = self.0;
        // Ended either way.
        let _ = timeout(patience, async { tokio::join!(out, err) }).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Fails after so many writes.
    struct Screen {
        shown: Arc<Mutex<Vec<u8>>>,
        left: usize,
    }

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.left == 0 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.left -= 1;
            self.shown.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn files_are_complete_although_nobody_reads_the_terminal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.log");
        let log = Arc::new(Log::open(&path, 1 << 20).unwrap());
        let shown = Arc::new(Mutex::new(Vec::new()));
        let screen = Screen {
            shown: Arc::clone(&shown),
            left: 0,
        };
        let (sender, done) = start("test", screen).unwrap();
        for number in 0..3 {
            let own = format!("{number}\n");
            let line = Line {
                bytes: format!("[x] {own}").into_bytes(),
                own: 4..4 + own.len(),
                log: Some(Arc::clone(&log)),
            };
            sender.send(line).await.unwrap();
        }
        drop(sender);
        done.await.unwrap();
        assert!(shown.lock().unwrap().is_empty());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n1\n2\n");
    }
}
