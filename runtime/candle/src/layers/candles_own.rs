//! What candle's own layers and operations compute for gradients, compared with central differences: on which of them networks can
//! rely, and what is wrong with the others. A test of the second kind that fails when candle is updated means that candle has been
//! mended.

use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::{Conv2d, Conv2dConfig, Embedding, Linear, Module, ops, rotary_emb};

use crate::checked::{TOLERANCE, assert_gradients, distinct, drawn, gradient_error};

fn owned(tensor: &Tensor) -> Tensor {
    tensor.clone()
}

/// Why candle has no gradient.
fn refusal(error: Result<f64>) -> String {
    error.unwrap_err().to_string()
}

/// Whether candle computes a gradient for none of the variables, and reports no error either.
fn has_no_gradient(variables: &[&Var], output: impl Fn() -> Result<Tensor>) -> bool {
    let gradients = output().unwrap().sum_all().unwrap().backward().unwrap();
    variables.iter().all(|variable| gradients.get(variable).is_none())
}

#[test]
fn linear_layers_are_right_for_every_rank() {
    for dims in [vec![2, 5], vec![2, 3, 5], vec![2, 1, 3, 5]] {
        let (input, weight, bias) = (drawn(dims, 1), drawn((4, 5), 2), drawn(4, 3));
        let layer = Linear::new(owned(&weight), Some(owned(&bias)));
        assert_gradients(&[&input, &weight, &bias], || layer.forward(&input));
    }
}

#[test]
fn embeddings_are_right_where_a_word_comes_twice() {
    let table = drawn((5, 3), 1);
    let words = Tensor::new(&[[4_u32, 0, 4], [1, 4, 2]], table.device()).unwrap();
    let layer = Embedding::new(owned(&table), 3);
    assert_gradients(&[&table], || layer.forward(&words)?.sqr());
}

#[test]
fn convolutions_are_right_for_square_images() {
    for (kernel, stride, padding, dilation, groups, size) in [
        (3, 1, 1, 1, 1, 5),
        (3, 2, 1, 1, 1, 6),
        (3, 2, 1, 1, 1, 7),
        (1, 2, 0, 1, 1, 5),
        (1, 2, 0, 1, 1, 6),
        (5, 3, 2, 1, 1, 7),
        (2, 2, 0, 1, 2, 5),
        (3, 1, 2, 2, 1, 5),
        (3, 2, 1, 1, 4, 5),
    ] {
        let (input, weight, bias) = (
            drawn((2, 4, size, size), 1),
            drawn((4, 4 / groups, kernel, kernel), 2),
            drawn(4, 3),
        );
        let config = Conv2dConfig {
            padding,
            stride,
            dilation,
            groups,
            cudnn_fwd_algo: None,
        };
        let layer = Conv2d::new(owned(&weight), Some(owned(&bias)), config);
        let error = gradient_error(&[&input, &weight, &bias], || layer.forward(&input)).unwrap();
        assert!(error < TOLERANCE, "{kernel} {config:?} {size}: {error:e}");
    }
}

#[test]
fn convolutions_are_right_for_other_images_if_strides_leave_the_same_rest_in_both_directions() {
    let (input, weight) = (drawn((2, 2, 7, 5), 1), drawn((3, 2, 3, 3), 2));
    assert_gradients(&[&input, &weight], || input.conv2d(&weight, 1, 2, 1, 1));
    assert_gradients(&[&input, &weight], || input.conv2d(&weight, 0, 1, 1, 1));
    let (input, weight) = (drawn((2, 2, 6, 5), 1), drawn((3, 2, 3, 3), 2));
    assert!(refusal(gradient_error(&[&input, &weight], || input.conv2d(&weight, 1, 2, 1, 1))).contains("shape mismatch"));
    // A column of zeros that no window sees makes the rests the same.
    assert_gradients(&[&input, &weight], || {
        input.pad_with_zeros(3, 0, 1)?.conv2d(&weight, 1, 2, 1, 1)
    });
}

#[test]
fn softmax_is_right_but_for_its_fast_form() {
    let input = drawn((2, 3, 4), 1);
    for dim in 0..3 {
        assert_gradients(&[&input], || ops::softmax(&input, dim));
        assert_gradients(&[&input], || ops::log_softmax(&input, dim));
    }
    // Several largest values, among which the gradient of a maximum would be wrong, cancel.
    let tied = drawn((2, 4), 1).affine(0.0, 1.0).unwrap();
    let tied = Var::from_tensor(&tied).unwrap();
    assert_gradients(&[&tied], || ops::softmax(&tied, D::Minus1));
    assert_gradients(&[&tied], || ops::log_softmax(&tied, D::Minus1));
    // Nothing is said: what lies before it is just not trained.
    assert!(has_no_gradient(&[&input], || ops::softmax_last_dim(&input)));
}

#[test]
fn activations_are_right_but_for_the_last_digits_of_gelu() {
    let input = drawn((3, 7), 1).affine(3.0, 0.0).unwrap();
    let input = Var::from_tensor(&input).unwrap();
    assert_gradients(&[&input], || input.relu());
    assert_gradients(&[&input], || input.silu());
    assert_gradients(&[&input], || input.tanh());
    assert_gradients(&[&input], || ops::sigmoid(&input));
    assert_gradients(&[&input], || ops::leaky_relu(&input, 0.1));
    assert_gradients(&[&input], || input.elu(1.3));
    // The constants of these have six digits.
    for error in [
        gradient_error(&[&input], || input.gelu()),
        gradient_error(&[&input], || input.gelu_erf()),
    ] {
        let error = error.unwrap();
        assert!((TOLERANCE..1e-4).contains(&error), "{error:e}");
    }
}

#[test]
fn layer_normalisation_has_no_gradient_where_it_is_fast() {
    let (input, weight, bias) = (drawn((3, 5), 1), drawn(5, 2), drawn(5, 3));
    // The fast way is one for f32. Nothing is said: neither these layers nor what lies before them are trained.
    let [singles, weights, biases] =
        [&input, &weight, &bias].map(|variable| Var::from_tensor(&variable.to_dtype(DType::F32).unwrap()).unwrap());
    let layer = candle_nn::LayerNorm::new(owned(&weights), owned(&biases), 1e-5);
    assert!(has_no_gradient(&[&singles, &weights, &biases], || layer.forward(&singles)));
    let layer = candle_nn::RmsNorm::new(owned(&weights), 1e-5);
    assert!(has_no_gradient(&[&singles, &weights], || layer.forward(&singles)));
    // Without a bias it takes another way, also for the root of the mean square.
    let layer = candle_nn::LayerNorm::new_no_bias(owned(&weight), 1e-5);
    assert_gradients(&[&input, &weight], || layer.forward(&input));
    let layer = candle_nn::RmsNorm::new(owned(&weight), 1e-5);
    assert_gradients(&[&input, &weight], || layer.forward_diff(&input));
}

#[test]
fn rotary_embeddings_have_no_gradient_where_they_are_fast() {
    let single = |seed, dims: &[usize]| Var::from_tensor(&drawn(dims, seed).to_dtype(DType::F32).unwrap()).unwrap();
    let (input, cosines, sines) = (single(1, &[1, 2, 3, 4]), single(2, &[3, 2]), single(3, &[3, 2]));
    assert!(has_no_gradient(&[&input], || rotary_emb::rope(&input, &cosines, &sines)));
    let (input, cosines, sines) = (drawn((1, 2, 3, 4), 1), drawn((3, 2), 2), drawn((3, 2), 3));
    assert_gradients(&[&input], || rotary_emb::rope_slow(&input, &cosines, &sines));
}

#[test]
fn average_pooling_is_wrong_for_images_that_are_no_multiple_and_refuses_overlaps() {
    let input = drawn((2, 2, 4, 6), 1);
    assert_gradients(&[&input], || input.avg_pool2d(2));
    let odd = drawn((2, 2, 5, 5), 1);
    let error = gradient_error(&[&odd], || odd.avg_pool2d(2)).unwrap();
    assert!(error > 0.5, "{error}");
    let error = refusal(gradient_error(&[&input], || input.avg_pool2d_with_stride(3, 1)));
    assert!(error.contains("backward not supported for avgpool2d"), "{error}");
}

#[test]
fn max_pooling_is_wrong_and_refuses_overlaps() {
    let input = distinct((2, 2, 4, 6), 1);
    let error = gradient_error(&[&input], || input.max_pool2d(2)).unwrap();
    // Each gradient is divided by the four values of its window.
    assert!((error - 0.75).abs() < 1e-6, "{error}");
    let error = refusal(gradient_error(&[&input], || input.max_pool2d_with_stride(3, 1)));
    assert!(error.contains("backward not supported for maxpool2d"), "{error}");
}

#[test]
fn the_largest_value_of_several_has_its_gradient_several_times() {
    let tied = Var::from_tensor(&Tensor::new(&[2.0_f64, 5.0, 5.0], &Device::Cpu).unwrap()).unwrap();
    let gradients = tied.max(0).unwrap().backward().unwrap();
    assert_eq!(gradients.get(&tied).unwrap().to_vec1::<f64>().unwrap(), [0.0, 1.0, 1.0]);
}

#[test]
fn a_rectifier_hides_nan_and_has_the_slope_of_one_at_zero() {
    let input = Var::from_tensor(&Tensor::new(&[f64::NAN, 0.0], &Device::Cpu).unwrap()).unwrap();
    let output = input.relu().unwrap();
    assert_eq!(output.to_vec1::<f64>().unwrap(), [0.0, 0.0]);
    let gradients = output.sum_all().unwrap().backward().unwrap();
    assert_eq!(gradients.get(&input).unwrap().to_vec1::<f64>().unwrap(), [0.0, 1.0]);
}
