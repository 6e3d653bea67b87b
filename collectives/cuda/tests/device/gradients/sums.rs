//! Finished sums on a device.

use sardana_collectives::gradient::{GradientBuffer, GradientError, Sum, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_cuda::device::{Device, DeviceTensor, Stream, Traffic};
use sardana_cuda::gradient::{MeanOnDevice, SumRoom, WriteOnDevice};
use sardana_cuda::parameters::Adam;
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::Step;

use super::super::numbers::Numbers;
use super::super::twin::driver;

fn layout(elements: usize) -> Layout {
    let tensors = vec![
        TensorSpec::new("a", Dtype::F32, &[elements]),
        TensorSpec::new("b", Dtype::F64, &[5]),
    ];
    Layout::new(tensors, 2).unwrap()
}

/// A sum of so many samples, with its two tensors.
fn sum(layout: &Layout, samples: u64, numbers: &mut Numbers) -> (Sum, Vec<f32>, Vec<f64>) {
    let a: Vec<f32> = numbers.all(layout.tensors()[0].elements().unwrap());
    let b: Vec<f64> = numbers.all(5);
    let mut buffer = GradientBuffer::zeros(layout);
    let mut writer = buffer.writer(layout, WriteMode::Store);
    writer.write_f32(0, &a).unwrap();
    writer.write_f64(1, &b).unwrap();
    writer.samples(samples).unwrap();
    writer.finish().unwrap();
    (Sum::from_buffer(Step::ZERO, buffer), a, b)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn a_sum_that_comes_up_is_divided_where_it_is_used_with_the_bits_of_a_mean() {
    let Some(driver) = driver() else { return };
    for seed in 0..30 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let mut numbers = Numbers::new(seed);
        let layout = layout(1 + numbers.below(50) as usize);
        let mut room = SumRoom::new(&device).unwrap();
        let elements = layout.tensors()[0].elements().unwrap();
        let zeros = |device: &Device| DeviceTensor::<f32>::zeros(device, Stream::Compute, elements).unwrap();
        let mut there = [zeros(&device), zeros(&device), zeros(&device)];
        let mut here = [(); 3].map(|()| vec![0.0_f32; elements]);
        for number in 1..4 {
            let (sum, ..) = sum(&layout, 3 + seed, &mut numbers);
            let mean = sum.mean(&layout);
            let adam = Adam {
                number,
                rate: 0.01,
                decay: 0.1,
                betas: [0.9, 0.999],
                epsilon: 1e-8,
                decoupled: seed.is_multiple_of(2),
            };
            let on_device = mean.device_sum(&mut room).unwrap();
            let divisor = mean.divisor().unwrap();
            let [values, means, squares] = &mut there;
            let on = device.on(Stream::Compute);
            on.adam(
                &mut values.view_mut(),
                &mut means.view_mut(),
                &mut squares.view_mut(),
                &on_device.tensor(0).unwrap(),
                adam.moments(divisor as f32, 1.0),
            )
            .unwrap();
            // On the host the mean is divided first.
            let [values, means, squares] = &mut here;
            let divided = mean.f32(0).unwrap();
            sardana_cuda::reference::updates::adam(values, means, squares, &divided, &adam.moments(1.0, 1.0));
        }
        for (there, here) in there.iter().zip(&here) {
            assert_eq!(bits(&there.to_vec().unwrap()), bits(here));
        }
        let up = 3 * layout.tensors_end() as u64;
        assert_eq!(device.traffic(), Traffic { up, down: 0 });
        drop((there, room, device));
        session.ends_well();
    }
}

#[test]
fn a_sum_that_is_added_on_the_device_alone_does_not_come_up() {
    let Some(driver) = driver() else { return };
    for seed in 0..30 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let mut numbers = Numbers::new(seed);
        let layout = layout(9);
        let mut buffer = GradientBuffer::zeros(&layout);
        let shards: [(Vec<f32>, Vec<f64>); 2] = [(); 2].map(|()| (numbers.all(9), numbers.all(5)));
        for (number, (a, b)) in shards.iter().enumerate() {
            let mode = if number == 0 { WriteMode::Store } else { WriteMode::Add };
            let mut writer = buffer.writer(&layout, mode);
            let a = DeviceTensor::from_slice(&device, Stream::Compute, a).unwrap();
            let b = DeviceTensor::from_slice(&device, Stream::Compute, b).unwrap();
            writer.write_device(0, &a.view()).unwrap();
            writer.write_device(1, &b.view()).unwrap();
            writer.samples(1).unwrap();
            writer.finish().unwrap();
        }
        let sum = sardana_collectives::alone::add_up(&layout, Step::ZERO, [buffer]).unwrap();
        let mut room = SumRoom::new(&device).unwrap();
        let mean = sum.mean(&layout);
        let on_device = mean.device_sum(&mut room).unwrap();
        let mut divided = DeviceTensor::<f32>::unset(&device, Stream::Compute, 9).unwrap();
        let on = device.on(Stream::Compute);
        on.mean(&mut divided.view_mut(), &on_device.tensor(0).unwrap(), 2.0).unwrap();
        assert!(matches!(on_device.tensor::<f32>(1), Err(GradientError::Dtype { .. })));
        assert!(matches!(on_device.tensor::<f32>(2), Err(GradientError::NoSuchTensor { .. })));
        assert_eq!(on_device.tensor::<f64>(1).unwrap().len(), 5);
        // Which NaN a division gives is the processor's choice here, and one on a device.
        let canonical = |value: &f32| if value.is_nan() { f32::NAN } else { *value };
        let expected: Vec<f32> = mean.f32(0).unwrap().iter().map(canonical).collect();
        assert_eq!(bits(&divided.to_vec().unwrap()), bits(&expected));
        let down = (9 * 4 + 5 * 8) as u64;
        assert_eq!(device.traffic(), Traffic { up: 0, down });
        let mut buffer = sum.into_buffer();
        buffer.clear();
        drop((divided, room, buffer, device));
        session.ends_well();
    }
}

#[test]
fn a_sum_for_which_there_is_no_memory_is_refused_with_its_size() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(5);
    session.room(300);
    let device = Device::open(0).unwrap();
    let layout = layout(100);
    let (sum, ..) = sum(&layout, 3, &mut Numbers::new(5));
    let mut room = SumRoom::new(&device).unwrap();
    let mean = sum.mean(&layout);
    let error = mean.device_sum(&mut room).unwrap_err().to_string();
    let expected = format!("expected {} bytes of the GPU's memory", layout.tensors_end());
    assert!(error.contains(&expected), "{error}");
    drop((room, device));
    session.ends_well();
}
