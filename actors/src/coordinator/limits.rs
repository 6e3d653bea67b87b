//! Bounds of the coordinator's own: why this number, and what happens when it is reached.

/// Most messages that wait for one worker or agent. A worker that reads has a few; one that does not is told the same some times a second, and
/// counts as silent long before these are written. When it is reached its connection is closed, and it may come again.
pub(super) const QUEUE: usize = 1_024;

/// Most orders that wait for one checkpoint actor: a store that expires may have to be told of each checkpoint that it keeps, in forty
/// bytes. When it is reached its connection is closed, and it tells all that it keeps when it comes again.
pub(super) const DEPOT_QUEUE: usize = 65_536;
