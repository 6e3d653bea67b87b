//! Fits of a network whose tensors lie on a GPU, of a twin driver: each ends with the bits of the same fit on the host, however the driver orders streams. Where
//! there is no C++ compiler, each test says that it is skipped.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod network;
mod twin;

use sardana::data::{DatasetExt, Loader};
use sardana::fit::{Fit, FitError};
use sardana::model::{SharedState, StateHash, TensorSpec, Trainable, restore, save, state_hash};
use sardana::optim::{Adagrad, Adam, AdamW, Lars, Optimizer, RmsProp, Sgd};
use sardana::schedule::Schedule;
use sardana::{Job, JobSpec, Step, reference};
use sardana_cuda::device::{Device, DeviceError, Traffic};

use network::{Net, Waves};
use twin::driver;

/// Bytes of all tensors of the network, and of those that follow means and variances.
const BYTES: u64 = 4 * (37 * 61 + 61 + 5 + 5);
const RUNNING_BYTES: u64 = 4 * (5 + 5);

fn spec() -> JobSpec {
    let job = Job::builder("waves").seed(5).shards(3).train(&Waves, 12).unwrap().epochs(2);
    job.build().unwrap().spec().clone()
}

/// Which way a fit goes: with a norm to which gradients are clipped, if they are.
fn fit(net: Net, optimizer: impl Optimizer + 'static, clip: Option<f64>) -> Result<Fit<Net>, FitError> {
    let fit = Fit::builder(net)
        .data(Loader::on_demand(Waves))
        .held_out(Waves.select("the first", 0..7).unwrap())
        .optimizer(optimizer, Schedule::cosine(0.02, 0.001, 10).warm_up(3))
        .decay(0.03);
    match clip {
        Some(norm) => fit.clip_norm(norm),
        None => fit,
    }
    .build(&spec())
}

fn on(device: &Device, optimizer: impl Optimizer + 'static, clip: Option<f64>) -> Fit<Net> {
    fit(Net::on_device(device).unwrap(), optimizer, clip).unwrap()
}

/// Trains with this optimizer on the host, and on devices whose drivers order their streams in many ways. Gives what crossed in the last of these.
fn ends_like_on_the_host<O: Optimizer + Copy + 'static>(optimizer: O) -> Traffic {
    let Some(driver) = driver() else {
        return Traffic::default();
    };
    let mut traffic = Traffic::default();
    // A norm that shortens gradients, one that none reaches, and none at all.
    for clip in [Some(2.0), Some(1e9), None] {
        let plain = reference::train(&spec(), &mut fit(Net::on_host(), optimizer, clip).unwrap()).unwrap();
        for seed in 0..2 {
            let session = driver.begin(seed);
            let device = Device::open(0).unwrap();
            let mut there = on(&device, optimizer, clip);
            reference::advance(&spec(), &mut there, Step::ZERO..spec().steps).unwrap();
            traffic = device.traffic();
            assert_eq!(
                state_hash(&there, spec().steps).unwrap(),
                plain.hash,
                "{optimizer:?}, clipped to {clip:?}, seed {seed}"
            );
            assert_eq!(there.evaluate().unwrap(), plain.results);
            drop((there, device));
            session.ends_well();
        }
    }
    traffic
}

/// Sums come down for others, and what follows means and variances passes the host; no more.
fn stays_there(optimizer: impl Optimizer + Copy + 'static) {
    let found = ends_like_on_the_host(optimizer);
    let steps = if driver().is_some() { spec().steps.get() } else { 0 };
    let expected = Traffic {
        up: steps * RUNNING_BYTES,
        down: steps * (BYTES + RUNNING_BYTES),
    };
    assert_eq!(found, expected, "{optimizer:?}");
}

#[test]
fn sgd_is_done_where_the_tensors_lie_with_the_bits_of_the_host() {
    stays_there(Sgd::new());
}

#[test]
fn momentum_is_done_where_the_tensors_lie_with_the_bits_of_the_host() {
    stays_there(Sgd::new().momentum(0.9));
    stays_there(Sgd::nesterov(0.9));
}

#[test]
fn adam_is_done_where_the_tensors_lie_with_the_bits_of_the_host() {
    stays_there(AdamW::new().betas(0.8, 0.95).epsilon(1e-5));
    stays_there(Adam::new());
}

#[test]
fn an_optimizer_that_devices_have_no_kernel_for_updates_on_the_host_with_the_same_bits() {
    for found in [
        ends_like_on_the_host(RmsProp::new().momentum(0.5)),
        ends_like_on_the_host(Adagrad::new()),
        ends_like_on_the_host(Lars::new()),
    ] {
        let steps = if driver().is_some() { spec().steps.get() } else { 0 };
        assert_eq!(found.up, steps * BYTES, "each tensor goes up again");
    }
}

#[test]
fn a_copy_of_some_tensors_brings_no_others() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(2);
    let device = Device::open(0).unwrap();
    let there = on(&device, AdamW::new(), None);
    let shared = there.share().unwrap();
    let all = bytes(&*shared);
    for name in ["biases", "biases.mean", "mean", "fit.updates"] {
        let (mut asked, mut shown) = (Vec::new(), Vec::new());
        let before = device.traffic().down;
        let wanted = &mut |spec: &TensorSpec| {
            asked.push(spec.name.clone());
            spec.name == name
        };
        let visitor = &mut |spec: &TensorSpec, bytes: &[u8]| shown.push((spec.name.clone(), bytes.to_vec()));
        shared.visit_wanted(wanted, visitor).unwrap();
        assert!(asked.iter().eq(all.iter().map(|(name, _)| name)), "{asked:?}");
        assert_eq!(shown, all.iter().filter(|(own, _)| own == name).cloned().collect::<Vec<_>>());
        let expected: usize = shown.iter().map(|(_, bytes)| bytes.len()).sum();
        let on_host = if name == "fit.updates" { 8 } else { 0 };
        assert_eq!(device.traffic().down - before, (expected - on_host) as u64, "{name}");
    }
    drop((shared, there, device));
    session.ends_well();
}

/// There is room for the network, its slots and a sum, and none for hashes: what is shown is hashed in their place.
#[test]
fn a_device_that_is_full_does_not_keep_a_state_from_being_hashed() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(1);
    let here = fit(Net::on_host(), AdamW::new(), None).unwrap();
    let device = Device::open(0).unwrap();
    let there = on(&device, AdamW::new(), None);
    let held = device.memory().held;
    drop((there, device));
    let device = Device::open_within(0, held).unwrap();
    let there = on(&device, AdamW::new(), None);
    assert_eq!(there.piece_hashes().unwrap(), None);
    assert_eq!(
        state_hash(&there, Step::ZERO).unwrap(),
        state_hash(&here, Step::ZERO).unwrap()
    );
    drop((there, device));
    session.ends_well();
}

/// Only hashes come down for the hash of a state; with an optimizer that devices have no kernel for, all that is shown.
#[test]
fn a_state_is_hashed_where_it_lies() {
    let Some(driver) = driver() else { return };
    let boundary = Step::new(3);
    let pieces = |fit: &Fit<Net>| fit.piece_hashes().unwrap();
    let mut here = fit(Net::on_host(), AdamW::new(), None).unwrap();
    reference::advance(&spec(), &mut here, Step::ZERO..boundary).unwrap();
    assert_eq!(pieces(&here), None, "nothing of it is elsewhere");
    for seed in 0..4 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let mut there = on(&device, AdamW::new(), None);
        reference::advance(&spec(), &mut there, Step::ZERO..boundary).unwrap();
        let before = device.traffic();
        let found = state_hash(&there, boundary).unwrap();
        let after = device.traffic();
        assert_eq!(found, state_hash(&here, boundary).unwrap(), "seed {seed}");
        // Four tensors, and two slots of each of the two that are trained, each of one piece.
        assert_eq!((after.up - before.up, after.down - before.down), (0, 8 * 32));

        let mut mixed = on(&device, RmsProp::new(), None);
        assert_eq!(pieces(&mixed), None, "slots of its optimizer are on the host");
        reference::advance(&spec(), &mut mixed, Step::ZERO..boundary).unwrap();
        let before = device.traffic().down;
        state_hash(&mixed, boundary).unwrap();
        assert_eq!(device.traffic().down - before, BYTES);
        drop((there, mixed, device));
        session.ends_well();
    }
}

/// A state that was saved half way, by a fit on a device or on the host, in fits of both kinds that go on with it.
#[test]
fn a_state_is_shown_and_loaded_there_as_on_the_host() {
    let Some(driver) = driver() else { return };
    let (optimizer, clip, half) = (AdamW::new(), Some(3.0), Step::new(4));
    let plain = reference::train(&spec(), &mut fit(Net::on_host(), optimizer, clip).unwrap()).unwrap();
    for seed in 0..4 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let here = || fit(Net::on_host(), optimizer, clip).unwrap();
        let saved = [on(&device, optimizer, clip), here()].map(|mut first| {
            reference::advance(&spec(), &mut first, Step::ZERO..half).unwrap();
            save(&first).unwrap()
        });
        assert_eq!(saved[0], saved[1]);
        for mut next in [on(&device, optimizer, clip), here()] {
            restore(&mut next, &saved[0]).unwrap();
            assert_eq!(next.updates(), half.get());
            assert_eq!(save(&next).unwrap(), saved[0]);
            reference::advance(&spec(), &mut next, half..spec().steps).unwrap();
            assert_eq!(state_hash(&next, spec().steps).unwrap(), plain.hash, "seed {seed}");
        }
        drop(device);
        session.ends_well();
    }
}

#[test]
fn what_is_shared_is_one_boundary_whatever_is_updated_meanwhile() {
    let Some(driver) = driver() else { return };
    let mut here = fit(Net::on_host(), AdamW::new(), None).unwrap();
    let boundary = Step::new(2);
    reference::advance(&spec(), &mut here, Step::ZERO..boundary).unwrap();
    let expected = bytes(&*here.share().unwrap());
    for seed in 0..6 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let mut there = on(&device, AdamW::new(), None);
        reference::advance(&spec(), &mut there, Step::ZERO..boundary).unwrap();
        let [read_beside, read_later] = [there.share().unwrap(), there.share().unwrap()];
        let held = device.memory().held;
        let found = std::thread::scope(|scope| {
            let reading = scope.spawn(move || bytes(&*read_beside));
            reference::advance(&spec(), &mut there, boundary..spec().steps).unwrap();
            reading.join().unwrap()
        });
        assert!(found == expected, "seed {seed}: another state was read beside updates");
        assert!(device.memory().held > held, "what is lent and what is updated are there both");
        assert!(
            bytes(&*read_later) == expected,
            "seed {seed}: another state was read after updates"
        );
        drop(read_later);
        let plain = reference::train(&spec(), &mut fit(Net::on_host(), AdamW::new(), None).unwrap()).unwrap();
        assert_eq!(state_hash(&there, spec().steps).unwrap(), plain.hash);
        drop((there, device));
        session.ends_well();
    }
}

#[test]
fn what_is_not_a_number_is_the_same_one_there_as_on_the_host() {
    let Some(driver) = driver() else { return };
    let end = |mut fit: Fit<Net>| {
        // The sum over samples of a value that is drawn to others overflows.
        let mut weights = vec![0.5; 37 * 61];
        weights[7] = f32::MAX;
        let spec_of_weights = fit.gradients()[0].clone();
        fit.load(&spec_of_weights, bytemuck::cast_slice(&weights)).unwrap();
        reference::advance(&spec(), &mut fit, Step::ZERO..Step::new(3)).unwrap();
        bytes(&*fit.share().unwrap())
    };
    for clip in [None, Some(2.0)] {
        let session = driver.begin(3);
        let device = Device::open(0).unwrap();
        let there = end(on(&device, AdamW::new(), clip));
        let here = end(fit(Net::on_host(), AdamW::new(), clip).unwrap());
        assert!(there == here, "clipped to {clip:?}");
        let numbers = here[0].1.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let others: Vec<u32> = numbers.filter(|number| number.is_nan()).map(f32::to_bits).collect();
        assert!(
            !others.is_empty() && others.iter().all(|&bits| bits == f32::NAN.to_bits()),
            "{others:x?}"
        );
        drop(device);
        session.ends_well();
    }
}

/// All that is shown.
fn bytes(shared: &dyn SharedState) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    shared
        .visit(&mut |spec, bytes| all.push((spec.name.clone(), bytes.to_vec())))
        .unwrap();
    all
}

#[test]
fn a_device_without_room_is_said_and_costs_the_fit_alone() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(1);
    // For the network and a sum beside it, and not for two slots, nor for the weights once more.
    let device = Device::open_within(0, BYTES * 2 + 7_000).unwrap();
    let refused = fit(Net::on_device(&device).unwrap(), AdamW::new(), None).unwrap_err();
    assert!(
        matches!(refused, FitError::Device(DeviceError::Memory { held, .. }) if held >= BYTES),
        "{refused:?}"
    );
    // Without slots there is room until what is lent is updated.
    let mut there = on(&device, Sgd::new(), None);
    let lent = there.share().unwrap();
    let first = Step::ZERO..Step::new(1);
    let refused = reference::advance(&spec(), &mut there, first.clone()).unwrap_err();
    assert!(refused.to_string().contains("of the GPU's memory, found that"), "{refused}");
    drop((lent, there));
    let mut there = on(&device, Sgd::new(), None);
    let hash = |fit: &Fit<Net>| -> StateHash { state_hash(fit, first.end).unwrap() };
    let mut here = fit(Net::on_host(), Sgd::new(), None).unwrap();
    for fit in [&mut there, &mut here] {
        reference::advance(&spec(), fit, first.clone()).unwrap();
    }
    assert_eq!(hash(&there), hash(&here));
    drop((there, device));
    session.ends_well();
}
