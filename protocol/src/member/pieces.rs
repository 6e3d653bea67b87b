//! The pieces of a step's gradient that one worker holds or goes on computing.
//!
//! A piece is what is held in one buffer: in exact order a single shard, or the run of shards from 0 on, which is the running
//! sum itself; in fast order any run of shards. Only whole pieces are kept or dropped.

use crate::job::Order;
use crate::planted::{Bug, bites};
use crate::words::ShardRange;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    shards: ShardRange,
    done: u32,
    /// Whether the ring of the step under way was offered it as its last gradient was begun.
    offered: bool,
}

impl Piece {
    fn new(shards: ShardRange) -> Self {
        Self {
            shards,
            done: 0,
            offered: false,
        }
    }

    fn is_complete(&self) -> bool {
        self.done == self.shards.len()
    }

    /// The shard that it lacks next, if it lacks one.
    fn next(&self) -> Option<u32> {
        (!self.is_complete()).then(|| self.shards.start() + self.done)
    }
}

/// A worker's pieces of the step under way.
#[derive(Debug, Clone)]
pub(super) struct Pieces {
    order: Order,
    /// In shard order.
    list: Vec<Piece>,
    /// How many there is memory for.
    pub(super) most: u32,
}

/// What became of a computed gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Credit {
    /// Its piece is not wanted any more.
    Stale,
    /// Its piece lacks further shards.
    Partial,
    /// Its piece is complete.
    Complete {
        /// The ring has it already.
        offered: bool,
    },
}

/// How many buffers a worker that keeps the pieces `kept` has once it is assigned these runs, in shard order.
pub(crate) fn pieces_held(order: Order, kept: &[ShardRange], assigned: &[ShardRange]) -> usize {
    let list = kept.iter().copied().map(Piece::new).collect();
    let mut pieces = Pieces {
        list,
        ..Pieces::new(order)
    };
    pieces.assign(assigned);
    pieces.list.len()
}

impl Pieces {
    pub(super) fn new(order: Order) -> Self {
        Self {
            order,
            list: Vec::new(),
            most: u32::MAX,
        }
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    pub(super) fn ranges(&self) -> Vec<ShardRange> {
        self.list.iter().map(|piece| piece.shards).collect()
    }

    pub(super) fn has(&self, shards: ShardRange) -> bool {
        self.find(shards).is_some()
    }

    /// Where in the list the piece `shards` is.
    fn find(&self, shards: ShardRange) -> Option<usize> {
        self.list.binary_search_by_key(&shards, |piece| piece.shards).ok()
    }

    pub(super) fn complete(&self) -> impl Iterator<Item = ShardRange> + '_ {
        self.list.iter().filter(|piece| piece.is_complete()).map(|piece| piece.shards)
    }

    pub(super) fn all_complete(&self) -> bool {
        self.list.iter().all(Piece::is_complete)
    }

    /// The next shard to compute: its piece, and the shard.
    pub(super) fn next(&self) -> Option<(ShardRange, u32)> {
        self.list.iter().find_map(|piece| Some((piece.shards, piece.next()?)))
    }

    /// The next shard to compute once `shard` of the piece `shards` is, which is under way. None if there is none, or that one is not wanted any more.
    pub(super) fn after(&self, shards: ShardRange, shard: u32) -> Option<(ShardRange, u32)> {
        let mut others = self.list.iter().filter(|piece| piece.shards != shards);
        match self.list[self.find(shards)?].next()? {
            next if next != shard => None,
            _ if shard + 1 < shards.end() => Some((shards, shard + 1)),
            _ => others.find_map(|piece| Some((piece.shards, piece.next()?))),
        }
    }

    /// The ring has the piece `shards`, whose last gradient is begun.
    pub(super) fn offered(&mut self, shards: ShardRange) {
        if let Some(place) = self.find(shards) {
            self.list[place].offered = true;
        }
    }

    /// A ring that was offered pieces is not the one that is offered any from now on.
    pub(super) fn forget_offers(&mut self) {
        self.list.iter_mut().for_each(|piece| piece.offered = false);
    }

    /// Books the gradient of `shard`, computed into the piece `shards`.
    pub(super) fn computed(&mut self, shards: ShardRange, shard: u32) -> Credit {
        let piece = self.find(shards).map(|place| &mut self.list[place]);
        match piece.filter(|piece| piece.next() == Some(shard)) {
            Some(piece) => {
                piece.done += 1;
                if piece.is_complete() || bites(Bug::PieceTooEarly) {
                    Credit::Complete { offered: piece.offered }
                } else {
                    Credit::Partial
                }
            }
            None => Credit::Stale,
        }
    }

    /// Keeps the pieces that lie within `assigned`, drops the others, and adds what `assigned` lacks. Where that is more than there is
    /// memory for, nothing is kept: a running sum that has begun does not grow, and one that begins anew takes its whole run.
    pub(super) fn assign(&mut self, assigned: &[ShardRange]) {
        self.list
            .retain(|piece| assigned.iter().any(|range| range.covers(piece.shards)));
        self.complete_to(assigned);
        if self.list.len() > self.most as usize {
            self.list.clear();
            self.complete_to(assigned);
        }
    }

    fn complete_to(&mut self, assigned: &[ShardRange]) {
        for &range in assigned {
            let mut next = range.start();
            while next < range.end() {
                let (gap, after) = self.gap(next, range.end());
                self.add(gap);
                next = after;
            }
        }
        self.list.sort_by_key(|piece| piece.shards);
    }

    /// The first uncovered run of shards in `from..to`, and where to look on.
    fn gap(&self, from: u32, to: u32) -> (ShardRange, u32) {
        if let Some(piece) = self.list.iter().find(|piece| piece.shards.contains(from)) {
            return (ShardRange::new(from, from), piece.shards.end());
        }
        let end = self
            .list
            .iter()
            .map(|piece| piece.shards.start())
            .filter(|&start| start > from)
            .min()
            .unwrap_or(to)
            .min(to);
        (ShardRange::new(from, end), end)
    }

    fn add(&mut self, gap: ShardRange) {
        let one_buffer = match self.order {
            Order::Exact => gap.start() == 0,
            Order::Fast => true,
        };
        if gap.is_empty() {
        } else if one_buffer {
            self.list.push(Piece::new(gap));
        } else {
            self.list.extend(gap.iter().map(ShardRange::one).map(Piece::new));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u32, end: u32) -> ShardRange {
        ShardRange::new(start, end)
    }

    #[test]
    fn the_prefix_is_one_piece_and_every_other_shard_its_own() {
        let mut pieces = Pieces::new(Order::Exact);
        pieces.assign(&[range(0, 2), range(4, 6)]);
        assert_eq!(pieces.ranges(), [range(0, 2), range(4, 5), range(5, 6)]);
        let mut pieces = Pieces::new(Order::Fast);
        pieces.assign(&[range(0, 2), range(4, 6)]);
        assert_eq!(pieces.ranges(), [range(0, 2), range(4, 6)]);
    }

    #[test]
    fn a_retry_keeps_what_is_there_and_adds_what_is_missing() {
        let mut pieces = Pieces::new(Order::Exact);
        pieces.assign(&[range(0, 2)]);
        assert_eq!(pieces.computed(range(0, 2), 0), Credit::Partial);
        pieces.assign(&[range(0, 3), range(6, 7)]);
        assert_eq!(pieces.ranges(), [range(0, 2), range(2, 3), range(6, 7)]);
        assert_eq!(pieces.next(), Some((range(0, 2), 1)));
        assert_eq!(pieces.computed(range(0, 2), 1), Credit::Complete { offered: false });
        // A prefix that is split goes: a running sum cannot be taken apart.
        pieces.assign(&[range(0, 1), range(2, 3)]);
        assert_eq!(pieces.ranges(), [range(0, 1), range(2, 3)]);
        assert_eq!(pieces.computed(range(0, 2), 1), Credit::Stale);
        assert_eq!(pieces.next(), Some((range(0, 1), 0)));
    }

    #[test]
    fn what_is_kept_makes_way_where_memory_does_not_hold_it_beside_the_rest() {
        let mut pieces = Pieces::new(Order::Exact);
        pieces.most = 3;
        pieces.assign(&[range(0, 4)]);
        assert_eq!(pieces.computed(range(0, 4), 0), Credit::Partial);
        pieces.assign(&[range(0, 6)]);
        assert_eq!(pieces.ranges(), [range(0, 4), range(4, 5), range(5, 6)]);
        assert_eq!(pieces.next(), Some((range(0, 4), 1)), "what fits is kept");
        pieces.assign(&[range(0, 7)]);
        assert_eq!(pieces.ranges(), [range(0, 7)]);
        assert_eq!(pieces.computed(range(0, 4), 1), Credit::Stale);
        assert_eq!(pieces.next(), Some((range(0, 7), 0)));
    }

    #[test]
    fn a_shard_follows_one_that_is_under_way_in_its_piece_or_the_next_that_lacks_one() {
        let mut pieces = Pieces::new(Order::Exact);
        pieces.assign(&[range(0, 2), range(4, 6)]);
        assert_eq!(pieces.after(range(0, 2), 0), Some((range(0, 2), 1)));
        assert_eq!(pieces.after(range(0, 2), 1), None, "another one is under way");
        assert_eq!(pieces.computed(range(0, 2), 0), Credit::Partial);
        assert_eq!(pieces.after(range(0, 2), 1), Some((range(4, 5), 4)));
        assert_eq!(pieces.after(range(0, 2), 0), None, "it is computed");
        let _ = pieces.computed(range(0, 2), 1);
        let _ = pieces.computed(range(4, 5), 4);
        assert_eq!(pieces.after(range(5, 6), 5), None, "it is the last");
        assert_eq!(pieces.after(range(6, 7), 6), None, "it is not wanted");
        // What lies before it was taken over from another worker.
        pieces.assign(&[range(3, 6)]);
        assert_eq!(pieces.after(range(5, 6), 5), Some((range(3, 4), 3)));
    }

    #[test]
    fn each_piece_knows_whether_its_ring_has_it() {
        let mut pieces = Pieces::new(Order::Exact);
        pieces.assign(&[range(4, 7)]);
        pieces.offered(range(4, 5));
        pieces.offered(range(5, 6));
        assert_eq!(pieces.computed(range(4, 5), 4), Credit::Complete { offered: true });
        pieces.assign(&[range(4, 8)]);
        pieces.forget_offers();
        assert_eq!(pieces.computed(range(5, 6), 5), Credit::Complete { offered: false });
    }

    #[test]
    fn in_fast_order_every_run_of_shards_is_one_piece() {
        let mut pieces = Pieces::new(Order::Fast);
        pieces.assign(&[range(4, 6)]);
        assert_eq!(pieces.computed(range(4, 6), 5), Credit::Stale, "a piece is filled in order");
        assert_eq!(pieces.computed(range(4, 6), 4), Credit::Partial);
        // A retry adds runs around what is there; only whole pieces are kept.
        pieces.assign(&[range(2, 8)]);
        assert_eq!(pieces.ranges(), [range(2, 4), range(4, 6), range(6, 8)]);
        assert_eq!(pieces.computed(range(4, 6), 5), Credit::Complete { offered: false });
        assert_eq!(pieces.complete().collect::<Vec<_>>(), [range(4, 6)]);
        assert_eq!(pieces.next(), Some((range(2, 4), 2)));
        pieces.assign(&[range(5, 8)]);
        assert_eq!(pieces.ranges(), [range(5, 6), range(6, 8)]);
        assert!(!pieces.all_complete());
    }

    #[test]
    fn both_orders_hold_exactly_what_is_assigned() {
        for order in [Order::Exact, Order::Fast] {
            let mut pieces = Pieces::new(order);
            for assigned in [
                vec![range(0, 3), range(5, 9)],
                vec![range(1, 6)],
                vec![],
                vec![range(4, 4), range(7, 9)],
            ] {
                pieces.assign(&assigned);
                let held: Vec<u32> = pieces.ranges().into_iter().flat_map(ShardRange::iter).collect();
                let wanted: Vec<u32> = assigned.into_iter().flat_map(ShardRange::iter).collect();
                assert_eq!(held, wanted, "{order}");
            }
        }
    }
}
