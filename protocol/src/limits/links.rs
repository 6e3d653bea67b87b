//! Bounds of what is told of links.

use super::MAX_WORKERS;

/// Most lines about links that a worker tells with a heartbeat, one for each other worker and kind: a rank has two or three neighbours, some
/// more in a step that is retried, and the owner of a star up to 63. Of more, those with the most bytes are told, and how many links are not.
pub const LINKS_TOLD: usize = 64;

/// Most lines about links in a status. A ring has two for each member, one in each direction, and at most as many again once. Of more, the
/// worst are shown, and how many lines are not; the totals are of all.
pub const LINKS_SHOWN: usize = 4 * MAX_WORKERS as usize;
