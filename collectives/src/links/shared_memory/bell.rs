//! The socket beside shared memory: wakes the other end, and shows at once when its process is gone. Knows nothing of frames.

use std::io;
use std::thread;
use std::time::Instant;

use rustix::net::{SendFlags, send};
use tokio::net::UnixStream;
use tokio::task::yield_now;

use super::counters::{Doorbell, Gone};
use crate::limits::LOOK_AGAIN;

/// One end's socket.
#[derive(Debug)]
pub(super) struct Bell {
    socket: UnixStream,
}

impl Bell {
    pub(super) const fn new(socket: UnixStream) -> Self {
        Self { socket }
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
            match self.socket.try_read(&mut [0; 64]) {
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
        yield_now().await;
        true
    }
}
