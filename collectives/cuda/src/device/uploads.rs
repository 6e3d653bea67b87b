//! Values that go up to a device batch by batch, without the host waiting for what the device has before them. Must not know what they are for.

use std::collections::VecDeque;

use super::{Device, DeviceError, Element, Pinned, Stream, ViewMut};

/// Pinned memory from which values go up, a room at a time in turn. A copy from other memory waits for all that its stream has before it, once it is larger than
/// 64 KiB (CUDA's "API synchronization behavior").
#[derive(Debug)]
pub struct Uploads {
    device: Device,
    /// That which was used last is at the end.
    rooms: VecDeque<Pinned<u8>>,
    most: usize,
}

impl Uploads {
    /// With up to so many rooms, at least one, each as large as what has passed it. An upload waits for the one before it that used its room.
    #[must_use]
    pub fn new(device: &Device, rooms: usize) -> Self {
        Self {
            device: device.clone(),
            rooms: VecDeque::new(),
            most: rooms.max(1),
        }
    }

    /// Enqueues that `values` go up to all of `to`. They may be changed as soon as this returns.
    ///
    /// # Errors
    /// When memory is refused, or the device has failed.
    ///
    /// # Panics
    /// When `to` is not as long, or another device's.
    pub fn up<T: Element>(&mut self, stream: Stream, values: &[T], to: &mut ViewMut<'_, T>) -> Result<(), DeviceError> {
        let values: &[u8] = bytemuck::cast_slice(values);
        let used = if self.rooms.len() < self.most {
            None
        } else {
            self.rooms.pop_front()
        };
        let mut room = match used.filter(|room| room.len() >= values.len()) {
            Some(room) => room,
            None => Pinned::zeros(&self.device, values.len())?,
        };
        room.write()?[..values.len()].copy_from_slice(values);
        room.copy_view_up(stream, 0..values.len(), &to.bytes())?;
        self.rooms.push_back(room);
        Ok(())
    }
}
