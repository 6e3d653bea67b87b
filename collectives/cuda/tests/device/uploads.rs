//! Values that go up batch by batch.

use sardana_cuda::device::{Device, DeviceTensor, Stream, Uploads};
use sardana_twins::Count;

use super::twin::driver;
use crate::numbers::Numbers;

/// Batches of different sizes, one of them of nothing.
const SIZES: [usize; 6] = [9, 33, 20, 0, 70, 33];

#[test]
fn batches_arrive_as_they_were_however_many_are_on_their_way() {
    let Some(driver) = driver() else { return };
    for seed in 0..60 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let (mut uploads, mut numbers) = (Uploads::new(&device, 1 + seed as usize % 3), Numbers::new(seed));
        let mut sent = Vec::new();
        for size in SIZES {
            let mut values: Vec<f32> = numbers.all(size);
            let mut there = DeviceTensor::unset(&device, Stream::Compute, size).unwrap();
            uploads.up(Stream::Compute, &values, &mut there.view_mut()).unwrap();
            sent.push((there, values.clone()));
            // They may be changed.
            values.fill(7.0);
        }
        for (there, values) in sent {
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(there.to_vec().unwrap()), bits(values));
        }
        drop((uploads, device));
        session.ends_well();
    }
}

#[test]
fn the_host_waits_for_the_room_that_it_needs_and_for_nothing_else() {
    let Some(driver) = driver() else { return };
    let mut waits = [0; 2];
    for seed in 0..40 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let mut uploads = Uploads::new(&device, 2);
        let mut there = DeviceTensor::<u32>::unset(&device, Stream::Compute, 9).unwrap();
        for batch in 0..3 {
            let before = session.count(Count::HostWaits);
            uploads.up(Stream::Compute, &[batch; 9], &mut there.view_mut()).unwrap();
            waits[usize::from(batch == 2)] += session.count(Count::HostWaits) - before;
        }
        let held = device.pinned().held;
        uploads.up(Stream::Compute, &[3; 9], &mut there.view_mut()).unwrap();
        assert_eq!(device.pinned().held, held, "rooms are used again");
        assert_eq!(there.to_vec().unwrap(), [3; 9]);
        drop((uploads, there, device));
        session.ends_well();
    }
    assert_eq!(waits[0], 0);
    assert!(waits[1] > 0, "the device was never behind");
}
