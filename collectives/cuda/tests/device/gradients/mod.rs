//! Gradients that stay on a device until they are asked for have the bits of gradients that are written on the host, wherever there is room for them; no more
//! crosses than is said; and what does not come is an error.

mod enqueued;
mod in_place;
mod passing_planted;
mod planted;
mod ranks;
mod rings;
pub(crate) mod shards;
mod sums;

use sardana_collectives::gradient::{GradientBuffer, GradientError, WriteMode};
use sardana_cuda::device::{Device, DeviceError, DeviceTensor, Stream, Traffic};
use sardana_cuda::gradient::{OnDeviceError, WriteOnDevice};
use sardana_twins::{Count, Planted};

use super::twin::driver;
use shards::{Case, From, block_on, read, written_and_read};

/// Gradients of two shards that are added to one another, of which some tensors stay on the device.
fn mixed() -> Case {
    Case {
        tensors: vec![(40, false), (7, true), (33, false)],
        shards: vec![
            Some(vec![From::Device, From::Device, From::Host]),
            Some(vec![From::Device, From::Device, From::Device]),
        ],
        at_once: false,
        seed: 5,
    }
}

#[test]
fn a_gradient_that_stays_on_the_device_has_the_bits_of_one_that_is_written_on_the_host() {
    let Some(driver) = driver() else { return };
    for seed in 0..200 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let case = Case::any(seed);
        let layout = case.layout();
        let mut buffer = GradientBuffer::zeros(&layout);
        // The second and third gradients use the memory of the first.
        for round in 0..3 {
            let case = Case {
                seed: seed + round,
                ..case.clone()
            };
            let found = written_and_read(&case, &mut buffer, &layout, &device).unwrap();
            assert!(found == case.expected(), "{case:?}");
            let held = device.memory().held;
            let expected = if case.kept() > 0 || held > 0 { layout.bytes() } else { 0 };
            assert_eq!(held, expected as u64);
        }
        drop((buffer, device));
        session.ends_well();
    }
}

#[test]
fn what_the_device_has_no_room_for_is_spilled_and_has_the_same_bits() {
    let Some(driver) = driver() else { return };
    for seed in 0..40 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let case = Case::any(seed);
        let layout = case.layout();
        device.keep_gradients_within(layout.bytes() as u64);
        let mut buffers = [(); 3].map(|()| GradientBuffer::zeros(&layout));
        for buffer in &mut buffers {
            case.write(buffer, &layout, Some(&device)).unwrap();
        }
        assert!(device.memory().held <= layout.bytes() as u64, "one of them has room");
        for buffer in &mut buffers {
            buffer.lower().unwrap();
            assert!(buffer.bytes() == case.expected(), "{case:?}");
            buffer.clear();
        }
        // As it is where the driver has no memory left.
        device.keep_gradients_within(u64::MAX - 1);
        session.room(device.memory().held + layout.bytes() as u64 / 2 + 600);
        let mut last = GradientBuffer::zeros(&layout);
        if case.write(&mut last, &layout, Some(&device)).is_ok() {
            last.lower().unwrap();
            assert!(last.bytes() == case.expected());
        }
        last.clear();
        drop((buffers, last, device));
        session.ends_well();
    }
}

#[test]
fn what_carries_gradients_is_made_once_for_a_device_even_if_it_has_room_for_none() {
    let Some(driver) = driver() else { return };
    for room in [0, u64::MAX - 1] {
        let session = driver.begin(4);
        let device = Device::open(0).unwrap();
        device.keep_gradients_within(room);
        let case = mixed();
        let layout = case.layout();
        for _ in 0..3 {
            let mut buffer = GradientBuffer::zeros(&layout);
            written_and_read(&case, &mut buffer, &layout, &device).unwrap();
            let pinned = device.pinned();
            assert!(pinned.held > 0 && pinned.held == pinned.asked, "it is kept: {pinned:?}");
        }
        drop(device);
        session.ends_well();
    }
}

#[test]
fn a_gradient_is_computed_once_it_was_waited_for() {
    let Some(driver) = driver() else { return };
    let mut waits = 0;
    for seed in 0..20 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let case = Case {
            shards: vec![Some(vec![From::Device; 3]); 2],
            ..mixed()
        };
        let layout = case.layout();
        let mut buffer = GradientBuffer::zeros(&layout);
        buffer.wait_computed().unwrap();
        case.write(&mut buffer, &layout, Some(&device)).unwrap();
        let before = session.count(Count::HostWaits);
        buffer.wait_computed().unwrap();
        waits += session.count(Count::HostWaits) - before;
        // Nothing is left to wait for.
        let before = session.count(Count::HostWaits);
        device.synchronize().unwrap();
        buffer.wait_computed().unwrap();
        assert_eq!(session.count(Count::HostWaits), before);
        buffer.clear();
        buffer.wait_computed().unwrap();
        drop((buffer, device));
        session.ends_well();
    }
    assert!(waits > 0, "the device was never behind");
}

#[test]
fn tensors_that_are_written_all_at_once_take_one_launch_a_shard() {
    let Some(driver) = driver() else { return };
    // So many tensors, of which a fifth has no elements, take so many launches a shard; and each of the others is computed by one of its own first.
    for (tensors, at_once, packs) in [(40, false, 32), (40, true, 1), (2_050, true, 2)] {
        let session = driver.begin(3);
        let device = Device::open(0).unwrap();
        let case = Case {
            tensors: (0..tensors).map(|number| (number % 5, false)).collect(),
            shards: vec![Some(vec![From::Device; tensors]); 2],
            at_once,
            seed: 3,
        };
        let layout = case.layout();
        let mut buffer = GradientBuffer::zeros(&layout);
        case.write(&mut buffer, &layout, Some(&device)).unwrap();
        let computed = tensors as u64 * 4 / 5;
        assert_eq!(session.count(Count::Launches), 2 * (computed + packs), "{tensors}");
        buffer.lower().unwrap();
        assert!(buffer.bytes() == case.expected());
        drop((buffer, device));
        session.ends_well();
    }
}

#[test]
fn what_crosses_is_what_is_asked_for() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(9);
    let device = Device::open(0).unwrap();
    // Two shards that are added on the device come down as one, in parts of 1 MiB.
    let large = Case {
        tensors: vec![(300_000, false), (150_000, true)],
        shards: vec![Some(vec![From::Device; 2]); 2],
        at_once: false,
        seed: 1,
    };
    let layout = large.layout();
    let mut buffer = GradientBuffer::zeros(&layout);
    large.write(&mut buffer, &layout, Some(&device)).unwrap();
    let view = buffer.complete();
    assert_eq!(device.traffic(), Traffic::default());
    let last = layout.chunks() - 1;
    block_on(view.chunk(last)).unwrap();
    assert!(read(&view, &layout).unwrap() == large.expected());
    assert!(read(&view, &layout).unwrap() == large.expected());
    let down = large.kept();
    assert_eq!((device.traffic(), down), (Traffic { up: 0, down }, 2_400_000));
    assert_eq!((session.count(Count::Down), session.count(Count::Up)), (down, 0));
    drop(view);
    buffer.clear();
    drop(buffer);
    // What is spilled comes down once for each shard.
    device.keep_gradients_within(0);
    let mut buffer = GradientBuffer::zeros(&layout);
    large.write(&mut buffer, &layout, Some(&device)).unwrap();
    buffer.lower().unwrap();
    assert!(buffer.bytes() == large.expected());
    let down = down + large.written_from_a_device();
    assert_eq!(device.traffic(), Traffic { up: 0, down });
    drop((buffer, device));
    session.ends_well();
}

#[test]
fn a_gradient_whose_reader_is_gone_is_there_for_the_next() {
    let Some(driver) = driver() else { return };
    for seed in 0..8 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let case = Case {
            tensors: vec![(300_000, false); 3],
            shards: vec![Some(vec![From::Device; 3])],
            at_once: false,
            seed,
        };
        let layout = case.layout();
        let mut buffer = GradientBuffer::zeros(&layout);
        let early = buffer.awaited(&layout);
        case.write(&mut buffer, &layout, Some(&device)).unwrap();
        block_on(early.chunk(seed as u32 % (layout.chunks() - 1))).unwrap();
        drop(early);
        let next = buffer.complete();
        assert!(read(&next, &layout).unwrap() == case.expected());
        assert_eq!(device.traffic().down, case.kept());
        drop(next);
        buffer.clear();
        drop((buffer, device));
        session.ends_well();
    }
}

#[test]
fn a_device_that_is_gone_in_the_middle_is_an_error_and_never_a_silence() {
    let Some(driver) = driver() else { return };
    let case = mixed();
    let layout = case.layout();
    let run = |device: &Device| -> Result<Vec<u8>, String> {
        let mut buffer = GradientBuffer::zeros(&layout);
        written_and_read(&case, &mut buffer, &layout, device).map_err(|error| error.to_string())
    };
    let calls = {
        let session = driver.begin(1);
        let device = Device::open(0).unwrap();
        let before = session.count(Count::Calls);
        assert!(run(&device).unwrap() == case.expected());
        session.count(Count::Calls) - before
    };
    assert!(calls > 50, "{calls}");
    let mut failed = 0;
    for call in 0..calls {
        let session = driver.begin(call);
        let device = Device::open(0).unwrap();
        session.plant(Planted::DeviceGone, call);
        match run(&device) {
            Ok(found) => assert!(found == case.expected()),
            Err(words) => {
                failed += 1;
                assert!(words.contains("CUDA_ERROR_ILLEGAL_ADDRESS, it is gone (700)"), "{words}");
            }
        }
    }
    assert!(failed * 2 > calls, "{failed} of {calls}");
}

#[test]
fn a_tensor_of_another_type_or_length_or_twice_or_of_another_device_is_refused() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(4);
    let [device, other] = [(); 2].map(|()| Device::open(0).unwrap());
    let case = Case {
        tensors: vec![(4, false), (4, true)],
        ..mixed()
    };
    let layout = case.layout();
    let f32s = |device: &Device, length| DeviceTensor::<f32>::zeros(device, Stream::Compute, length).unwrap();
    let [four, five, elsewhere] = [f32s(&device, 4), f32s(&device, 5), f32s(&other, 4)];
    let mut buffer = GradientBuffer::zeros(&layout);
    let mut writer = buffer.writer(&layout, WriteMode::Store);
    let refused = |result: Result<(), OnDeviceError>| match result {
        Err(OnDeviceError::Gradient(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(
        refused(writer.write_device(0, &five.view())),
        GradientError::Elements { .. }
    ));
    assert!(matches!(
        refused(writer.write_device(1, &four.view())),
        GradientError::Dtype { .. }
    ));
    assert!(matches!(
        refused(writer.write_device(2, &four.view())),
        GradientError::NoSuchTensor { .. }
    ));
    writer.write_device(0, &four.view()).unwrap();
    assert!(matches!(
        refused(writer.write_device(0, &four.view())),
        GradientError::WrittenTwice(_)
    ));
    drop(writer);
    let mut writer = buffer.writer(&layout, WriteMode::Add);
    assert!(matches!(writer.write_f32(0, &[0.0; 4]), Err(GradientError::LiesElsewhere(_))));
    let mut writer = buffer.writer(&layout, WriteMode::Add);
    let error = writer.write_device(0, &elsewhere.view()).unwrap_err();
    assert!(matches!(error, OnDeviceError::Device(DeviceError::Launch { .. })), "{error}");
    // To be replaced it may lie on another.
    let mut writer = buffer.writer(&layout, WriteMode::Store);
    writer.write_device(0, &elsewhere.view()).unwrap();
    // Of several that are written at once as well.
    let wide = DeviceTensor::<f64>::zeros(&device, Stream::Compute, 4).unwrap();
    let mut writer = buffer.writer(&layout, WriteMode::Store);
    let error = writer
        .write_all_on_device(&[(0, four.view()), (1, elsewhere.view())])
        .unwrap_err();
    assert!(matches!(error, OnDeviceError::Device(DeviceError::Launch { .. })), "{error}");
    writer.write_all_on_device::<f32>(&[]).unwrap();
    writer.write_all_on_device(&[(1, wide.view())]).unwrap();
    assert!(matches!(
        refused(writer.write_all_on_device(&[(0, four.view()), (0, four.view())])),
        GradientError::WrittenTwice(_)
    ));
    drop(writer);
    drop((buffer, four, five, wide, elsewhere, device, other));
    session.ends_well();
}
