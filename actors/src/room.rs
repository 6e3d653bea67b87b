//! Memory for a whole state, which is filled once and then only read.

use std::io;

use bytes::Bytes;
use memmap2::MmapMut;

/// So much memory, cleared. In large pages where the system has them: to get it takes a third of the time then.
#[derive(Debug)]
pub(crate) struct Room(Option<MmapMut>);

impl Room {
    /// # Errors
    /// When there is not so much.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        if bytes == 0 {
            return Ok(Self(None));
        }
        let room = MmapMut::map_anon(bytes)?;
        #[cfg(target_os = "linux")]
        if let Err(error) = room.advise(memmap2::Advice::HugePage) {
            tracing::debug!(%error, "no large pages");
        }
        Ok(Self(Some(room)))
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }

    /// What was filled in.
    pub(crate) fn filled(self) -> Bytes {
        self.0.map_or_else(Bytes::new, Bytes::from_owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_in_is_there() {
        for length in [0, 1, 5 << 20] {
            let mut room = Room::new(length).unwrap();
            assert!(room.bytes().iter().all(|&byte| byte == 0) && room.bytes().len() == length);
            room.bytes().fill(7);
            let filled = room.filled();
            assert!(filled.iter().all(|&byte| byte == 7) && filled.len() == length);
        }
    }
}
