//! Bounds and timeouts of notices: what clouds announce before they take a machine away.

use std::time::Duration;

use super::{LEAVE_GRACE, SILENCE};

/// A notice for a moment that is further away is only noted, and heeded from then on. The longest ordinary notice is 15 minutes (Azure);
/// what is announced for days ahead leaves days to train.
pub const NOTICE_HORIZON: Duration = Duration::from_secs(15 * 60);

/// A notice whose moment has passed so long ago is not heeded any more: the machine is still there. AWS leaves such notices standing.
pub const NOTICE_STALE: Duration = Duration::from_secs(10 * 60);

/// The shortest notice that any cloud documents: preemption on GCE and Azure.
pub const SHORTEST_NOTICE: Duration = Duration::from_secs(30);

/// How long before a host's maintenance GCE announces it, at least.
pub const GCE_MAINTENANCE_NOTICE: Duration = Duration::from_secs(60);

/// A pause that is announced as longer counts as a leave. It is about as long as live migrations are said to take, and above
/// [`SILENCE`]: a longer one would cost the others a halt in any case.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// So long before a machine is taken away its last workers are ended: an end that is reported costs the others less than silence.
pub const NOTICE_MARGIN: Duration = Duration::from_secs(2);

/// Workers get at least this long to leave, however short the notice: a boundary may be milliseconds away.
pub const NOTICE_LEAST: Duration = Duration::from_secs(1);

/// Between two looks at AWS's notices: what its documentation recommends.
pub const LOOK_EVERY_AWS: Duration = Duration::from_secs(5);

/// Between two looks at Azure's events: what its documentation recommends.
pub const LOOK_EVERY_AZURE: Duration = Duration::from_secs(1);

/// Between two looks at GCE's keys, each of which waits at the service for a change: so that one which answers at once is not hammered.
pub const LOOK_EVERY_GCE: Duration = Duration::from_secs(1);

/// How long a look may wait at the service for a change, where it can. Without a change it costs one answer a minute.
pub const LOOK_HANGS: Duration = Duration::from_secs(60);

/// How long a metadata service may take to answer. It is next door.
pub const LOOK_DEADLINE: Duration = Duration::from_secs(5);

/// The longest wait between two looks at a service that fails: it is doubled each time up to this, which is below
/// [`SHORTEST_NOTICE`].
pub const LOOK_BACK_OFF_MOST: Duration = Duration::from_secs(20);

/// So many looks in a row that fail are told to people, once. Fewer happen while a host is maintained.
pub const BLIND_AFTER: u32 = 3;

/// For so long no notice may stand before workers come back: to come back too late costs a moment, wrongly a second leave.
pub const WITHDRAWN_AFTER: Duration = Duration::from_secs(5);

/// Most notices of one look. No machine has that many; more are not read.
pub const MAX_NOTICES: usize = 64;

/// How often a metadata service that is there and cannot answer is asked which cloud it is of.
pub const DETECT_TRIES: u32 = 3;

/// Between two such questions.
pub const DETECT_AGAIN: Duration = Duration::from_secs(2);

const _: () = assert!(LOOK_BACK_OFF_MOST.as_millis() < SHORTEST_NOTICE.as_millis());
const _: () = assert!(LONGEST_PAUSE.as_millis() > SILENCE.as_millis());
const _: () = assert!(LEAVE_GRACE.as_millis() + 2 * NOTICE_MARGIN.as_millis() < SHORTEST_NOTICE.as_millis());
