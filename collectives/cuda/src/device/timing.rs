//! How long a device takes, by its own clock. Must not know for what.

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUevent_flags;

use super::{Device, DeviceError, Stream};

/// When a stream came so far, by the device's clock.
#[derive(Debug, Clone)]
pub struct Time(Arc<CudaEvent>);

impl Device {
    /// When `stream` comes to the end of what is enqueued on it so far.
    ///
    /// # Errors
    /// When the device has failed.
    pub fn time(&self, stream: Stream) -> Result<Time, DeviceError> {
        let record = || self.stream(stream).record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        self.call("record a time", record).map(|event| Time(Arc::new(event)))
    }

    /// How long after `from` `to` was, once both have come: to half a microsecond, and nothing where it was before.
    ///
    /// # Errors
    /// When the device has failed, as may be found out only here.
    pub fn between(&self, from: &Time, to: &Time) -> Result<Duration, DeviceError> {
        let milliseconds = self.call("tell the time", || from.0.elapsed_ms(&to.0))?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }
}
