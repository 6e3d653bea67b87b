//! Memory of a writer that a depot on the same host sees too: what is written passes through it, and no network. The writer says over the
//! network where it is, and when something is in it; what is seen there is compared with its hash as ever.
//!
//! It has two panes: while the depot looks at one, the writer fills the other. Only Linux has such memory: elsewhere, and where the depot
//! cannot see it (another user, another container), all goes over the network.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::limits::PANE_BYTES;

/// Panes of a window.
pub(super) const PANES: usize = 2;

/// What the system calls such memory.
const NAME: &str = "sardana-window";

/// Bytes that no process can know that was not told.
type Mark = [u8; 16];

/// Where a window is. Of all files on this host it is the one with this mark behind its panes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WindowAt {
    pub(super) process: u32,
    pub(super) descriptor: u32,
    pub(super) mark: Mark,
}

/// The writer's side. With it the memory goes.
#[derive(Debug)]
pub(super) struct Window {
    file: File,
    at: WindowAt,
}

impl Window {
    /// # Errors
    /// When the system has no such memory.
    #[cfg(target_os = "linux")]
    pub(super) fn make() -> io::Result<Self> {
        use std::os::fd::AsRawFd;

        use rustix::fs::MemfdFlags;
        use rustix::process::{Resource, getrlimit};

        let mut mark = Mark::default();
        let length = mark_at() + mark.len() as u64;
        // A process that makes a longer file than it may is killed.
        if getrlimit(Resource::Fsize).current.is_some_and(|most| most < length) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        getrandom::fill(&mut mark).map_err(|error| io::Error::other(error.to_string()))?;
        let file = File::from(rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC)?);
        file.write_all_at(&mark, mark_at())?;
        let at = WindowAt {
            process: std::process::id(),
            descriptor: u32::try_from(file.as_raw_fd()).map_err(io::Error::other)?,
            mark,
        };
        Ok(Self { file, at })
    }

    /// # Errors
    /// Always: only Linux has such memory.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn make() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn at(&self) -> WindowAt {
        self.at
    }

    /// Fills a pane with these, one after the other.
    ///
    /// # Errors
    /// When they do not fit, or the memory is gone.
    pub(super) fn show(&self, pane: usize, pieces: &[Bytes]) -> io::Result<()> {
        if pieces.iter().map(Bytes::len).sum::<usize>() > PANE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut at = begin(pane);
        for piece in pieces {
            self.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}

/// The depot's side.
#[derive(Debug)]
pub(super) struct View(File);

impl View {
    /// # Errors
    /// When this process cannot see such a window.
    pub(super) fn open(at: WindowAt) -> io::Result<Self> {
        let other = || io::Error::new(io::ErrorKind::NotFound, "another file is there");
        let path = format!("/proc/{}/fd/{}", at.process, at.descriptor);
        // Nothing is opened, and no disk is asked anything, for a file that does not even say that it is a window.
        let target = fs::read_link(&path)?;
        if !target
            .as_os_str()
            .as_encoded_bytes()
            .starts_with(format!("/memfd:{NAME}").as_bytes())
        {
            return Err(other());
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(rustix::fs::open(&path, flags, Mode::empty())?);
        let mut found = Mark::default();
        let length = mark_at() + found.len() as u64;
        if !file.metadata()?.is_file() || file.metadata()?.len() != length {
            return Err(other());
        }
        file.read_exact_at(&mut found, mark_at())?;
        if found == at.mark { Ok(Self(file)) } else { Err(other()) }
    }

    /// Copies the first bytes of a pane.
    pub(super) fn look(&self, pane: usize, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, begin(pane))
    }
}

/// Where a pane begins.
fn begin(pane: usize) -> u64 {
    (pane * PANE_BYTES) as u64
}

/// Where the mark is.
fn mark_at() -> u64 {
    begin(PANES)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_seen() {
        let window = Window::make().unwrap();
        let view = View::open(window.at()).unwrap();
        for (pane, pieces) in [(0, ["one", "two"]), (1, ["three", "four"]), (0, ["five", ""])] {
            let pieces = pieces.map(|piece| Bytes::from_static(piece.as_bytes()));
            window.show(pane, &pieces).unwrap();
            let mut seen = vec![0; pieces.concat().len()];
            view.look(pane, &mut seen).unwrap();
            assert_eq!(seen, pieces.concat());
        }
        let full = Bytes::from(vec![7; PANE_BYTES]);
        (0..PANES).for_each(|pane| window.show(pane, std::slice::from_ref(&full)).unwrap());
        let mut seen = vec![0; PANE_BYTES];
        view.look(PANES - 1, &mut seen).unwrap();
        assert_eq!(seen, full);
        View::open(window.at()).expect("the mark is still there");
    }

    #[test]
    fn another_file_is_not_taken_for_a_window() {
        let window = Window::make().unwrap();
        let at = window.at();
        let other = Window::make().unwrap().at();
        let descriptor = other.descriptor;
        for wrong in [
            WindowAt { mark: other.mark, ..at },
            // It is closed.
            WindowAt { descriptor, ..at },
            WindowAt {
                descriptor: u32::MAX,
                ..at
            },
            WindowAt { process: u32::MAX, ..at },
            WindowAt { process: 0, ..at },
        ] {
            View::open(wrong).unwrap_err();
        }
    }

    #[test]
    fn a_file_is_no_window_though_it_has_the_mark_and_memory_without_it_neither() {
        use std::os::fd::AsRawFd;

        let at = Window::make().unwrap().at();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&at.mark, mark_at()).unwrap();
        let memory = rustix::fs::memfd_create(NAME, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        for descriptor in [file.as_raw_fd(), memory.as_raw_fd()] {
            let descriptor = u32::try_from(descriptor).unwrap();
            View::open(WindowAt { descriptor, ..at }).unwrap_err();
        }
    }
}
