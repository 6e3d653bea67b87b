//! A device that fails, and calls that do not fit.

use half::bf16;
use sardana_cuda::device::{Device, DeviceError, DeviceTensor, Stream};
use sardana_cuda::driver::{Absent, Driver};
use sardana_cuda::reference::dense::Sizes;
use sardana_twins::{Count, Planted};

use super::twin::driver;

#[test]
fn the_first_failure_is_what_every_later_call_says() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(2);
    let device = Device::open(0).unwrap();
    let mut tensor = DeviceTensor::from_slice(&device, Stream::Compute, &[1.0_f32]).unwrap();
    session.plant(Planted::DeviceGone, 0);
    let first = device.synchronize().unwrap_err();
    assert!(
        matches!(
            first,
            DeviceError::Failed {
                during: "finish what was enqueued",
                code: 700,
                ..
            }
        ),
        "{first}"
    );
    assert_eq!(tensor.to_vec().unwrap_err(), first);
    assert_eq!(device.record(Stream::Copies).unwrap_err(), first);
    assert_eq!(DeviceTensor::<f32>::zeros(&device, Stream::Compute, 1).unwrap_err(), first);
    assert_eq!(
        device
            .on(Stream::Compute)
            .add::<f32>(&mut tensor.view_mut(), &[])
            .unwrap_err(),
        first
    );
    // What could not be had is not held.
    assert_eq!(device.memory().held, 4);
}

#[test]
fn a_gpu_that_there_is_not_is_refused() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(3);
    let expected = DeviceError::Absent(Absent::Ordinal { asked: 1, found: 1 });
    assert_eq!(Device::open(1).unwrap_err(), expected);
    let found = Driver::of_this_machine().unwrap();
    assert_eq!((found.devices(), found.version().to_string()), (1, "12.8".to_owned()));
    session.ends_well();
}

/// Tensors on a device, and one on another.
struct Tensors {
    device: Device,
    four: DeviceTensor<f32>,
    five: DeviceTensor<f32>,
    bytes: DeviceTensor<u8>,
    elsewhere: DeviceTensor<f32>,
}

/// Each of these calls is refused in these words, and nothing is enqueued.
fn are_refused(calls: impl Fn(&mut Tensors) -> Vec<(Result<(), DeviceError>, &'static str)>) {
    let Some(driver) = driver() else { return };
    let session = driver.begin(4);
    let [device, other] = [(); 2].map(|()| Device::open(0).unwrap());
    let tensor = |device: &Device, length| DeviceTensor::<f32>::zeros(device, Stream::Compute, length).unwrap();
    let mut tensors = Tensors {
        four: tensor(&device, 4),
        five: tensor(&device, 5),
        bytes: DeviceTensor::zeros(&device, Stream::Compute, 20).unwrap(),
        elsewhere: tensor(&other, 4),
        device,
    };
    for (result, words) in calls(&mut tensors) {
        let error = result.unwrap_err();
        assert!(
            matches!(error, DeviceError::Launch { .. }) && error.to_string().contains(words),
            "{error}"
        );
    }
    assert_eq!(session.count(Count::Launches), 0);
    drop((tensors, other));
    session.ends_well();
}

#[test]
fn sums_and_conversions_of_other_lengths_or_devices_are_refused() {
    are_refused(
        |Tensors {
             device,
             four,
             five,
             elsewhere,
             ..
         }| {
            let on = device.on(Stream::Compute);
            let mut halves = DeviceTensor::<bf16>::zeros(device, Stream::Compute, 4).unwrap();
            vec![
                (
                    on.add(&mut four.view_mut(), &[five.view()]),
                    "expected 4 elements for the kernel sum_f32, found 5",
                ),
                (
                    on.add(&mut four.view_mut(), &[elsewhere.view()]),
                    "expected memory of the device that it runs on",
                ),
                (on.mean(&mut four.view_mut(), &five.view(), 1.0), "mean_f32"),
                (on.narrow(&mut halves.view_mut(), &five.view()), "narrow_bf16"),
            ]
        },
    );
}

#[test]
fn tables_of_tensors_that_have_no_place_are_refused() {
    are_refused(
        |Tensors {
             device,
             four,
             five,
             bytes,
             ..
         }| {
            let on = device.on(Stream::Compute);
            let large = DeviceTensor::<u8>::unset(device, Stream::Compute, (1 << 20) + 1).unwrap();
            let mut hash = DeviceTensor::<u8>::unset(device, Stream::Compute, 33).unwrap();
            let mut norms = DeviceTensor::unset(device, Stream::Compute, 2).unwrap();
            let mut terms = DeviceTensor::unset(device, Stream::Compute, 3).unwrap();
            vec![
                (
                    on.pack(&mut bytes.view_mut(), &[(4, five.view())], false),
                    "a place within 20 bytes",
                ),
                (on.pack(&mut bytes.view_mut(), &[(1, four.view())], false), "multiples of 4"),
                (
                    on.pack(&mut bytes.view_mut(), &[(0, four.view()), (12, five.part(0..1))], true),
                    "a place from 16 on",
                ),
                (
                    on.pack(&mut bytes.view_mut(), &[(u64::MAX - 3, four.view())], true),
                    "a place within 20 bytes",
                ),
                (on.squares(&mut norms.view_mut(), &[four.view()], 1.0), "squares"),
                (on.tree_sums(&mut norms.view_mut(), &mut [terms.view_mut()]), "tree_sums"),
                (
                    on.hash_pieces(&mut hash.part_mut(0..32), &[large.view()]),
                    "a piece of at most 1048576 bytes",
                ),
                (on.hash_pieces(&mut hash.part_mut(1..33), &[bytes.view()]), "a multiple of 4"),
                (on.hash_pieces(&mut hash.view_mut(), &[bytes.view()]), "expected 32 elements"),
            ]
        },
    );
}

#[test]
fn layers_of_other_shapes_are_refused() {
    are_refused(|Tensors { device, four, five, .. }| {
        let on = device.on(Stream::Compute);
        let sizes = Sizes {
            batch: 2,
            outputs: 2,
            inputs: 2,
        };
        let rows = Sizes {
            batch: 1 << 30,
            outputs: 0,
            ..sizes
        };
        let none = [five.part(0..0), five.part(0..0)];
        let mut short = DeviceTensor::unset(device, Stream::Compute, 0).unwrap();
        vec![
            (
                on.dense_backward_biases(&mut four.view_mut(), &five.view(), sizes),
                "expected 2 elements",
            ),
            (
                on.dense_forward(&mut four.view_mut(), [&five.view(), &five.view(), &five.view()], sizes),
                "dense_forward",
            ),
            (
                on.dense_backward_inputs(&mut short.view_mut(), [&none[0], &none[1]], rows),
                "expected 2147483648 elements",
            ),
            (
                on.dense_forward(&mut four.view_mut(), [&five.view(); 3], Sizes { batch: 1 << 40, ..sizes }),
                "sizes below 2^32",
            ),
        ]
    });
}

#[test]
fn scores_that_are_no_rows_for_their_labels_are_refused() {
    are_refused(|Tensors { device, four, five, .. }| {
        let on = device.on(Stream::Compute);
        let labels = |count| DeviceTensor::<u32>::zeros(device, Stream::Compute, count).unwrap();
        let (mut out, two, none) = (labels(3), labels(2), labels(0));
        vec![
            (
                on.distances(&mut five.view_mut(), &two.view()),
                "expected a row of scores for each label for the kernel distances, found 5 scores for 2 labels",
            ),
            (on.distances(&mut four.view_mut(), &none.view()), "4 scores for 0 labels"),
            (
                on.hits(&mut out.view_mut(), &four.view(), &two.view()),
                "expected 2 elements for the kernel hits, found 3",
            ),
            (
                on.rectify_backward(&mut four.view_mut(), &five.view()),
                "expected 5 elements for the kernel rectify_backward, found 4",
            ),
        ]
    });
}

#[test]
fn what_gpus_there_are_is_told() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(6);
    let gpus = sardana_cuda::inventory::gpus().unwrap();
    let expected = sardana_cuda::inventory::Gpu {
        ordinal: 0,
        name: "Twin of a GPU".to_owned(),
        capability: sardana_cuda::driver::Version { major: 9, minor: 0 },
        memory: 4 << 30,
        multiprocessors: 132,
        is_instance: false,
    };
    assert_eq!(gpus, [expected]);
    session.ends_well();
}
