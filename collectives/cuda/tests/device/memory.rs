//! Memory of a device and of the host: what is in it, what it costs, and who frees it.

use sardana_cuda::device::{
    Device, DeviceError, DeviceTensor, MemoryKind, MemoryUse, OtherStream, Pinned, RawMemory, SharedTensor, Stream,
    Transfer, View, ViewMut,
};
use sardana_twins::Left;

use super::twin::driver;

#[test]
fn what_is_put_on_the_device_comes_back() {
    let Some(driver) = driver() else { return };
    for seed in 0..8 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        for home in [Stream::Compute, Stream::Copies] {
            let tensor = DeviceTensor::from_slice(&device, home, &[1.5_f32, f32::NEG_INFINITY, -0.0]).unwrap();
            assert_eq!((tensor.len(), tensor.is_empty()), (3, false));
            let found: Vec<u32> = tensor.to_vec().unwrap().into_iter().map(f32::to_bits).collect();
            assert_eq!(found, [1.5_f32, f32::NEG_INFINITY, -0.0].map(f32::to_bits));
            assert_eq!(
                DeviceTensor::<u64>::zeros(&device, home, 5).unwrap().to_vec().unwrap(),
                [0; 5]
            );
            let empty = DeviceTensor::<f64>::from_slice(&device, home, &[]).unwrap();
            assert!(empty.is_empty() && empty.to_vec().unwrap().is_empty());
            assert!(
                DeviceTensor::<u8>::zeros(&device, home, 0)
                    .unwrap()
                    .to_vec()
                    .unwrap()
                    .is_empty()
            );
        }
        drop(device);
        session.ends_well();
    }
}

#[test]
fn pinned_memory_goes_up_and_down_in_parts() {
    let Some(driver) = driver() else { return };
    for seed in 0..20 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let mut memory = Pinned::<u32>::zeros(&device, 6).unwrap();
        assert_eq!(
            (memory.len(), memory.is_empty(), memory.read().unwrap()),
            (6, false, &[0_u32; 6][..])
        );
        memory.write().unwrap().copy_from_slice(&[1, 2, 3, 4, 5, 6]);
        let mut tensor = DeviceTensor::<u32>::zeros(&device, Stream::Copies, 4).unwrap();
        memory.copy_up(Stream::Copies, 2..5, &mut tensor, 1).unwrap();
        // Behind the copy up, whatever stream it is on.
        device.wait_for(Stream::Compute, Stream::Copies).unwrap();
        memory.copy_down(Stream::Compute, &tensor, 0, 0..4).unwrap();
        assert_eq!(memory.read().unwrap(), [0, 3, 4, 5, 5, 6]);
        let traffic = device.traffic();
        assert_eq!((traffic.up, traffic.down), (12, 16));
        drop((tensor, memory, device));
        session.ends_well();
    }
}

#[test]
fn memory_is_counted_and_what_is_beyond_the_limit_is_refused() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(1);
    let device = Device::open_within(0, 1_000).unwrap();
    let first = DeviceTensor::<f32>::unset(&device, Stream::Compute, 200).unwrap();
    let refused = DeviceTensor::<f32>::unset(&device, Stream::Compute, 51).unwrap_err();
    let expected = DeviceError::Memory {
        kind: MemoryKind::Device,
        asked: 204,
        held: 800,
        left: 200,
    };
    assert_eq!(refused, expected);
    assert!(
        refused
            .to_string()
            .starts_with("expected 204 bytes of the GPU's memory, found that 800 are held and 200 are left")
    );
    drop(first);
    let second = DeviceTensor::<u8>::unset(&device, Stream::Compute, 1_000).unwrap();
    let found = MemoryUse {
        held: 1_000,
        peak: 1_000,
        asked: 2_004,
        refused: 1,
        refused_bytes: 204,
    };
    assert_eq!(device.memory(), found);
    let pinned = Pinned::<u8>::zeros(&device, 7).unwrap();
    assert_eq!((device.pinned().held, device.pinned().peak), (7, 7));
    // A length that no memory has.
    let beyond = DeviceTensor::<f64>::unset(&device, Stream::Compute, usize::MAX).unwrap_err();
    assert!(matches!(beyond, DeviceError::Memory { asked: u64::MAX, .. }));
    drop((second, pinned));
    assert_eq!((device.memory().held, device.pinned().held), (0, 0));
    drop(device);
    session.ends_well();
}

#[test]
fn a_device_that_is_full_says_so_and_is_of_use_afterwards() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(2);
    session.room(1_000);
    let device = Device::open(0).unwrap();
    let first = DeviceTensor::<u8>::zeros(&device, Stream::Compute, 700).unwrap();
    let refused = DeviceTensor::<u8>::zeros(&device, Stream::Compute, 400).unwrap_err();
    let expected = DeviceError::Memory {
        kind: MemoryKind::Device,
        asked: 400,
        held: 700,
        left: 300,
    };
    assert_eq!(refused, expected);
    assert_eq!((device.memory().held, device.memory().refused), (700, 1));
    assert_eq!(first.to_vec().unwrap(), [0; 700]);
    drop((first, device));
    session.ends_well();
}

#[test]
fn what_is_not_given_back_is_counted() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(3);
    let device = Device::open(0).unwrap();
    let tensor = DeviceTensor::from_slice(&device, Stream::Compute, &[1_u8]).unwrap();
    device.synchronize().unwrap();
    assert_eq!(
        session.left(),
        Left {
            buffers: 1,
            streams: 3,
            contexts: 1,
            ..Left::default()
        }
    );
    let clone = device.clone();
    assert!(clone == device && clone != Device::open(0).unwrap());
    drop((tensor, device, clone));
    session.ends_well();
}

#[test]
fn memory_of_another_library_is_used_and_not_freed() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(4);
    let device = Device::open(0).unwrap();
    let owner = DeviceTensor::from_slice(&device, Stream::Compute, &[1.0_f32, 2.0, 3.0]).unwrap();
    let held = device.memory().held;
    let address = owner.part(1..3).address();
    #[expect(unsafe_code, reason = "what another library promises")]
    // SAFETY: the owner has two elements from there on, and outlives this.
    let memory = unsafe { RawMemory::<f32>::new(address, 2) };
    let mut own = DeviceTensor::from_raw(&device, Stream::Compute, memory);
    let shard = DeviceTensor::from_slice(&device, Stream::Compute, &[10.0_f32, 20.0]).unwrap();
    device.on(Stream::Compute).add(&mut own.view_mut(), &[shard.view()]).unwrap();
    assert_eq!(device.memory().held, held + 8);
    drop((own, shard));
    assert_eq!(owner.to_vec().unwrap(), [1.0, 12.0, 23.0]);
    drop((owner, device));
    session.ends_well();
}

#[test]
fn a_stream_of_another_library_becomes_that_of_computing() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(6);
    let context = cudarc::driver::CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let device = Device::beside(stream).unwrap();
    assert!(!context.is_event_tracking());
    let tensor = DeviceTensor::from_slice(&device, Stream::Compute, &[7_u32]).unwrap();
    assert_eq!(tensor.to_vec().unwrap(), [7]);
    drop((tensor, device, context));
    session.ends_well();
}

#[test]
fn memory_of_its_stream_is_read_and_written_where_it_lies() {
    let Some(driver) = driver() else { return };
    for seed in 0..8 {
        let session = driver.begin(seed);
        let context = cudarc::driver::CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let device = Device::beside(stream.clone()).unwrap();
        let held = device.memory().held;
        let mut sum = stream.clone_htod(&[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
        let shard = stream.clone_htod(&[10.0_f32, 20.0, 30.0]).unwrap();
        assert_eq!(device.memory().held, held, "it is not counted");
        let read = View::beside(&device, &shard, 1..3).unwrap();
        let mut written = ViewMut::beside(&device, &mut sum, 2..4).unwrap();
        assert_eq!((read.len(), written.read().len()), (2, 2));
        device.on(Stream::Compute).add(&mut written, &[read]).unwrap();
        // Both are freed in the stream's order.
        drop(shard);
        assert_eq!(stream.clone_dtoh(&sum).unwrap(), [1.0, 2.0, 23.0, 34.0]);
        let other = context.new_stream().unwrap();
        let mut elsewhere = other.clone_htod(&[1.0_f32]).unwrap();
        assert_eq!(View::beside(&device, &elsewhere, 0..1).unwrap_err(), OtherStream);
        assert_eq!(ViewMut::beside(&device, &mut elsewhere, 0..1).unwrap_err(), OtherStream);
        drop((elsewhere, other, sum, device, stream, context));
        session.ends_well();
    }
}

#[test]
fn any_thread_may_use_a_device_and_give_its_memory_back() {
    let Some(driver) = driver() else { return };
    for seed in 0..8 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let shard = DeviceTensor::from_slice(&device, Stream::Compute, &[1.0_f32, 2.0]).unwrap();
        let sums = std::thread::scope(|scope| {
            let add = |start: f32| {
                let mut sum = DeviceTensor::from_slice(&device, Stream::Compute, &[start; 2]).unwrap();
                device.on(Stream::Compute).add(&mut sum.view_mut(), &[shard.view()]).unwrap();
                let mut pinned = Pinned::zeros(&device, 2).unwrap();
                pinned.copy_down(Stream::Compute, &sum, 0, 0..2).unwrap();
                pinned.read().unwrap().to_vec()
            };
            let threads = [10.0, 20.0].map(|start| scope.spawn(move || add(start)));
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(sums, [[11.0, 12.0], [21.0, 22.0]]);
        std::thread::spawn(move || drop((shard, device))).join().unwrap();
        session.ends_well();
    }
}

/// Numbers, in more parts than are under way at once, the last of which is short.
fn long() -> Vec<f32> {
    (0..700_001).map(|number| number as f32).collect()
}

#[test]
fn values_of_any_length_pass_through_memory_of_one_size() {
    let Some(driver) = driver() else { return };
    for seed in 0..6 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let (values, mut transfer) = (long(), Transfer::new(&device).unwrap());
        let pinned = device.pinned().held;
        let mut there = DeviceTensor::from_slice(&device, Stream::Compute, &vec![1.0_f32; values.len()]).unwrap();
        transfer.up(&values, &mut there.view_mut()).unwrap();
        // In the order of the stream: behind what was enqueued, and before what is.
        let one = DeviceTensor::from_slice(&device, Stream::Compute, &vec![1.0_f32; values.len()]).unwrap();
        let add = |there: &mut DeviceTensor<f32>| {
            device.on(Stream::Compute).add(&mut there.view_mut(), &[one.view()]).unwrap();
        };
        add(&mut there);
        transfer
            .change(&mut there.view_mut(), |found| {
                assert!(
                    found.iter().zip(&values).all(|(found, value)| *found == value + 1.0),
                    "seed {seed}"
                );
                found.iter_mut().for_each(|value| *value *= 2.0);
            })
            .unwrap();
        add(&mut there);
        let found = there.to_vec().unwrap();
        assert!(
            found.iter().zip(&values).all(|(found, value)| *found == 2.0 * value + 3.0),
            "seed {seed}"
        );
        transfer.up::<f32>(&[], &mut there.part_mut(3..3)).unwrap();
        assert_eq!(device.pinned().peak, pinned, "as much memory as it began with");
        drop((transfer, there, one, device));
        session.ends_well();
    }
}

#[test]
fn a_tensor_that_is_lent_is_copied_before_it_is_changed_and_only_then() {
    let Some(driver) = driver() else { return };
    for seed in 0..6 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let (values, mut transfer) = (long(), Transfer::new(&device).unwrap());
        let there = |values: &[f32]| DeviceTensor::from_slice(&device, Stream::Compute, values).unwrap();
        let mut tensor = SharedTensor::new(there(&values));
        let one = there(&vec![1.0; values.len()]);
        let add = |tensor: &mut SharedTensor<f32>| {
            let mut all = tensor.change().unwrap().view_mut();
            device.on(Stream::Compute).add(&mut all, &[one.view()]).unwrap();
        };
        add(&mut tensor);
        let (address, held) = (tensor.tensor().view().address(), device.memory().held);
        let lent = tensor.lend(&device.record(Stream::Compute).unwrap());
        let reading = std::thread::spawn(move || (lent.part_to_vec(699_999..700_001, &mut transfer), lent, transfer));
        add(&mut tensor);
        add(&mut tensor);
        let (part, lent, mut transfer) = reading.join().unwrap();
        assert_eq!(part.unwrap(), [700_000.0, 700_001.0], "seed {seed}");
        assert_ne!(tensor.tensor().view().address(), address);
        assert_eq!(device.memory().held, held + 4 * values.len() as u64, "there are two");
        let found = lent.to_vec(&mut transfer).unwrap();
        assert!(
            found.iter().zip(&values).all(|(found, value)| *found == value + 1.0),
            "seed {seed}"
        );
        drop(lent);
        let address = tensor.tensor().view().address();
        add(&mut tensor);
        assert_eq!((tensor.tensor().view().address(), device.memory().held), (address, held));
        let found = tensor.tensor().to_vec().unwrap();
        assert!(
            found.iter().zip(&values).all(|(found, value)| *found == value + 4.0),
            "seed {seed}"
        );
        drop((tensor, one, transfer, device));
        session.ends_well();
    }
}
