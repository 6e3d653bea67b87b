//! Memory of gradients and sums that the driver is told of: what crosses goes from where it lies to where it is to be, and nothing else of the host copies it.

use sardana_collectives::gradient::{GradientBuffer, Sum, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_cuda::device::{Device, DeviceTensor, Stream};
use sardana_cuda::gradient::{MeanOnDevice, SumRoom, WriteOnDevice};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::Step;
use sardana_twins::{Count, Planted, Session};

use super::super::numbers::Numbers;
use super::super::twin::driver;
use super::ranks::Ranks;

/// More than a MiB.
const ELEMENTS: usize = 300_001;

fn layout(elements: usize) -> Layout {
    Layout::new(vec![TensorSpec::new("all", Dtype::F32, &[elements])], 0).unwrap()
}

fn sum(layout: &Layout, values: &[f32], buffer: GradientBuffer) -> Sum {
    let mut buffer = buffer;
    let mut writer = buffer.writer(layout, WriteMode::Store);
    writer.write_f32(0, values).unwrap();
    writer.samples(3).unwrap();
    writer.finish().unwrap();
    Sum::from_buffer(Step::ZERO, buffer)
}

/// Ranks of one host with so many shards each, of which one has a device, or each.
fn ranks(shards: &[u32], with_devices: Option<usize>) -> Ranks {
    Ranks {
        tensors: vec![(ELEMENTS, false)],
        shards: shards.to_vec(),
        joined: false,
        shared_memory: true,
        with_devices,
        ..Ranks::small(1)
    }
}

/// Copies that a sum takes on its way up, which has the bits that it had.
fn copies(session: &Session<'_>, elements: usize, memory: fn(&Layout) -> GradientBuffer) -> u64 {
    let (device, layout) = (Device::open(0).unwrap(), layout(elements));
    let mut room = SumRoom::new(&device).unwrap();
    let mut buffer = memory(&layout);
    let mut found = 0;
    for seed in 0..3 {
        let values: Vec<f32> = Numbers::new(seed).all(elements);
        let sum = sum(&layout, &values, buffer);
        let before = session.count(Count::Copies);
        let there = sum.mean(&layout);
        let there = there.device_sum(&mut room).unwrap();
        found = session.count(Count::Copies) - before;
        // The next sum is written there before anything else is asked of the device.
        let mut copy = DeviceTensor::<f32>::unset(&device, Stream::Compute, elements).unwrap();
        let on = device.on(Stream::Compute);
        on.copy(&mut copy.view_mut(), &there.tensor(0).unwrap()).unwrap();
        buffer = sum.into_buffer();
        buffer.clear();
        let same = copy
            .to_vec()
            .unwrap()
            .iter()
            .zip(&values)
            .all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{seed}");
    }
    drop((buffer, room, device));
    found
}

#[test]
fn a_finished_sum_goes_up_from_where_it_lies() {
    let Some(driver) = driver() else { return };
    for seed in 0..3 {
        for memory in [GradientBuffer::zeros, GradientBuffer::in_pages] {
            let session = driver.begin(seed);
            assert_eq!(copies(&session, ELEMENTS, memory), 1, "at once");
            session.ends_well();
        }
    }
}

#[test]
fn what_the_driver_is_not_told_of_goes_up_through_pinned_memory() {
    let Some(driver) = driver() else { return };
    // A small one has no place of its own.
    let parts = (4 * ELEMENTS).div_ceil(1 << 20) as u64;
    let in_pages = GradientBuffer::in_pages as fn(&Layout) -> GradientBuffer;
    for (elements, refuses, memory, expected) in
        [(1_000, false, in_pages, 1), (ELEMENTS, true, GradientBuffer::zeros, parts)]
    {
        let session = driver.begin(1);
        if refuses {
            session.plant(Planted::RefuseRegister, 0);
        }
        assert_eq!(copies(&session, elements, memory), expected);
        session.ends_well();
    }
}

#[test]
fn what_comes_down_goes_where_it_is_to_be() {
    let Some(driver) = driver() else { return };
    for seed in 0..3 {
        let session = driver.begin(seed);
        let (device, layout) = (Device::open(0).unwrap(), layout(ELEMENTS));
        let values: Vec<f32> = Numbers::new(seed).all(ELEMENTS);
        let there = DeviceTensor::from_slice(&device, Stream::Compute, &values).unwrap();
        // The first stays on the device, the other one is spilled.
        device.keep_gradients_within(layout.bytes() as u64);
        let mut buffers = [(); 2].map(|()| GradientBuffer::zeros(&layout));
        for buffer in &mut buffers {
            let mut writer = buffer.writer(&layout, WriteMode::Store);
            writer.write_device(0, &there.view()).unwrap();
            writer.samples(1).unwrap();
            writer.finish().unwrap();
        }
        assert_eq!(session.count(Count::Down), 4 * ELEMENTS as u64, "the one that is spilled");
        for buffer in &mut buffers {
            buffer.lower().unwrap();
            let found: &[f32] = bytemuck::cast_slice(&buffer.bytes()[..4 * ELEMENTS]);
            assert!(found.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
        assert_eq!(session.count(Count::Down), 8 * ELEMENTS as u64);
        assert_eq!(device.pinned().held, 0, "nothing passes other memory");
        drop((buffers, there, device));
        session.ends_well();
    }
}

#[test]
fn what_is_added_to_on_the_host_passes_pinned_memory() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(7);
    let (device, layout) = (Device::open(0).unwrap(), layout(ELEMENTS));
    device.keep_gradients_within(0);
    let ones = DeviceTensor::from_slice(&device, Stream::Compute, &vec![1.0_f32; ELEMENTS]).unwrap();
    let mut buffer = GradientBuffer::zeros(&layout);
    for mode in [WriteMode::Store, WriteMode::Add] {
        let mut writer = buffer.writer(&layout, mode);
        writer.write_device(0, &ones.view()).unwrap();
        writer.samples(1).unwrap();
        writer.finish().unwrap();
    }
    let found: &[f32] = bytemuck::cast_slice(&buffer.bytes()[..4 * ELEMENTS]);
    assert!(found.iter().all(|value| *value == 2.0));
    assert_eq!(device.pinned().held, 2 << 20);
    drop((buffer, ones, device));
    session.ends_well();
}

#[test]
fn a_sum_that_is_borrowed_goes_up_from_where_its_owner_has_it() {
    let Some(driver) = driver() else { return };
    for seed in 0..3 {
        let session = driver.begin(seed);
        let ranks = ranks(&[1, 1], Some(0));
        // The rank that has a device begins the sum, which comes down in parts of 1 MiB and a last one; the other rank finishes it.
        let down = (4 * ELEMENTS).div_ceil(1 << 20) as u64 + 1;
        ranks.check();
        assert_eq!((session.count(Count::ReadOnly), session.count(Count::Copies)), (1, down + 1));
        session.ends_well();
    }
}

#[test]
fn a_sum_that_is_finished_comes_down_to_where_it_is_to_be() {
    let Some(driver) = driver() else { return };
    for seed in 0..3 {
        let session = driver.begin(seed);
        let ranks = ranks(&[1, 1], Some(1));
        let sum = ranks.layout().bytes() as u64;
        ranks.check();
        // Slots of 1 MiB, and the sum.
        let slots = session.count(Count::Registered) - sum;
        assert!(slots > 0 && slots.is_multiple_of(1 << 20), "{slots}");
        session.ends_well();
    }
}

#[test]
fn a_running_sum_comes_up_from_where_the_rank_before_has_it() {
    let Some(driver) = driver() else { return };
    // Of two parts and a last one; the first, which is a chunk, is received before it is known where it goes. The driver refuses some memory: that which is asked about as number `refused`, on whichever rank.
    for refused in [0, 1, 3, 5].map(Some).into_iter().chain([None; 2]) {
        let session = driver.begin(refused.unwrap_or(0));
        if let Some(number) = refused {
            session.plant(Planted::RefuseRegister, number);
        }
        let ranks = ranks(&[1, 2, 1], None);
        let crossed = ranks.check();
        assert_eq!(crossed, ranks.crosses());
        if refused.is_none() {
            // Two ranks read a slot of the rank before, and one the sum.
            assert_eq!(session.count(Count::ReadOnly), 3);
        }
        session.ends_well();
    }
}

#[test]
fn what_lies_in_memory_that_the_driver_knows_is_read_when_a_copy_from_there_returns() {
    let Some(driver) = driver() else { return };
    for seed in 0..3 {
        let session = driver.begin(seed);
        let (device, layout) = (Device::open(0).unwrap(), layout(ELEMENTS));
        let values: Vec<f32> = Numbers::new(seed).all(ELEMENTS);
        let sum = sum(&layout, &values, GradientBuffer::zeros(&layout));
        let mut room = SumRoom::new(&device).unwrap();
        let _ = sum.mean(&layout).device_sum(&mut room).unwrap();
        let there = DeviceTensor::from_slice(&device, Stream::Compute, &sum.bytes()[..4 * ELEMENTS]).unwrap();
        sum.into_buffer().clear();
        assert!(there.to_vec().unwrap() == bytemuck::cast_slice::<f32, u8>(&values));
        drop((there, room, device));
        session.ends_well();
    }
}
