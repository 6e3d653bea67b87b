//! What lies between layers and behind them, in place. Scores are those of [`crate::reference::pointwise`].

use super::{Argument, Enqueue, require};
use crate::device::{DeviceError, View, ViewMut};
use crate::geometry;
use crate::kernels::{self, Kernel};

impl Enqueue<'_> {
    /// Each value, or 0 where it is below.
    ///
    /// # Errors
    /// When the device has failed.
    pub fn rectify(&self, values: &mut ViewMut<'_, f32>) -> Result<(), DeviceError> {
        let kernel = &kernels::RECTIFY;
        let length = values.read().len() as u64;
        let all = self.write(kernel, values, length)?;
        self.launch(kernel, geometry::elements(length), &[all.clone(), all, length.into()])
    }

    /// Each gradient where the rectified value is above 0, and 0 elsewhere.
    ///
    /// # Errors
    /// When lengths differ, or the device has failed.
    pub fn rectify_backward(&self, gradients: &mut ViewMut<'_, f32>, rectified: &View<'_, f32>) -> Result<(), DeviceError> {
        let kernel = &kernels::RECTIFY_BACKWARD;
        let length = rectified.len() as u64;
        let all = self.write(kernel, gradients, length)?;
        let rectified = self.read(kernel, rectified, length)?;
        let arguments = [all.clone(), all, rectified, length.into()];
        self.launch(kernel, geometry::elements(length), &arguments)
    }

    /// Makes of scores what they are away from their targets: 1 for the label's class, 0 for the others.
    ///
    /// # Errors
    /// When there is not a row of scores for each label, or the device has failed.
    pub fn distances(&self, scores: &mut ViewMut<'_, f32>, labels: &View<'_, u32>) -> Result<(), DeviceError> {
        let kernel = &kernels::DISTANCES;
        let rows = Rows::of(kernel, scores.read(), labels)?;
        let all = self.write(kernel, scores, rows.scores())?;
        let labels = self.read(kernel, labels, rows.labels.into())?;
        let arguments = [all.clone(), all, labels, rows.labels.into(), rows.classes.into()];
        self.launch(kernel, geometry::elements(rows.scores()), &arguments)
    }

    /// For each label 1 if the largest score of its row is its own, and 0 if not.
    ///
    /// # Errors
    /// As [`Self::distances`], or when `out` has not an element for each label.
    pub fn hits(
        &self,
        out: &mut ViewMut<'_, u32>,
        scores: &View<'_, f32>,
        labels: &View<'_, u32>,
    ) -> Result<(), DeviceError> {
        let kernel = &kernels::HITS;
        let rows = Rows::of(kernel, scores, labels)?;
        let arguments: [Argument; 5] = [
            self.write(kernel, out, rows.labels.into())?,
            self.read(kernel, scores, rows.scores())?,
            self.read(kernel, labels, rows.labels.into())?,
            rows.labels.into(),
            rows.classes.into(),
        ];
        self.launch(kernel, geometry::elements(rows.labels.into()), &arguments)
    }
}

/// How many rows of scores there are, and how long they are, as a kernel takes them.
#[derive(Clone, Copy)]
struct Rows {
    labels: u32,
    classes: u32,
}

impl Rows {
    fn of(kernel: &Kernel, scores: &View<'_, f32>, labels: &View<'_, u32>) -> Result<Self, DeviceError> {
        let (scores, labels) = (scores.len(), labels.len());
        let sizes = u32::try_from(labels).ok().zip(u32::try_from(scores / labels.max(1)).ok());
        let is_even = labels > 0 && scores > 0 && scores.is_multiple_of(labels);
        let found = || format!("{scores} scores for {labels} labels");
        require(kernel, is_even && sizes.is_some(), || "a row of scores for each label", found)?;
        let (labels, classes) = sizes.unwrap_or_default();
        Ok(Self { labels, classes })
    }

    fn scores(self) -> u64 {
        u64::from(self.labels) * u64::from(self.classes)
    }
}
