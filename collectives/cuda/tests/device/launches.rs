//! Each kernel through the device gives the bits of its reference, on either stream, for several orders.

use half::{bf16, f16};
use sardana_cuda::device::{Device, DeviceTensor, Element, Float, Stream, Summed};
use sardana_cuda::parameters::{Adam, Descent, MAX_PIECE_BYTES};
use sardana_cuda::reference::{dense, halves, hashes, norms, pointwise, sums, tensors, updates};

use super::numbers::{Any, Numbers};
use super::twin::driver;

const SEEDS: u64 = 4;

/// Bytes of a piece.
const PIECE: usize = MAX_PIECE_BYTES as usize;
const STREAMS: [Stream; 2] = [Stream::Compute, Stream::Copies];

/// The same on each stream, for each seed.
fn each(check: impl Fn(&Device, Stream, &mut Numbers)) {
    let Some(driver) = driver() else { return };
    for seed in 0..SEEDS {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        for stream in STREAMS {
            check(&device, stream, &mut Numbers::new(seed));
        }
        device.synchronize().unwrap();
        drop(device);
        session.ends_well();
    }
}

fn bits<T: Element>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

#[track_caller]
fn same<T: Element>(found: &DeviceTensor<T>, expected: &[T]) {
    assert!(
        bits(&found.to_vec().unwrap()) == bits(expected),
        "other bits than the reference's"
    );
}

fn sums_of<S: Summed + Any>(add: impl Fn(&mut [S::Running], &[&[S]]))
where
    S::Running: Any,
{
    each(|device, stream, numbers| {
        for (length, count) in [(0, 1), (1, 0), (33, 1), (256, 3), (257, 33), (700, 65)] {
            let running = numbers.all::<S::Running>(length);
            let shards: Vec<Vec<S>> = (0..count).map(|_| numbers.all(length)).collect();
            let mut expected = running.clone();
            add(&mut expected, &shards.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let own: Vec<_> = shards
                .iter()
                .map(|shard| DeviceTensor::from_slice(device, stream, shard).unwrap())
                .collect();
            let views: Vec<_> = own.iter().map(DeviceTensor::view).collect();
            let mut in_place = DeviceTensor::from_slice(device, stream, &running).unwrap();
            let mut out = DeviceTensor::unset(device, stream, length).unwrap();
            device
                .on(stream)
                .sum_into(&mut out.view_mut(), &in_place.view(), &views)
                .unwrap();
            device.on(stream).add(&mut in_place.view_mut(), &views).unwrap();
            same(&out, &expected);
            same(&in_place, &expected);
        }
    });
}

#[test]
fn sums_of_f32() {
    sums_of(sums::sum_f32);
}

#[test]
fn sums_of_f64() {
    sums_of(sums::sum_f64);
}

#[test]
fn sums_of_halves() {
    sums_of(sums::sum_bf16);
    sums_of(sums::sum_f16);
}

#[test]
fn parts_that_begin_anywhere_are_summed() {
    each(|device, stream, numbers| {
        let [running, shard] = [(); 2].map(|()| numbers.all::<f32>(101));
        let mut sum = DeviceTensor::from_slice(device, stream, &running).unwrap();
        let own = DeviceTensor::from_slice(device, stream, &shard).unwrap();
        device.on(stream).add(&mut sum.part_mut(3..90), &[own.part(5..92)]).unwrap();
        let mut expected = running;
        sums::sum_f32(&mut expected[3..90], &[&shard[5..92]]);
        same(&sum, &expected);
    });
}

#[test]
fn halves_there_and_back() {
    each(|device, stream, numbers| {
        let values = numbers.all::<f32>(300);
        let own = DeviceTensor::from_slice(device, stream, &values).unwrap();
        let mut narrow = DeviceTensor::<bf16>::unset(device, stream, 300).unwrap();
        let mut wide = DeviceTensor::<f32>::unset(device, stream, 300).unwrap();
        device.on(stream).narrow(&mut narrow.view_mut(), &own.view()).unwrap();
        device.on(stream).widen(&mut wide.view_mut(), &narrow.view()).unwrap();
        let expected = halves::narrow_bf16(&values);
        same(&narrow, &expected);
        same(&wide, &halves::widen_bf16(&expected));
        let mut narrow = DeviceTensor::<f16>::unset(device, stream, 300).unwrap();
        device.on(stream).narrow(&mut narrow.view_mut(), &own.view()).unwrap();
        device.on(stream).widen(&mut wide.view_mut(), &narrow.view()).unwrap();
        let expected = halves::narrow_f16(&values);
        same(&narrow, &expected);
        same(&wide, &halves::widen_f16(&expected));
    });
}

fn moved<T: Float + Any + sardana_cuda::reference::Number>() {
    each(|device, stream, numbers| {
        let element = size_of::<T>();
        let places = [(0, 5), (8 * element, 0), (8 * element, 1_025), (1_040 * element, 3)];
        let mut gradient: Vec<u8> = bits(&numbers.all::<T>(1_050)).to_vec();
        let values: Vec<Vec<T>> = places.iter().map(|&(_, length)| numbers.all(length)).collect();
        let mut own = DeviceTensor::from_slice(device, stream, &gradient).unwrap();
        let mut packed: Vec<_> = values
            .iter()
            .map(|values| DeviceTensor::from_slice(device, stream, values).unwrap())
            .collect();
        let offset = |(offset, _): (usize, usize)| offset as u64;
        for add in [false, true] {
            let table: Vec<_> = places
                .into_iter()
                .map(offset)
                .zip(packed.iter().map(DeviceTensor::view))
                .collect();
            device.on(stream).pack(&mut own.view_mut(), &table, add).unwrap();
            let table: Vec<_> = places
                .iter()
                .zip(&values)
                .map(|(place, values)| (place.0, values.as_slice()))
                .collect();
            tensors::pack(&mut gradient, &table, add);
            same(&own, &gradient);
        }
        let mut expected = values;
        for add in [true, false] {
            let mut table: Vec<_> = places
                .into_iter()
                .map(offset)
                .zip(packed.iter_mut().map(DeviceTensor::view_mut))
                .collect();
            device.on(stream).unpack(&own.view(), &mut table, add).unwrap();
            let mut table: Vec<_> = places
                .iter()
                .zip(&mut expected)
                .map(|(place, values)| (place.0, values.as_mut_slice()))
                .collect();
            tensors::unpack(&gradient, &mut table, add);
            for (found, expected) in packed.iter().zip(&expected) {
                same(found, expected);
            }
        }
    });
}

#[test]
fn tensors_in_and_out_of_a_gradient() {
    moved::<f32>();
    moved::<f64>();
}

#[test]
fn means() {
    each(|device, stream, numbers| {
        let [sum, wide] = [numbers.all::<f32>(515), numbers.all::<f32>(515)];
        let wide: Vec<f64> = wide.into_iter().map(f64::from).collect();
        let own = DeviceTensor::from_slice(device, stream, &sum).unwrap();
        let mut out = DeviceTensor::unset(device, stream, 515).unwrap();
        device.on(stream).mean(&mut out.view_mut(), &own.view(), 3.0_f32).unwrap();
        same(&out, &updates::mean_f32(&sum, 3.0));
        let own = DeviceTensor::from_slice(device, stream, &wide).unwrap();
        let mut out = DeviceTensor::unset(device, stream, 515).unwrap();
        device.on(stream).mean(&mut out.view_mut(), &own.view(), 3.0_f64).unwrap();
        same(&out, &updates::mean_f64(&wide, 3.0));
    });
}

#[test]
fn parameters_follow_their_gradients() {
    each(|device, stream, numbers| {
        let [values, velocities, sum, mut squares] = [(); 4].map(|()| numbers.near(300));
        squares.iter_mut().for_each(|square| *square = square.abs());
        let on = device.on(stream);
        let tensor = |values: &[f32]| DeviceTensor::from_slice(device, stream, values).unwrap();
        let by = Descent {
            divisor: 7.0,
            factor: 0.9,
            rate: 0.1,
            decay: 0.01,
            momentum: 0.9,
        };
        let own_sum = tensor(&sum);
        let (mut own, mut expected) = (tensor(&values), values.clone());
        on.sgd(&mut own.view_mut(), &own_sum.view(), by).unwrap();
        updates::sgd(&mut expected, &sum, &by);
        same(&own, &expected);
        let (mut own, mut expected) = ([tensor(&values), tensor(&velocities)], [values.clone(), velocities.clone()]);
        let [first, second] = &mut own;
        on.momentum(&mut first.view_mut(), &mut second.view_mut(), &own_sum.view(), by)
            .unwrap();
        on.nesterov(&mut first.view_mut(), &mut second.view_mut(), &own_sum.view(), by)
            .unwrap();
        let [values_, velocities_] = &mut expected;
        updates::momentum(values_, velocities_, &sum, &by);
        updates::nesterov(values_, velocities_, &sum, &by);
        own.iter().zip(&expected).for_each(|(own, expected)| same(own, expected));
        let adam = Adam {
            number: 3,
            rate: 0.01,
            decay: 0.1,
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            decoupled: true,
        };
        let by = adam.moments(7.0, 1.0);
        let (mut own, mut expected) = (
            [tensor(&values), tensor(&velocities), tensor(&squares)],
            [values, velocities, squares],
        );
        let [first, second, third] = &mut own;
        on.adam(
            &mut first.view_mut(),
            &mut second.view_mut(),
            &mut third.view_mut(),
            &own_sum.view(),
            by,
        )
        .unwrap();
        let [values, means, squares] = &mut expected;
        updates::adam(values, means, squares, &sum, &by);
        own.iter().zip(&expected).for_each(|(own, expected)| same(own, expected));
    });
}

#[test]
fn norms_and_hashes_of_many_tensors() {
    each(|device, stream, numbers| {
        let all: Vec<Vec<f32>> = [0, 1, 9, 2_049, 40_000].map(|length| numbers.near(length)).to_vec();
        let own: Vec<_> = all
            .iter()
            .map(|values| DeviceTensor::from_slice(device, stream, values).unwrap())
            .collect();
        let mut out = DeviceTensor::unset(device, stream, all.len()).unwrap();
        let views: Vec<_> = own.iter().map(DeviceTensor::view).collect();
        device.on(stream).squares(&mut out.view_mut(), &views, 3.0).unwrap();
        same(
            &out,
            &all.iter().map(|values| norms::squares(values, 3.0)).collect::<Vec<_>>(),
        );
        let mut thirds = |length| numbers.near(length).iter().map(|&value| f64::from(value) / 3.0).collect();
        let terms: Vec<Vec<f64>> = [0, 1, 700].map(&mut thirds).to_vec();
        let mut own: Vec<_> = terms
            .iter()
            .map(|terms| DeviceTensor::from_slice(device, stream, terms).unwrap())
            .collect();
        let mut out = DeviceTensor::unset(device, stream, own.len()).unwrap();
        let mut views: Vec<_> = own.iter_mut().map(DeviceTensor::view_mut).collect();
        device.on(stream).tree_sums(&mut out.view_mut(), &mut views).unwrap();
        same(&out, &terms.iter().map(|terms| norms::tree_sum(terms)).collect::<Vec<_>>());
        let pieces: Vec<Vec<u8>> = [0, 1, 64, 1_025, 5_000]
            .map(|length| numbers.all::<f32>(length).iter().map(|value| value.to_bits() as u8).collect())
            .to_vec();
        let own: Vec<_> = pieces
            .iter()
            .map(|piece| DeviceTensor::from_slice(device, stream, piece).unwrap())
            .collect();
        let mut out = DeviceTensor::unset(device, stream, 32 * pieces.len()).unwrap();
        let views: Vec<_> = own.iter().map(DeviceTensor::view).collect();
        device.on(stream).hash_pieces(&mut out.view_mut(), &views).unwrap();
        same(
            &out,
            &pieces.iter().flat_map(|piece| hashes::hash(piece)).collect::<Vec<u8>>(),
        );
    });
}

#[test]
fn tensors_are_hashed_piece_by_piece() {
    let Some(driver) = driver() else { return };
    for (seed, stream) in STREAMS.into_iter().enumerate() {
        let session = driver.begin(seed as u64);
        let device = Device::open(0).unwrap();
        let mut numbers = Numbers::new(seed as u64);
        // In elements of four bytes: none, one, and pieces that are just full, or have one more.
        let all: Vec<Vec<f32>> = [0, 1, PIECE / 4, PIECE / 2 + 1].map(|length| numbers.all(length)).to_vec();
        let own: Vec<_> = all
            .iter()
            .map(|values| DeviceTensor::from_slice(&device, stream, values).unwrap())
            .collect();
        let views: Vec<_> = own.iter().map(DeviceTensor::view).collect();
        let expected: Vec<Vec<[u8; 32]>> = all
            .iter()
            .map(|values| bits(values).chunks(PIECE).map(hashes::hash).collect())
            .collect();
        let before = device.traffic();
        assert!(device.hash(stream, &views).unwrap() == expected);
        let crossed = device.traffic();
        assert_eq!((crossed.up - before.up, crossed.down - before.down), (0, (1 + 1 + 3) * 32));
        assert_eq!(device.hash::<f32>(stream, &[]).unwrap(), Vec::<Vec<[u8; 32]>>::new());
        drop((own, device));
        session.ends_well();
    }
}

#[test]
fn dense_layers_forward_and_backward() {
    each(|device, stream, numbers| {
        let sizes = dense::Sizes {
            batch: 5,
            outputs: 66,
            inputs: 17,
        };
        let [x, w, b, dy] = [5 * 17, 66 * 17, 66, 5 * 66].map(|length| numbers.near(length));
        let [own_x, own_w, own_b, own_dy] =
            [&x, &w, &b, &dy].map(|values| DeviceTensor::from_slice(device, stream, values).unwrap());
        let room = |length| DeviceTensor::<f32>::unset(device, stream, length).unwrap();
        let [mut y, mut dx, mut dw, mut db] = [5 * 66, 5 * 17, 66 * 17, 66].map(room);
        let on = device.on(stream);
        on.dense_forward(&mut y.view_mut(), [&own_x.view(), &own_w.view(), &own_b.view()], sizes)
            .unwrap();
        on.dense_backward_inputs(&mut dx.view_mut(), [&own_dy.view(), &own_w.view()], sizes)
            .unwrap();
        on.dense_backward_weights(&mut dw.view_mut(), [&own_dy.view(), &own_x.view()], sizes)
            .unwrap();
        on.dense_backward_biases(&mut db.view_mut(), &own_dy.view(), sizes).unwrap();
        same(&y, &dense::forward(&x, &w, &b, sizes));
        same(&dx, &dense::backward_inputs(&dy, &w, sizes));
        same(&dw, &dense::backward_weights(&dy, &x, sizes));
        same(&db, &dense::backward_biases(&dy, sizes));
    });
}

#[test]
fn rectifiers_and_labels() {
    each(|device, stream, numbers| {
        let [scores, gradients] = [(); 2].map(|()| numbers.near(7 * 10));
        let labels: Vec<u32> = (0..7).map(|_| numbers.below(10) as u32).collect();
        let own_labels = DeviceTensor::from_slice(device, stream, &labels).unwrap();
        let tensor = |values: &[f32]| DeviceTensor::from_slice(device, stream, values).unwrap();
        let (mut rectified, mut passed, mut away) = (tensor(&scores), tensor(&gradients), tensor(&scores));
        let mut hit = DeviceTensor::unset(device, stream, 7).unwrap();
        let on = device.on(stream);
        on.rectify(&mut rectified.view_mut()).unwrap();
        on.rectify_backward(&mut passed.view_mut(), &rectified.view()).unwrap();
        on.hits(&mut hit.view_mut(), &away.view(), &own_labels.view()).unwrap();
        on.distances(&mut away.view_mut(), &own_labels.view()).unwrap();
        let expected = pointwise::rectify(&scores);
        same(&passed, &pointwise::rectify_backward(&gradients, &expected));
        same(&rectified, &expected);
        same(&hit, &pointwise::hits(&scores, &labels, 10));
        same(&away, &pointwise::distances(&scores, &labels, 10));
    });
}
