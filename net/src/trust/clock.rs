//! What says what time it is: the host, or a test of what happens hours from now.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;

/// A clock. Clones are the same clock.
#[derive(Clone, Default)]
pub enum Clock {
    /// The host's.
    #[default]
    Host,
    /// Another one: of a simulation, or of a host whose clock is wrong.
    Given(Arc<dyn Fn() -> SystemTime + Send + Sync>),
}

impl Clock {
    /// A clock that says what `now` says.
    #[must_use]
    pub fn given(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self::Given(Arc::new(now))
    }

    /// The host's, ahead by so much.
    #[must_use]
    pub fn ahead(by: Duration) -> Self {
        Self::given(move || SystemTime::now() + by)
    }

    /// The host's, behind by so much: what was made with it was made so long ago.
    #[must_use]
    pub fn behind(by: Duration) -> Self {
        Self::given(move || SystemTime::now() - by)
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        match self {
            Self::Host => SystemTime::now(),
            Self::Given(now) => now(),
        }
    }
}

/// For TLS, which looks when certificates run out.
impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let since_1970 = self.now().duration_since(SystemTime::UNIX_EPOCH);
        since_1970.ok().map(UnixTime::since_unix_epoch)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "Host",
            Self::Given(_) => "Given",
        })
    }
}
