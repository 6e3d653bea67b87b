use candle_core::{DType, Device, Var};
use candle_nn::Conv2dConfig;

use super::*;
use crate::checked::{assert_gradients, drawn, farthest};

fn layer(weight: &Var, bias: Option<&Var>, stride: usize, padding: usize) -> Conv2d {
    Conv2d {
        weight: weight.as_tensor().clone(),
        bias: bias.map(|bias| bias.as_tensor().clone()),
        windows: Windows {
            kernel: weight.dims()[2],
            stride,
            padding,
        },
        rectified: false,
    }
}

/// Odd sizes, strides that do not divide them, paddings beyond half the kernel.
#[test]
fn values_are_candles_own_and_gradients_are_right() {
    for (height, width, kernel, stride, padding) in [
        (5, 5, 3, 1, 0),
        (6, 5, 3, 2, 1),
        (4, 7, 1, 1, 0),
        (4, 7, 1, 3, 0),
        (5, 4, 2, 1, 3),
        (7, 3, 3, 3, 2),
        (3, 3, 3, 1, 1),
    ] {
        let what = format!("{height} × {width}, kernel {kernel}, stride {stride}, padding {padding}");
        let input = drawn((2, 3, height, width), 1);
        let (weight, bias) = (drawn((4, 3, kernel, kernel), 2), drawn(4, 3));
        let ours = layer(&weight, Some(&bias), stride, padding);
        let config = Conv2dConfig {
            stride,
            padding,
            ..Conv2dConfig::default()
        };
        let candles = candle_nn::Conv2d::new(weight.as_tensor().clone(), Some(bias.as_tensor().clone()), config);
        let (found, expected) = (ours.forward(&input).unwrap(), candles.forward(&input).unwrap());
        assert_eq!(found.dims(), expected.dims(), "{what}");
        let distance = (found - expected)
            .unwrap()
            .abs()
            .unwrap()
            .max_all()
            .unwrap()
            .to_scalar::<f64>()
            .unwrap();
        assert!(distance < 1e-12, "{what}: {distance}");
        assert_gradients(&[&input, &weight, &bias], || ours.forward(&input));
        assert_gradients(&[&input, &weight, &bias], || ours.composed(&input));
        for layer in [ours.clone(), ours.relu(), layer(&weight, None, stride, padding).relu()] {
            let (composed, ours) = (layer.composed(&input).unwrap(), layer.forward(&input).unwrap());
            assert_eq!(composed.dims(), ours.dims(), "{what}");
            assert!(farthest(&composed, &ours) < 1e-12, "{what}");
        }
    }
}

#[test]
fn an_input_that_is_not_contiguous_is_taken_as_it_looks() {
    let input = drawn((2, 5, 4, 3), 1);
    let weight = drawn((2, 3, 3, 3), 2);
    let ours = layer(&weight, None, 1, 1);
    let turned = || input.permute((0, 3, 1, 2));
    let copied = turned().unwrap().contiguous().unwrap();
    let values = |tensor: Tensor| tensor.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    assert_eq!(
        values(ours.forward(&turned().unwrap()).unwrap()),
        values(ours.forward(&copied).unwrap())
    );
    assert_gradients(&[&input, &weight], || ours.forward(&turned()?));
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let builder = Builder::new(1);
    assert!(Conv2d::new(0, 4, 3, &builder.pp("none")).is_err());
    let conv = Conv2d::new(3, 4, 3, &builder.pp("conv")).unwrap();
    let refusal = |shape: &[usize]| {
        let input = Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
        conv.forward(&input).unwrap_err().to_string()
    };
    assert!(refusal(&[1, 2, 5, 5]).contains("3 channels"));
    assert!(refusal(&[1, 3, 2, 5]).contains("3 × 3 pixels"));
    assert!(refusal(&[0, 3, 5, 5]).contains("at least one image"));
    assert!(refusal(&[3, 5, 5]).contains("(images, 3, height, width)"));
    let input = Tensor::zeros((1, 3, 5, 5), DType::F32, &Device::Cpu).unwrap();
    assert!(
        conv.clone()
            .stride(0)
            .forward(&input)
            .unwrap_err()
            .to_string()
            .contains("stride")
    );
    assert_eq!(conv.padding(2).stride(2).forward(&input).unwrap().dims(), [1, 4, 4, 4]);
    let names: Vec<_> = builder.into_variables().into_iter().map(|variable| variable.name).collect();
    assert_eq!(names, ["conv.weight", "conv.bias"]);
}

/// Sizes of an input of (images, channels, height, width), of the maps, and of windows.
struct Case {
    input: (usize, usize, usize, usize),
    to: usize,
    windows: Windows,
}

/// One tile and many, of an image and of several; matrices with columns between rows and without; one part of a batch and several.
fn cases() -> Vec<Case> {
    let case = |input, to, (kernel, stride, padding)| Case {
        input,
        to,
        windows: Windows { kernel, stride, padding },
    };
    vec![
        case((3, 1, 28, 28), 5, (3, 1, 0)),
        case((2, 32, 26, 26), 8, (3, 1, 0)),
        case((2, 30, 19, 33), 7, (3, 1, 1)),
        case((2, 20, 40, 12), 6, (5, 2, 2)),
        case((9, 8, 9, 7), 4, (3, 1, 1)),
        case((21, 4, 5, 5), 40, (3, 2, 1)),
        case((3, 6, 30, 31), 5, (1, 1, 0)),
        case((2, 3, 1, 300), 2, (1, 3, 0)),
        case((2, 40, 8, 8), 40, (4, 3, 3)),
    ]
}

/// The maps, and the gradients of input, weights and biases, by the definition.
fn by_definition(case: &Case, [input, weight, bias, gradient]: [&[f64]; 4]) -> [Vec<f64>; 4] {
    let (images, channels, height, width) = case.input;
    let Windows { kernel, stride, padding } = case.windows;
    let (rows, columns) = (
        (height + 2 * padding - kernel) / stride + 1,
        (width + 2 * padding - kernel) / stride + 1,
    );
    let mut maps = vec![0.0; gradient.len()];
    let mut pixels = vec![0.0; input.len()];
    let (mut weights, mut biases) = (vec![0.0; weight.len()], vec![0.0; bias.len()]);
    for at in 0..images * case.to * rows * columns {
        let (column, row) = (at % columns, at / columns % rows);
        let (to, image) = (at / (rows * columns) % case.to, at / (rows * columns * case.to));
        maps[at] += bias[to];
        biases[to] += gradient[at];
        for tap in 0..channels * kernel * kernel {
            let (right, down, channel) = (tap % kernel, tap / kernel % kernel, tap / (kernel * kernel));
            let (y, x) = (row * stride + down, column * stride + right);
            if (padding..height + padding).contains(&y) && (padding..width + padding).contains(&x) {
                let pixel = ((image * channels + channel) * height + y - padding) * width + x - padding;
                let tap = to * channels * kernel * kernel + tap;
                maps[at] += weight[tap] * input[pixel];
                weights[tap] += gradient[at] * input[pixel];
                pixels[pixel] += gradient[at] * weight[tap];
            }
        }
    }
    [maps, pixels, weights, biases]
}

fn flat(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Input, weights, biases and the gradient of the maps, in this type.
fn drawn_for(case: &Case, dtype: DType) -> [Var; 4] {
    let ((images, channels, height, width), kernel) = (case.input, case.windows.kernel);
    let [rows, columns] = [height, width].map(|size| (size + 2 * case.windows.padding - kernel) / case.windows.stride + 1);
    [
        drawn((images, channels, height, width), 1),
        drawn((case.to, channels, kernel, kernel), 2),
        drawn(case.to, 3),
        drawn((images, case.to, rows, columns), 4),
    ]
    .map(|variable| Var::from_tensor(&variable.to_dtype(dtype).unwrap()).unwrap())
}

/// The maps, and the gradients of input, weights and biases, by the layer.
fn by_layer(case: &Case, [input, weight, bias, gradient]: &[Var; 4]) -> [Vec<f64>; 4] {
    let Windows { stride, padding, .. } = case.windows;
    let maps = layer(weight, Some(bias), stride, padding).forward(input).unwrap();
    let gradients = (&maps * gradient.as_detached_tensor())
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    let [pixels, weights, biases] = [input, weight, bias].map(|variable| flat(gradients.get(variable).unwrap()));
    [flat(&maps), pixels, weights, biases]
}

#[test]
fn values_and_gradients_are_those_of_the_definition() {
    for (number, case) in cases().iter().enumerate() {
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
            let drawn = drawn_for(case, dtype);
            let values = drawn.each_ref().map(|tensor| flat(tensor));
            let expected = by_definition(case, values.each_ref().map(Vec::as_slice));
            for (found, expected) in by_layer(case, &drawn).iter().zip(&expected) {
                let largest = expected.iter().fold(1.0_f64, |largest, value| largest.max(value.abs()));
                assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(expected) {
                    assert!(
                        (found - expected).abs() < tolerance * largest,
                        "case {number}: {found} {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for (number, case) in cases().iter().enumerate() {
        let drawn = drawn_for(case, DType::F32);
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let found = pool.install(|| by_layer(case, &drawn));
            found.map(|values| values.into_iter().map(f64::to_bits).collect::<Vec<_>>())
        };
        let alone = with(1);
        assert!([2, 3].into_iter().all(|threads| with(threads) == alone), "case {number}");
    }
}

#[test]
fn a_rectified_layer_is_the_layer_and_a_rectifier() {
    for case in cases() {
        let [input, weight, bias, gradient] = &drawn_for(&case, DType::F64);
        let Windows { stride, padding, .. } = case.windows;
        let plain = layer(weight, Some(bias), stride, padding);
        let of = |maps: Tensor| {
            let gradients = (&maps * gradient.as_detached_tensor())
                .unwrap()
                .sum_all()
                .unwrap()
                .backward()
                .unwrap();
            let [pixels, weights, biases] = [input, weight, bias].map(|variable| flat(gradients.get(variable).unwrap()));
            [flat(&maps), pixels, weights, biases]
        };
        assert_eq!(
            of(plain.clone().relu().forward(input).unwrap()),
            of(plain.forward(input).unwrap().relu().unwrap())
        );
    }
}

#[test]
fn a_rectified_layer_shows_a_nan() {
    let input = Tensor::new(&[[[[f64::NAN, -1.0, 1.0]]]], &Device::Cpu).unwrap();
    let weight = Var::from_tensor(&Tensor::ones((1, 1, 1, 1), DType::F64, &Device::Cpu).unwrap()).unwrap();
    let layer = layer(&weight, None, 1, 0).relu();
    for found in [layer.forward(&input), layer.composed(&input)] {
        let found = flat(&found.unwrap());
        assert!(found[0].is_nan() && found[1..] == [0.0, 1.0], "{found:?}");
    }
}
