//! Shards that are enqueued on a device one behind the other, as the training thread has them, and what is found of each there.

use sardana_collectives::gradient::{Enqueued, GradientBuffer, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_cuda::device::{Device, DeviceError, Pinned, Stream};
use sardana_twins::Count;

use super::super::twin::driver;
use super::shards::{Case, From, computed};
use crate::numbers::Numbers;

/// Enqueues one shard, whose auxiliary sum is found on the device.
fn enqueue(
    case: &Case,
    (number, froms): (usize, &[From]),
    numbers: &mut Numbers,
    (buffer, layout): (&mut GradientBuffer, &Layout),
    device: &Device,
) -> Enqueued {
    let mode = if number == 0 { WriteMode::Store } else { WriteMode::Add };
    let found = computed(device, &[number as f64]).unwrap();
    let mut room = Pinned::<f64>::zeros(device, 1).unwrap();
    room.copy_down(Stream::Compute, &found, 0, 0..1).unwrap();
    let mut writer = buffer.writer(layout, mode);
    case.write_shard((number, froms), numbers, &mut writer, Some(device)).unwrap();
    let find = move |sums: &mut [f64]| {
        sums.copy_from_slice(room.read()?);
        Ok::<_, DeviceError>(())
    };
    writer.auxiliary_later(find).unwrap();
    writer.enqueue().unwrap()
}

#[test]
fn shards_of_which_the_next_is_enqueued_before_one_is_there_have_the_bits_of_shards_that_are_waited_for() {
    let Some(driver) = driver() else { return };
    for seed in 0..200 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let case = Case::any(seed);
        let layout = case.layout();
        if seed % 3 == 0 {
            device.keep_gradients_within(0);
        }
        let mut buffer = GradientBuffer::zeros(&layout);
        // The second gradient uses the memory of the first.
        for round in 0..2 {
            let case = Case {
                seed: seed + round,
                ..case.clone()
            };
            let (mut numbers, mut before) = (case.numbers(), None::<Enqueued>);
            for (number, shard) in case.shards.iter().enumerate() {
                let next = shard.as_deref().map(|froms| {
                    let into = (&mut buffer, &layout);
                    enqueue(&case, (number, froms), &mut numbers, into, &device)
                });
                if let Some(before) = before {
                    before.settle(&mut buffer, &layout).unwrap();
                }
                if next.is_none() {
                    buffer.writer(&layout, WriteMode::Add).zero().unwrap();
                }
                before = next;
            }
            if let Some(last) = before {
                last.settle(&mut buffer, &layout).unwrap();
            }
            drop(buffer.complete());
            buffer.lower().unwrap();
            assert!(buffer.bytes() == case.expected(), "{case:?}");
        }
        drop((buffer, device));
        session.ends_well();
    }
}

#[test]
fn a_shard_is_there_while_the_one_behind_it_is_computed() {
    let Some(driver) = driver() else { return };
    let mut waits = [0; 2];
    for seed in 0..40 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let froms = vec![From::Device; 2];
        let case = Case {
            tensors: vec![(40, false), (33, false)],
            shards: vec![Some(froms.clone()); 2],
            at_once: true,
            seed,
        };
        let layout = case.layout();
        let (mut buffer, mut numbers) = (GradientBuffer::zeros(&layout), case.numbers());
        let both = [0, 1].map(|number| {
            let into = (&mut buffer, &layout);
            enqueue(&case, (number, &froms), &mut numbers, into, &device)
        });
        for (enqueued, waits) in both.into_iter().zip(&mut waits) {
            let before = session.count(Count::HostWaits);
            assert!(!enqueued.is_there());
            enqueued.settle(&mut buffer, &layout).unwrap();
            *waits += session.count(Count::HostWaits) - before;
        }
        drop(buffer.complete());
        buffer.lower().unwrap();
        assert!(buffer.bytes() == case.expected());
        drop((buffer, device));
        session.ends_well();
    }
    assert!(waits[0] > 0, "the device was never behind");
    assert!(waits[1] > 0, "who waits for one shard waits for no other");
}
