//! A shard's gradient whose writer has ended, and of which something may still be computed elsewhere. Must not know what computes it.

use std::error::Error;
use std::fmt;

use super::{Computing, GradientBuffer, ResidentError, WriteMode};
use crate::layout::Layout;

/// What is left to do before a shard's gradient counts: see [`GradientWriter::enqueue`](super::GradientWriter::enqueue).
#[derive(Debug)]
#[must_use = "a shard's gradient counts only once it is settled"]
pub struct Enqueued {
    computing: Option<Box<dyn Computing>>,
    sums: Option<(WriteMode, Find)>,
}

/// Why a shard's gradient does not count: the worker gives up and says so.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// It was not computed: see what the reason says of the device.
    #[error(transparent)]
    Computing(#[from] ResidentError),
    /// See what the reason says of the model, or of its device.
    #[error("the auxiliary sums that a shard reports later were not found: {0}")]
    Sums(#[source] Box<dyn Error + Send + Sync>),
}

/// What finds a shard's auxiliary sums.
pub(super) struct Find(Box<Finding>);

type Finding = dyn FnOnce(&mut [f64]) -> Result<(), Box<dyn Error + Send + Sync>> + Send;

impl Find {
    pub(super) fn by(find: impl FnOnce(&mut [f64]) -> Result<(), Box<dyn Error + Send + Sync>> + Send + 'static) -> Self {
        Self(Box::new(find))
    }

    /// These.
    pub(super) fn known(sums: Vec<f64>) -> Self {
        Self::by(move |found| {
            found.copy_from_slice(&sums);
            Ok(())
        })
    }

    /// All sums of `layout`.
    pub(super) fn find(self, layout: &Layout) -> Result<Vec<f64>, SettleError> {
        let mut found = vec![0.0; layout.auxiliary()];
        self.0(&mut found).map_err(SettleError::Sums)?;
        Ok(found)
    }
}

impl fmt::Debug for Find {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Find").finish_non_exhaustive()
    }
}

impl Enqueued {
    pub(super) const fn new(computing: Option<Box<dyn Computing>>, sums: Option<(WriteMode, Find)>) -> Self {
        Self { computing, sums }
    }

    /// Whether nothing is left to wait for.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        self.computing.is_none() && self.sums.is_none()
    }

    /// Waits until the gradient is computed, and adds the sums that its model reports later to those in `buffer`, which is where it was written. Shards of one
    /// buffer are settled in their order.
    ///
    /// # Errors
    /// When it could not be computed, or the sums not be found.
    pub fn settle(self, buffer: &mut GradientBuffer, layout: &Layout) -> Result<(), SettleError> {
        if let Some(computing) = self.computing {
            computing.wait()?;
        }
        if let Some((mode, find)) = self.sums {
            buffer.settle(layout, mode, &find.find(layout)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use sardana_protocol::state::{Dtype, TensorSpec};

    use super::*;
    use crate::gradient::{GradientError, GradientWriter};

    const SHARDS: u32 = 5;

    fn layout() -> Layout {
        Layout::new(vec![TensorSpec::new("a", Dtype::F32, &[2])], 2).unwrap()
    }

    /// Sums of which each order of adding gives another one.
    fn sums(shard: u32) -> [f64; 2] {
        [[0.1, 1e16, -0.3, -1e16, 0.7][shard as usize], -0.0]
    }

    /// Writes a shard, whose sums come later or at once.
    fn write(buffer: &mut GradientBuffer, layout: &Layout, shard: u32, later: bool) -> Enqueued {
        let mode = if shard == 0 { WriteMode::Store } else { WriteMode::Add };
        let mut writer = buffer.writer(layout, mode);
        writer.write_f32(0, &[0.1, shard as f32]).unwrap();
        writer.samples(3).unwrap();
        if later {
            let find = move |found: &mut [f64]| {
                found.copy_from_slice(&sums(shard));
                Ok::<_, ResidentError>(())
            };
            writer.auxiliary_later(find).unwrap();
        } else {
            (0..2).for_each(|index| writer.auxiliary(index, sums(shard)[index]).unwrap());
        }
        assert_eq!(writer.reports_later(), later);
        writer.enqueue().unwrap()
    }

    #[test]
    fn sums_are_added_in_the_order_of_shards_whichever_of_them_come_later() {
        let layout = layout();
        let mut expected = GradientBuffer::zeros(&layout);
        for shard in 0..SHARDS {
            assert!(write(&mut expected, &layout, shard, false).is_there());
        }
        for later in 0..1_u32 << SHARDS {
            for behind in 0..SHARDS as usize {
                let (mut buffer, mut enqueued) = (GradientBuffer::zeros(&layout), VecDeque::new());
                for shard in 0..SHARDS {
                    enqueued.push_back(write(&mut buffer, &layout, shard, later >> shard & 1 == 1));
                    if enqueued.len() > behind {
                        enqueued.pop_front().unwrap().settle(&mut buffer, &layout).unwrap();
                    }
                }
                for left in enqueued {
                    left.settle(&mut buffer, &layout).unwrap();
                }
                drop(buffer.complete());
                assert_eq!(buffer, expected, "{later:05b}, {behind} behind");
            }
        }
    }

    #[test]
    fn a_writer_that_is_finished_waits_for_its_sums() {
        let layout = layout();
        let [mut waited, mut expected] = [(); 2].map(|()| GradientBuffer::zeros(&layout));
        let _ = write(&mut expected, &layout, 0, false);
        let mut writer = waited.writer(&layout, WriteMode::Store);
        writer.write_f32(0, &[0.1, 0.0]).unwrap();
        writer.samples(3).unwrap();
        let find = |found: &mut [f64]| {
            found.copy_from_slice(&sums(0));
            Ok::<_, ResidentError>(())
        };
        writer.auxiliary_later(find).unwrap();
        writer.finish().unwrap();
        assert_eq!(waited, expected);
    }

    fn gone(_: &mut [f64]) -> Result<(), ResidentError> {
        Err(ResidentError::new("the device is gone"))
    }

    /// A shard whose sums will not be found.
    fn lacking<'a>(buffer: &'a mut GradientBuffer, layout: &'a Layout) -> GradientWriter<'a> {
        let mut writer = buffer.writer(layout, WriteMode::Store);
        writer.write_f32(0, &[0.0; 2]).unwrap();
        writer.samples(1).unwrap();
        writer.auxiliary_later(gone).unwrap();
        assert_eq!(writer.auxiliary(0, 1.0), Err(GradientError::AuxiliaryTwice(0)));
        writer
    }

    #[test]
    fn sums_that_are_not_found_or_reported_twice_are_an_error_that_says_so() {
        let layout = layout();
        let mut buffer = GradientBuffer::zeros(&layout);
        let mut twice = buffer.writer(&layout, WriteMode::Store);
        twice.auxiliary(1, 0.5).unwrap();
        assert_eq!(twice.auxiliary_later(gone), Err(GradientError::AuxiliaryTwice(1)));
        let finished = lacking(&mut buffer, &layout).finish().unwrap_err().to_string();
        assert!(
            finished.contains("were not found") && finished.ends_with("the device is gone"),
            "{finished}"
        );
        let enqueued = lacking(&mut buffer, &layout).enqueue().unwrap();
        let settled = enqueued.settle(&mut buffer, &layout).unwrap_err().to_string();
        assert!(settled.ends_with("the device is gone"), "{settled}");
    }

    #[test]
    #[should_panic(expected = "a gradient is complete once its shards are settled")]
    fn a_gradient_is_not_complete_before_its_shards_are_settled() {
        let layout = layout();
        let mut buffer = GradientBuffer::zeros(&layout);
        let _left = write(&mut buffer, &layout, 0, true);
        drop(buffer.complete());
    }
}
