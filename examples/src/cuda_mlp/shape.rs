//! The sizes of a multi-layer perceptron, and where each of its tensors lies among all values, one behind the other. Must not know values.

use std::ops::Range;

use sardana::fit::{Parameter, Role};
use sardana_cuda::reference::dense::Sizes;

/// A dense layer: `y = x wᵀ + b`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Elements of a sample, and of its result.
    pub inputs: usize,
    /// Elements of a sample's result.
    pub outputs: usize,
    /// Where its weights lie: outputs by inputs, row-major.
    pub weights: Range<usize>,
    /// Where its biases lie, one for each output.
    pub biases: Range<usize>,
    /// The numbers of both tensors, in this order.
    pub tensors: [usize; 2],
}

impl Layer {
    /// Its sizes for so many samples.
    #[must_use]
    pub const fn sizes(&self, batch: usize) -> Sizes {
        Sizes {
            batch,
            outputs: self.outputs,
            inputs: self.inputs,
        }
    }
}

/// Layers one behind the other, with rectifiers between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    layers: Vec<Layer>,
    parameters: Vec<Parameter>,
    places: Vec<Range<usize>>,
}

impl Shape {
    /// From these sizes: of a sample, of what lies between layers, and of the scores.
    #[must_use]
    pub fn new(sizes: &[usize]) -> Self {
        let (mut layers, mut parameters, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let mut end = 0;
        for (number, pair) in sizes.windows(2).enumerate() {
            let [inputs, outputs] = [pair[0], pair[1]];
            let weights = end..end + outputs * inputs;
            let biases = weights.end..weights.end + outputs;
            end = biases.end;
            let parameter = |name: &str, shape: Vec<usize>| Parameter {
                name: format!("{number}.{name}"),
                shape,
                role: Role::Trained,
            };
            parameters.push(parameter("weights", vec![outputs, inputs]));
            parameters.push(parameter("biases", vec![outputs]));
            places.extend([weights.clone(), biases.clone()]);
            layers.push(Layer {
                inputs,
                outputs,
                weights,
                biases,
                tensors: [2 * number, 2 * number + 1],
            });
        }
        Self {
            layers,
            parameters,
            places,
        }
    }

    /// The layers, the first one first.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Its tensors, with their names and shapes.
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Where each of them lies.
    #[must_use]
    pub fn places(&self) -> &[Range<usize>] {
        &self.places
    }

    /// How many values there are.
    #[must_use]
    pub fn values(&self) -> usize {
        self.places.last().map_or(0, |last| last.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_lie_one_behind_the_other() {
        let shape = Shape::new(&[3, 2, 4]);
        assert_eq!(shape.places(), [0..6, 6..8, 8..16, 16..20]);
        assert_eq!((shape.values(), shape.layers().len()), (20, 2));
        let elements: Vec<usize> = shape.parameters().iter().map(|own| own.shape.iter().product()).collect();
        assert_eq!(elements, [6, 2, 8, 4]);
        assert_eq!(
            shape.layers()[1].sizes(5),
            Sizes {
                batch: 5,
                outputs: 4,
                inputs: 2
            }
        );
    }
}
