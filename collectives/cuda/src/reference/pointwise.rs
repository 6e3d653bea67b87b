//! What lies between the layers of a network and behind the last of them: rectifiers, and how far scores are from labels. Scores are row-major, a row
//! for each sample and a column for each class; a label is the number of a class.

use super::Number as _;

/// Each value, or 0 where it is below.
#[must_use]
pub fn rectify(values: &[f32]) -> Vec<f32> {
    let one = |&value: &f32| if value <= 0.0 { 0.0 } else { value.one_nan() };
    values.iter().map(one).collect()
}

/// Each gradient where the rectified value is above 0, and 0 elsewhere.
///
/// # Panics
/// When the slices differ in length.
#[must_use]
pub fn rectify_backward(gradients: &[f32], rectified: &[f32]) -> Vec<f32> {
    assert_eq!(gradients.len(), rectified.len(), "a gradient for each value");
    let one = |(&gradient, &value): (&f32, &f32)| if value > 0.0 { gradient.one_nan() } else { 0.0 };
    gradients.iter().zip(rectified).map(one).collect()
}

/// The scores less their targets: 1 for the label's class, 0 for the others. It is the gradient of half the sum of their squares.
///
/// # Panics
/// When there is not a row of scores for each label.
#[must_use]
pub fn distances(scores: &[f32], labels: &[u32], classes: usize) -> Vec<f32> {
    assert_eq!(scores.len(), labels.len() * classes, "a row of scores for each label");
    let target = |index: usize| {
        let is_own = index % classes == labels[index / classes] as usize;
        if is_own { 1.0 } else { 0.0 }
    };
    let all = scores.iter().enumerate();
    all.map(|(index, score)| (score - target(index)).one_nan()).collect()
}

/// For each label 1 if the largest score of its row is its own, and 0 if not. Of several that are equal the first counts; one behind the first that is not
/// a number never does.
///
/// # Panics
/// When there is not a row of scores for each label.
#[must_use]
pub fn hits(scores: &[f32], labels: &[u32], classes: usize) -> Vec<u32> {
    assert_eq!(scores.len(), labels.len() * classes, "a row of scores for each label");
    let hit = |(row, &label): (usize, &u32)| {
        let own = &scores[row * classes..(row + 1) * classes];
        let largest = (1..classes).fold(0, |largest, one| if own[one] > own[largest] { one } else { largest });
        u32::from(largest == label as usize)
    };
    labels.iter().enumerate().map(hit).collect()
}
