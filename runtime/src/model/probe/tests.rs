//! A probe of models that keep the promises, and of those that break one each.

use super::super::hash::state_hash;
use super::super::toys::{Fault, Line, OnDevice, line_spec};
use super::*;

fn probed(fault: Fault) -> (Line, Result<Probe, ProbeError>) {
    let mut model = Line::faulty(fault);
    let result = probe(&mut model, &Sampler::new(&line_spec(5)).unwrap());
    (model, result)
}

#[test]
fn a_good_model_is_left_in_state_zero() {
    let (model, probe) = probed(Fault::None);
    let probe = probe.unwrap();
    assert_eq!(probe.state_zero, state_hash(&Line::default(), Step::ZERO).unwrap());
    assert_eq!(probe.state_zero, state_hash(&model, Step::ZERO).unwrap());
    // The closed form of one update from zero: minus a tenth of the mean gradient.
    let shard = Sampler::new(&line_spec(5)).unwrap().shard(Step::ZERO, 0);
    let (mut sum0, mut sum1) = (0.0, 0.0);
    for &sample in shard.samples() {
        let (x, y) = Line::sample(sample);
        sum0 -= y;
        sum1 -= y * x;
    }
    let n = shard.samples().len() as f64;
    let velocity = [sum0 / n, sum1 / n];
    let expected = Line {
        w: velocity.map(|v| 0.0 - 0.1 * v),
        velocity,
        ..Line::default()
    };
    assert_eq!(probe.after, state_hash(&expected, Step::new(1)).unwrap());
}

#[test]
fn a_device_that_goes_wrong_every_third_time_is_found_and_a_processor_is_asked_twice() {
    let (_, found) = probed(Fault::EveryThirdGradient);
    // It is the third of them, with the restored state.
    assert!(matches!(found, Err(ProbeError::GradientHasHiddenState(_))), "{found:?}");
    let mut on_device = OnDevice(Line::faulty(Fault::EveryThirdGradient));
    let sampler = Sampler::new(&line_spec(5)).unwrap();
    let error = probe(&mut on_device, &sampler).unwrap_err();
    assert_eq!(on_device.0.taken.get(), 3);
    // The closed form of the first gradient, and its neighbour.
    let shard = sampler.shard(Step::ZERO, 0);
    let mut slope = 0.0;
    for &sample in shard.samples() {
        let (x, y) = Line::sample(sample);
        slope += (0.0 - y) * x;
    }
    let mean = |slope: f64| (slope / shard.samples().len() as f64).to_bits();
    let ProbeError::DeviceVaries { device, place } = &error else {
        panic!("{error}");
    };
    let expected = format!("element 1 of w, {:#018x} and {:#018x}", mean(slope), mean(slope + 1.0));
    assert_eq!((device.as_str(), place), ("a device", &expected));
    for cause in [
        "atomics",
        "CUBLAS_WORKSPACE_CONFIG",
        "cuDNN",
        "another stream",
        "NVIDIA_TF32_OVERRIDE",
    ] {
        assert!(error.to_string().contains(cause), "{error}");
    }

    let mut right = OnDevice(Line::default());
    let found = probe(&mut right, &sampler).unwrap();
    assert_eq!(Some(found), probed(Fault::None).1.ok(), "the device never reaches the probe");
    assert_eq!(right.0.taken.get(), 4);
}

#[test]
fn each_broken_promise_has_its_own_error() {
    let error = |fault| probed(fault).1.unwrap_err();
    let varies = error(Fault::GradientVaries);
    assert!(
        matches!(&varies, ProbeError::GradientVaries(place) if place == "w"),
        "{varies}"
    );
    assert!(matches!(
        error(Fault::GradientMovesState),
        ProbeError::GradientMovesState { .. }
    ));
    assert!(matches!(error(Fault::LoadForgets), ProbeError::LoadForgets { .. }));
    assert!(matches!(error(Fault::SharesStaleCopy), ProbeError::SharesAnother { .. }));
    assert!(matches!(error(Fault::SharesWhatChanges), ProbeError::SharesAnother { .. }));
    assert!(matches!(error(Fault::VelocityHidden), ProbeError::ApplyHasHiddenState { .. }));
    assert!(matches!(
        error(Fault::GradientUsesStaleCopy),
        ProbeError::GradientHasHiddenState(_)
    ));
    let failed = error(Fault::GradientFails);
    assert_eq!(
        failed.to_string(),
        "probe: the model failed to compute a gradient: no such sample"
    );
    let untold = error(Fault::SamplesUntold);
    assert!(
        matches!(
            untold,
            ProbeError::Samples { expected: 3, found: 0 } | ProbeError::Gradient(_)
        ),
        "{untold}"
    );
}

#[test]
fn hashes_that_a_model_gives_of_itself_are_those_of_what_it_shows() {
    let sampler = Sampler::new(&line_spec(5)).unwrap();
    let error = |fault| probe(&mut OnDevice(Line::faulty(fault)), &sampler).unwrap_err();
    let zero = state_hash(&Line::default(), Step::ZERO).unwrap();
    // Without a share what is shown is hashed in its place.
    let hidden = error(Fault::VelocityHidden);
    assert!(matches!(hidden, ProbeError::ApplyHasHiddenState { .. }), "{hidden}");
    for (fault, shown) in [
        (Fault::HashesOthers, zero),
        (Fault::HashesStaleCopy, probed(Fault::None).1.unwrap().after),
    ] {
        let error = error(fault);
        assert!(
            matches!(error, ProbeError::HashesAnother { expected, found } if expected == shown && found != shown),
            "{fault:?}: {error}"
        );
    }
    let none = error(Fault::HashesNothing).to_string();
    assert_eq!(
        none,
        "model: tensor w: f64[2]: expected one hash for each 1048576 bytes of it, found 0 hashes; correct `piece_hashes`"
    );
    // Other promises are checked by hashes as by what is shown.
    let moves = error(Fault::GradientMovesState);
    assert!(
        matches!(moves, ProbeError::GradientMovesState { expected, .. } if expected == zero),
        "{moves}"
    );
    assert!(matches!(error(Fault::LoadForgets), ProbeError::LoadForgets { .. }));
    assert!(matches!(error(Fault::LoadLeavesShown), ProbeError::LoadForgets { .. }));
    assert!(matches!(error(Fault::SharesStaleCopy), ProbeError::SharesAnother { .. }));
}

#[test]
fn a_part_of_a_state_is_shared_as_the_whole_is() {
    let error = probed(Fault::SharesOtherPart).1.unwrap_err();
    assert_eq!(
        error.to_string(),
        "model: expected `visit_wanted` to show velocity: f64[2], found w: f64[2]; it must show the same tensors in the same order as before"
    );
}
