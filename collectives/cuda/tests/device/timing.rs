//! The device's clock, and copies within its memory.

use sardana_cuda::device::{Device, DeviceTensor, Stream};

use super::twin::driver;

#[test]
fn times_of_a_stream_follow_one_another_and_add_up() {
    let Some(driver) = driver() else { return };
    for seed in 0..8 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let mut times = Vec::new();
        for _ in 0..3 {
            let _ = DeviceTensor::<u64>::zeros(&device, Stream::Copies, 100).unwrap();
            times.push(device.time(Stream::Copies).unwrap());
        }
        let between = |from: usize, to: usize| device.between(&times[from], &times[to]).unwrap();
        let (parts, whole) = (between(0, 1) + between(1, 2), between(0, 2));
        assert!(whole > between(1, 2).min(between(0, 1)) && !whole.is_zero());
        // Each is told in milliseconds, as an f32.
        assert!(parts.abs_diff(whole).as_secs_f64() <= 1e-6 * whole.as_secs_f64().max(1e-6));
        assert!(between(2, 0).is_zero(), "it was before");
        drop((times, device));
        session.ends_well();
    }
}

#[test]
fn copies_within_a_device_have_the_same_bits_and_follow_what_was_enqueued_before() {
    let Some(driver) = driver() else { return };
    for seed in 0..8 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        for stream in [Stream::Compute, Stream::Copies] {
            let from = DeviceTensor::from_slice(&device, stream, &[f32::NAN, -0.0, 3.0, 4.0, 5.0]).unwrap();
            let mut to = DeviceTensor::<f32>::zeros(&device, stream, 4).unwrap();
            device.on(stream).copy(&mut to.part_mut(1..4), &from.part(0..3)).unwrap();
            device.on(stream).copy(&mut to.part_mut(0..0), &from.part(5..5)).unwrap();
            let found: Vec<u32> = to.to_vec().unwrap().into_iter().map(f32::to_bits).collect();
            assert_eq!(found, [0.0, f32::NAN, -0.0, 3.0].map(f32::to_bits));
        }
        drop(device);
        session.ends_well();
    }
}

#[test]
fn what_is_free_is_what_is_not_held() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(1);
    session.room(10_000);
    let device = Device::open(0).unwrap();
    let free = device.free_memory().unwrap();
    let tensor = DeviceTensor::<u8>::zeros(&device, Stream::Compute, 3_000).unwrap();
    assert_eq!(device.free_memory().unwrap(), free - 3_000);
    drop(tensor);
    device.synchronize().unwrap();
    assert_eq!(device.free_memory().unwrap(), free);
    drop(device);
    session.ends_well();
}
