//! Which depot a directory belongs to.

use sardana_protocol::checkpoint::{DepotId, Manifest};

/// The depot whose store this is, as its manifests tell: the only one that all of them name. Zero, which no depot draws, if there is none
/// such.
pub(super) fn depot_of<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> DepotId {
    let mut only = None;
    for depot in manifests.into_iter().flat_map(|manifest| &manifest.depots) {
        if only.is_some_and(|only| only != *depot) {
            return DepotId::new(0);
        }
        only = Some(*depot);
    }
    only.unwrap_or(DepotId::new(0))
}
