//! Which depots keep a piece: rendezvous hashing, so that a depot that goes takes nothing else with it and one that comes is given its
//! part only (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998).

use super::{DepotId, PieceHash};

/// `depots`, those first that should keep `piece`. The order of any two does not depend on the others.
#[must_use]
pub fn ranked(piece: PieceHash, depots: &[DepotId]) -> Vec<DepotId> {
    let mut ranked: Vec<([u8; 32], DepotId)> = depots.iter().map(|&depot| (weight(piece, depot), depot)).collect();
    ranked.sort_unstable_by(|one, other| other.cmp(one));
    ranked.into_iter().map(|(_, depot)| depot).collect()
}

/// The `replicas` of `depots` that keep `piece`: all of them, if there are no more.
#[must_use]
pub fn homes(piece: PieceHash, depots: &[DepotId], replicas: u32) -> Vec<DepotId> {
    let replicas = replicas.max(1) as usize;
    if depots.len() <= replicas {
        return depots.to_vec();
    }
    let mut homes = ranked(piece, depots);
    homes.truncate(replicas);
    homes
}

/// Whether `depot` is one of the `replicas` of `depots` that keep `piece`.
#[must_use]
pub fn is_home(depot: DepotId, piece: PieceHash, depots: &[DepotId], replicas: u32) -> bool {
    homes(piece, depots, replicas).contains(&depot)
}

fn weight(piece: PieceHash, depot: DepotId) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("sardana piece placement v1");
    hasher.update(&piece.bytes());
    hasher.update(&depot.get().to_le_bytes());
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> impl Iterator<Item = PieceHash> {
        (0_u32..600).map(|number| PieceHash::of(&number.to_le_bytes()))
    }

    fn depots(count: u64) -> Vec<DepotId> {
        (0..count).map(|number| DepotId::new(number * 7 + 1)).collect()
    }

    #[test]
    fn every_piece_has_its_replicas_on_different_depots_and_all_get_their_part() {
        let depots = depots(5);
        let mut kept = [0; 5];
        for piece in pieces() {
            let homes = homes(piece, &depots, 2);
            assert!(homes.len() == 2 && homes[0] != homes[1]);
            for (index, &depot) in depots.iter().enumerate() {
                assert_eq!(is_home(depot, piece, &depots, 2), homes.contains(&depot));
                kept[index] += usize::from(homes.contains(&depot));
            }
        }
        // 240 each, if it were even.
        assert!(kept.iter().all(|&pieces| (180..300).contains(&pieces)), "{kept:?}");
    }

    #[test]
    fn a_depot_that_goes_moves_only_its_own_pieces() {
        let (all, fewer) = (depots(5), depots(4));
        for piece in pieces() {
            let (before, after) = (homes(piece, &all, 2), homes(piece, &fewer, 2));
            if !before.contains(&all[4]) {
                assert_eq!(before, after);
            }
            assert_eq!(
                before.iter().filter(|&depot| !after.contains(depot)).count(),
                usize::from(before.contains(&all[4]))
            );
        }
    }

    #[test]
    fn fewer_depots_than_replicas_keep_everything() {
        let piece = PieceHash::of(b"x");
        assert_eq!(homes(piece, &depots(2), 3), depots(2));
        assert_eq!(homes(piece, &depots(2), 0).len(), 1);
        assert_eq!(homes(piece, &[], 2), Vec::new());
    }
}
