//! GEN-2: ranks are dense and unique; shard segments are contiguous, disjoint, and cover 0..K; one per worker, except in a retry.

use std::collections::BTreeSet;

use sardana_protocol::messages::Form;

use super::{Law, Violation};

impl Law {
    /// An order for a generation goes out.
    pub(super) fn well_formed(&mut self, form: &Form) -> Result<(), Violation> {
        let members = form.members.len();
        let covers = [&form.first, &form.steady].into_iter().all(|visits| {
            let end = visits.iter().try_fold(0, |next, visit| {
                let sound = visit.shards.start() == next && visit.rank.index() < members;
                sound.then_some(visit.shards.end())
            });
            end == Some(self.shards)
        });
        let workers: BTreeSet<_> = form.members.iter().map(|member| member.worker).collect();
        let ranks: BTreeSet<_> = form.steady.iter().map(|visit| visit.rank).collect();
        let holds = covers
            && form.rank.index() < members
            && workers.len() == members
            && form.steady.len() == members
            && ranks.len() == members;
        self.check("GEN-2", holds, || format!("{form:?}"))
    }
}
