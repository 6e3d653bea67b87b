//! Reads what one child prints into one pipe, and names it.

use std::sync::{Arc, PoisonError};

use sardana_protocol::words::{Rank, WorkerId};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use super::lines::{Lines, Then};
use super::logs::Log;
use super::writer::Line;
use super::{Colour, Ranks};
use crate::agent::limits::PIPE_BYTES;

/// Which worker's output it is.
#[derive(Debug, Clone)]
pub(super) struct Label {
    pub(super) worker: WorkerId,
    pub(super) ranks: Ranks,
    pub(super) colour: Colour,
    pub(super) log: Option<Arc<Log>>,
}

/// Passes on what comes through `pipe` until it ends. Waits while the writer is slow, and the child waits with it.
pub(super) async fn pump(mut pipe: impl AsyncRead + Unpin, label: Label, writer: mpsc::Sender<Line>) {
    let mut lines = Lines::default();
    let mut buffer = vec![0; PIPE_BYTES];
    loop {
        let pieces = match pipe.read(&mut buffer).await {
            // The child has closed it, or ended.
            Ok(0) | Err(_) => break,
            Ok(bytes) => lines.push(&buffer[..bytes]),
        };
        for (piece, then) in pieces {
            if writer.send(label.line(&piece, then)).await.is_err() {
                return;
            }
        }
    }
    if let Some((piece, then)) = lines.rest() {
        // This process ends.
        let _ = writer.send(label.line(&piece, then)).await;
    }
}

impl Label {
    fn line(&self, piece: &[u8], then: Then) -> Line {
        let rank = self
            .ranks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&self.worker)
            .copied();
        let mut bytes = name(self.worker, rank, self.colour).into_bytes();
        let own = bytes.len();
        bytes.extend_from_slice(piece);
        bytes.push(b'\n');
        let own = match then {
            Then::Newline => own..bytes.len(),
            // A file gets the bytes as they were.
            Then::Nothing => own..bytes.len() - 1,
        };
        Line {
            bytes,
            own,
            log: self.log.clone(),
        }
    }
}

/// What stands before each line of a worker.
fn name(worker: WorkerId, rank: Option<Rank>, colour: Colour) -> String {
    const SHORT: usize = 7;
    // Cyan, yellow, green, magenta, blue; red is for errors.
    const COLOURS: [u8; 5] = [36, 33, 32, 35, 34];
    let id = worker.to_string();
    let short = id.get(..SHORT).unwrap_or(&id);
    let name = match rank {
        Some(rank) => format!("[{rank} {short}]"),
        None => format!("[{short}]"),
    };
    match colour {
        Colour::Off => format!("{name} "),
        Colour::On => {
            let colour = COLOURS[usize::try_from(worker.get() % COLOURS.len() as u64).unwrap_or(0)];
            format!("\x1b[{colour}m{name}\x1b[0m ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_named_with_its_rank_once_that_is_known() {
        let worker = WorkerId::new(0x1a2b_3c4d_5e6f_0001);
        assert_eq!(name(worker, None, Colour::Off), "[w1a2b3c] ");
        assert_eq!(name(worker, Some(Rank::new(2)), Colour::Off), "[r2 w1a2b3c] ");
        let coloured = name(worker, None, Colour::On);
        assert!(
            coloured.starts_with("\x1b[") && coloured.ends_with("[w1a2b3c]\x1b[0m "),
            "{coloured:?}"
        );
    }

    #[tokio::test]
    async fn lines_are_named_when_they_come_and_a_file_gets_the_bytes() {
        let worker = WorkerId::new(0x1a2b_3c4d_5e6f_0001);
        let ranks = Ranks::default();
        let label = Label {
            worker,
            ranks: Arc::clone(&ranks),
            colour: Colour::Off,
            log: None,
        };
        let (writer, mut lines) = mpsc::channel(8);
        let (mut child, pipe) = tokio::io::duplex(64);
        let pumping = tokio::spawn(pump(pipe, label, writer));
        let mut said = async |bytes: &[u8]| {
            tokio::io::AsyncWriteExt::write_all(&mut child, bytes).await.unwrap();
        };
        said(b"one\n").await;
        let line = lines.recv().await.unwrap();
        assert_eq!(line.bytes, b"[w1a2b3c] one\n");
        assert_eq!(&line.bytes[line.own], b"one\n");
        super::super::rank(&ranks, &[WorkerId::new(7), worker]);
        said(b"\xff\xfe two").await;
        drop(child);
        let line = lines.recv().await.unwrap();
        assert_eq!(line.bytes, b"[r1 w1a2b3c] \xff\xfe two\n");
        assert_eq!(&line.bytes[line.own], b"\xff\xfe two");
        pumping.await.unwrap();
    }

    #[tokio::test]
    async fn a_flood_waits_for_its_reader() {
        let label = Label {
            worker: WorkerId::new(1),
            ranks: Ranks::default(),
            colour: Colour::Off,
            log: None,
        };
        let (writer, mut lines) = mpsc::channel(4);
        let (mut child, pipe) = tokio::io::duplex(64);
        tokio::spawn(pump(pipe, label, writer));
        let flood = async {
            for number in 0..10_000 {
                let line = format!("{number}\n");
                tokio::io::AsyncWriteExt::write_all(&mut child, line.as_bytes())
                    .await
                    .unwrap();
            }
        };
        // While it is not read, it does not come to its end, however long it has.
        tokio::time::pause();
        let mut flood = std::pin::pin!(flood);
        let waiting = tokio::time::timeout(std::time::Duration::from_secs(3_600), &mut flood).await;
        waiting.expect_err("the child waits");
        let reading = async {
            for number in 0..10_000 {
                let line = lines.recv().await.unwrap();
                assert_eq!(line.bytes[line.own], *format!("{number}\n").as_bytes());
            }
        };
        tokio::join!(flood, reading);
    }
}
