//! CKPT-2: what is loaded is what was saved, and what is saved is the job's state at that step. STEP-2 sees, as with any other state,
//! that what is loaded is the job's state.

use sardana_protocol::checkpoint::{ManifestKey, PieceHash};
use sardana_protocol::membership::Contents;

use super::{Held, Law};
use crate::simulation::model::{PIECE_BYTES, PIECES, description, piece};

impl Law {
    /// A manifest of these contents is to be made.
    pub(crate) fn commits(&mut self, contents: &Contents) -> Held {
        let step = contents.snapshot.step;
        let made_of = |state| contents.pieces == (0..PIECES).map(|number| piece(state, number)).collect::<Vec<PieceHash>>();
        let same = self.reference.is_at(step, made_of)
            && contents.description == description()
            && contents.bytes == PIECES * PIECE_BYTES
            && !contents.depots.is_empty();
        self.check("CKPT-2", same, || {
            format!("{:?} is to be kept, and is not the job's state at {step}", contents.snapshot)
        })
    }

    /// Training is to begin from a checkpoint: one of this job, which was committed.
    pub(crate) fn resumes(&mut self, key: ManifestKey) -> Held {
        let own = self.checkpoints.manifests.contains_key(&key);
        self.checkpoints.resumes = Some(key);
        self.checkpoints.saved = self.checkpoints.saved.max(key.step);
        self.check("CKPT-2, resuming", own, || {
            format!("training is to begin from {key}, which is no checkpoint of this job")
        })
    }
}
