//! Descriptors of memory that pass a Unix socket together with a message (unix(7), `SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// A descriptor that came could not be taken in.
#[derive(Debug, thiserror::Error)]
#[error("a descriptor could not be taken in: this process has too many open")]
struct NoRoom;

/// Whether a descriptor could not be taken in for want of room.
pub(super) fn lacked_room(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<NoRoom>())
}

/// Sends a message together with a descriptor of memory, all of it at once.
///
/// # Errors
/// When the socket is broken, or has no room for all of it at the moment.
pub fn send_with_memory(socket: impl AsFd, message: &[u8], memory: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let descriptors = [memory.as_fd()];
    if !beside.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("there is no room for a descriptor"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = sendmsg(socket, &[IoSlice::new(message)], &mut beside, flags)?;
    if sent == message.len() {
        Ok(())
    } else {
        Err(io::Error::other("the message was cut"))
    }
}

/// Receives what is there of a message, how many bytes, and a descriptor that came with it. No bytes are the end.
///
/// # Errors
/// When nothing is there, the socket is broken, or the process has no room for the descriptor.
pub fn receive_with_memory(socket: impl AsFd, message: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(message)], &mut beside, flags)?;
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other(NoRoom));
    }
    let memory = beside.drain().find_map(|one| {
        let RecvAncillaryMessage::ScmRights(mut descriptors) = one else {
            return None;
        };
        descriptors.next()
    });
    Ok((received.bytes, memory))
}
