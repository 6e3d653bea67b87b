//! What checkpoints and catalogues consist of on a disk, and the states in them.

use sardana::checkpoints;
use sardana::data::Shard;
use sardana::model::{Dtype, GradientWriter, Mean, ModelError, Step, TensorSpec, Trainable, restore, save};
use sardana_storage::fuzzing::kind;
use sardana_storage::{catalogue, manifest, store};

/// A manifest, and the description of a state's tensors.
pub(crate) fn manifests(bytes: &[u8]) {
    match kind(bytes, 2) {
        (0, rest) => {
            if let Ok(found) = manifest::decode(rest) {
                let written = manifest::encode(&found).expect("what was read can be written");
                assert_eq!(manifest::decode(&written).as_ref(), Ok(&found));
            }
        }
        (_, rest) => {
            if let Ok(found) = manifest::decode_description(rest) {
                let written = manifest::encode_description(&found).expect("what was read can be written");
                assert_eq!(manifest::decode_description(&written), Ok(found));
            }
            checkpoints::description(rest);
        }
    }
}

/// A catalogue's marker, head and entries.
pub(crate) fn catalogues(bytes: &[u8]) {
    catalogue::fuzz(bytes);
}

/// A store's segments, manifests, format file, and names.
pub(crate) fn segments(bytes: &[u8]) {
    store::fuzz(bytes);
}

/// The bytes of a model's state.
pub(crate) fn saved_states(bytes: &[u8]) {
    let mut model = Two::default();
    if restore(&mut model, bytes).is_ok() {
        assert_eq!(save(&model).expect("it shows what it has"), bytes);
    }
}

/// A model of two tensors that are kept as they came.
struct Two([Vec<u8>; 2]);

impl Default for Two {
    fn default() -> Self {
        Self([vec![0; 12], vec![0; 8]])
    }
}

impl Two {
    fn specs() -> [TensorSpec; 2] {
        [TensorSpec::new("w", Dtype::F32, &[3]), TensorSpec::new("n", Dtype::U64, &[])]
    }
}

impl Trainable for Two {
    fn gradients(&self) -> Vec<TensorSpec> {
        vec![TensorSpec::new("w", Dtype::F32, &[3])]
    }

    fn gradient(&self, _: &Shard, _: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        Err("it is not trained".into())
    }

    fn apply(&mut self, _: Step, _: &Mean<'_>) -> Result<(), ModelError> {
        Err("it is not trained".into())
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        for (spec, bytes) in Self::specs().iter().zip(&self.0) {
            visitor(spec, bytes);
        }
        Ok(())
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        let place = Self::specs().iter().position(|spec| spec == tensor);
        let own = place
            .and_then(|place| self.0.get_mut(place))
            .filter(|own| own.len() == bytes.len());
        own.ok_or("no tensor of this model")?.copy_from_slice(bytes);
        Ok(())
    }
}
