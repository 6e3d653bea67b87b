//! The socket beside shared memory: wakes the other end, brings it descriptors of more memory, and shows at once when its process is gone: which a futex does not, nor
//! does a runtime wait for one beside its other sockets. Knows nothing of frames.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::counters::{Doorbell, Gone};
use super::descriptors::{lacked_room, receive_with_memory, send_with_memory};
use crate::limits::{LOOK_AGAIN, SEEN_PAGES};
use crate::pages::go_blind;
use crate::yielding::yield_to_others;

/// So many messages may lie before a descriptor: an end rings only where the other sleeps.
const MOST_RINGS: usize = 1_000;

/// One end's socket.
#[derive(Debug)]
pub(super) struct Bell {
    socket: UnixStream,
    /// What has come with a ring and was not asked for yet.
    descriptors: Mutex<VecDeque<OwnedFd>>,
    /// How many of these are kept: a peer cannot have this process hold more than it will look at.
    most: usize,
}

impl Bell {
    /// Of an end that is brought no descriptors.
    pub(super) fn new(socket: UnixStream) -> Self {
        let (descriptors, most) = (Mutex::default(), 0);
        Self {
            socket,
            descriptors,
            most,
        }
    }

    /// Of an end that is.
    pub(super) fn with_descriptors(socket: UnixStream) -> Self {
        let most = SEEN_PAGES;
        Self {
            most,
            ..Self::new(socket)
        }
    }

    /// Rings, and brings the other end a descriptor of this memory: before anything that is said of it.
    pub(super) fn pass(&self, memory: &File) -> io::Result<()> {
        send_with_memory(&self.socket, &[1], memory)
    }

    /// The next descriptor that the other end has brought. None if none is there.
    pub(super) fn descriptor(&self) -> Option<OwnedFd> {
        // A ring that is heard here is none for an end that sleeps: this one is awake. An end that rings without end is not listened to.
        for _ in 0..MOST_RINGS {
            let came = self.descriptors().pop_front();
            if came.is_some() || !self.receive().is_ok_and(|bytes| bytes > 0) {
                return came.or_else(|| self.descriptors().pop_front());
            }
        }
        None
    }

    /// Whether the other end's process is gone, or has let go of the link. Takes no ring away from this end.
    pub(super) fn is_alone(&self) -> bool {
        let mut socket = [PollFd::new(&self.socket, PollFlags::empty())];
        poll(&mut socket, Some(&Timespec::default())).is_ok() && socket[0].revents().contains(PollFlags::HUP)
    }

    fn receive(&self) -> io::Result<usize> {
        let received = receive_with_memory(&self.socket, &mut [0; 64]);
        // The other end is a worker of this job: no other process decides what this one takes in.
        let (bytes, came) = received.inspect_err(|error| {
            if lacked_room(error) {
                go_blind();
            }
        })?;
        let mut descriptors = self.descriptors();
        let room = descriptors.len() < self.most;
        descriptors.extend(came.filter(|_| room));
        Ok(bytes)
    }

    fn descriptors(&self) -> MutexGuard<'_, VecDeque<OwnedFd>> {
        self.descriptors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Doorbell for Bell {
    fn ring(&self) {
        // Not by the runtime's means, which writes only once it has seen that there is room. Where there is none, it has been rung often
        // enough; where it is broken, the other end sees that as well.
        let _ = send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    async fn heard(&self) -> Result<(), Gone> {
        loop {
            self.socket.readable().await.map_err(|_| Gone)?;
            match self.socket.try_io(Interest::READABLE, || self.receive()) {
                Ok(0) => return Err(Gone),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(Gone),
            }
        }
    }

    async fn lingers(&self, since: Instant) -> bool {
        if since.elapsed() >= LOOK_AGAIN {
            return false;
        }
        // Where ranks share a processor, the one that this one waits for has its turn; and then this rank's other links.
        thread::yield_now();
        yield_to_others().await;
        true
    }
}
