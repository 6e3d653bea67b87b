//! Which tensors a builder makes, and which it refuses.

use super::*;

const ZEROS: Init = Init::Const(0.0);

fn names(builder: Builder) -> Vec<String> {
    builder.into_variables().into_iter().map(|variable| variable.name).collect()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn tensors_are_listed_in_the_order_in_which_they_are_asked_for() {
    let builder = Builder::new(1);
    let net = builder.pp("net");
    net.parameter(2, "z", ZEROS).unwrap();
    candle_nn::linear(3, 2, net.pp("dense").vb()).unwrap();
    net.running(2, 0.1).unwrap();
    builder.parameter(2, "a", ZEROS).unwrap();
    let expected = [
        "net.z",
        "net.dense.weight",
        "net.dense.bias",
        "net.running_mean",
        "net.running_var",
        "a",
    ];
    assert_eq!(names(builder), expected);
}

#[test]
fn first_values_depend_on_the_seed_and_the_whole_name_alone() {
    let normal = Init::Randn { mean: 0.0, stdev: 1.0 };
    let alone = |seed| values(&Builder::new(seed).pp("a").parameter((3, 2), "w", normal).unwrap());
    let builder = Builder::new(1);
    let before = builder.parameter((3, 2), "w", normal).unwrap();
    let among = builder.pp("a").parameter((3, 2), "w", normal).unwrap();
    assert_eq!(values(&among), alone(1));
    assert_ne!(values(&before), values(&among));
    assert_ne!(alone(1), alone(2));
}

#[test]
fn a_name_asked_for_twice_is_one_tensor_if_the_shapes_agree() {
    let builder = Builder::new(1);
    let tied = builder.parameter((2, 3), "embedding", ZEROS).unwrap();
    let again = builder.vb().get((2, 3), "embedding").unwrap();
    assert_eq!(tied.id(), again.id());
    // Only candle's own builder ties, as its models do.
    let refusal = builder.parameter((2, 3), "embedding", ZEROS).unwrap_err().to_string();
    assert!(refusal.contains("found `embedding` twice"), "{refusal}");
    let refusal = builder.vb().get((3, 2), "embedding").unwrap_err().to_string();
    assert!(
        refusal.contains("`embedding` is shared as [3, 2], and was made as [2, 3]"),
        "{refusal}"
    );
    let unchecked = builder.vb().get_unchecked("embedding").unwrap();
    assert_eq!(tied.id(), unchecked.id());
    assert_eq!(names(builder), ["embedding"]);
}

#[test]
fn a_tensor_of_unknown_shape_is_refused_unless_it_was_made() {
    let refusal = Builder::new(1).pp("net").vb().get_unchecked("w").unwrap_err().to_string();
    assert!(
        refusal.contains("`net.w` is asked for without its shape, and was not made before"),
        "{refusal}"
    );
}

#[test]
fn candles_own_batch_normalisation_is_refused_with_what_to_use() {
    let builder = Builder::new(1);
    let refusal = candle_nn::batch_norm(4, 1e-5, builder.pp("norm").vb())
        .unwrap_err()
        .to_string();
    assert!(
        refusal.contains("`norm.running_mean`") && refusal.contains("use sardana_candle::BatchNorm2d"),
        "{refusal}"
    );
    // Also when the name is there already.
    builder.pp("norm").running(4, 0.1).unwrap();
    for name in ["running_mean", "running_var"] {
        assert!(builder.pp("norm").vb().get(4, name).is_err());
    }
}

#[test]
fn what_is_asked_for_after_the_network_is_built_is_refused() {
    let builder = Builder::new(1);
    builder.pp("a").parameter(1, "w", ZEROS).unwrap();
    let kept = builder.clone();
    assert_eq!(names(builder), ["a.w"]);
    for refusal in [
        kept.vb().get(1, "b").unwrap_err(),
        kept.vb().get(1, "a.w").unwrap_err(),
        kept.vb().get_unchecked("a.w").unwrap_err(),
        kept.running(1, 0.1).unwrap_err(),
    ] {
        assert!(refusal.to_string().contains("while a network is built"), "{refusal}");
    }
}

#[test]
fn a_part_that_may_be_unused_is_named_as_any_other() {
    let builder = Builder::new(1).pp("net");
    builder.may_be_unused().pp("a").parameter(1, "w", ZEROS).unwrap();
    builder.pp("b").parameter(1, "w", ZEROS).unwrap();
    let variables = builder.into_variables();
    let found: Vec<_> = variables.iter().map(|variable| (&*variable.name, variable.used)).collect();
    assert_eq!(found, [("net.a.w", Used::Perhaps), ("net.b.w", Used::Always)]);
}

#[test]
fn only_f32_is_trained() {
    let doubled = Builder::new(1).vb().to_dtype(DType::F64).get(2, "w").unwrap_err().to_string();
    assert!(doubled.contains("expected `w` to be f32, found F64"), "{doubled}");
}

#[test]
fn running_tensors_are_asked_for_once_and_follow_what_their_layer_tells() {
    let builder = Builder::new(1);
    builder.parameter(1, "before", ZEROS).unwrap();
    let running = builder.pp("norm").running(3, 0.2).unwrap();
    assert_eq!(values(&running.mean), [0.0; 3]);
    assert_eq!(values(&running.variance), [1.0; 3]);
    let refusal = builder.pp("norm").running(3, 0.2).unwrap_err().to_string();
    assert!(refusal.contains("found `norm.running_mean` twice"), "{refusal}");
    for momentum in [-0.1, 1.1, f64::NAN] {
        let refusal = builder.running(3, momentum).unwrap_err().to_string();
        assert!(refusal.contains(&format!("from 0 to 1, found {momentum}")), "{refusal}");
    }
    let variables = builder.into_variables();
    let roles: Vec<Role> = variables.iter().map(|variable| variable.role).collect();
    let (mean, variance) = (running.means.tensor, running.squares.tensor);
    assert_eq!(
        roles,
        [
            Role::Trained,
            Role::RunningMean { momentum: 0.2 },
            Role::RunningVariance { momentum: 0.2, mean }
        ]
    );
    assert_eq!((mean, variance), (1, 2));
    // What the layer holds is what the update sets.
    variables[mean]
        .value
        .set(&Tensor::new(&[1.0_f32, 2.0, 3.0], &Device::Cpu).unwrap())
        .unwrap();
    assert_eq!(values(&running.mean), [1.0, 2.0, 3.0]);
}

#[test]
fn drawing_layers_are_numbered_up_to_their_limit() {
    let builder = Builder::new(1);
    assert_eq!(builder.drawing_layer().unwrap(), 0);
    assert_eq!(builder.pp("part").drawing_layer().unwrap(), 1);
    for _ in 2..MAX_DRAWING_LAYERS {
        builder.drawing_layer().unwrap();
    }
    let refusal = builder.drawing_layer().unwrap_err().to_string();
    assert!(refusal.contains("at most 65536 layers"), "{refusal}");
}
