//! Memory that a state was in and nothing uses any more, for the next state that comes: the system takes longer to find new pages than a copy into them takes.

use bytes::BytesMut;

use super::StepDriver;
use crate::room;
use crate::worker::give_back::given_back_aside;

/// Such memory, if there is any.
#[derive(Debug, Default)]
pub(super) struct Spare(Option<BytesMut>);

impl Spare {
    /// From now on no state is expected.
    pub(super) fn let_go(&mut self) {
        drop(self.0.take().map(|room| given_back_aside(room.freeze())));
    }

    #[cfg(test)]
    pub(super) fn is_at(&self, place: *const u8) -> bool {
        self.0.as_ref().is_some_and(|room| room.as_ptr() == place)
    }
}

impl StepDriver {
    /// Nothing uses this memory any more: the next state that comes is put there, if it is as long. Let go of when the worker's first step begins.
    pub fn keep_spare(&self, room: BytesMut) {
        self.lock().buffers.spare = Spare(Some(room));
    }

    /// Memory for a whole state of so many bytes, with anything in it.
    #[must_use]
    pub fn state_room(&self, bytes: usize) -> BytesMut {
        let spare = self.lock().buffers.spare.0.take_if(|spare| spare.len() == bytes);
        spare.unwrap_or_else(|| room::zeros(bytes))
    }
}
