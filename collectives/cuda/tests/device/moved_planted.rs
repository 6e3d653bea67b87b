//! Faults of streams and copies where values go up batch by batch, are lent while they change, and are changed on the host, planted one at a time, are found.

use std::error::Error;

use sardana_cuda::device::{Device, DeviceTensor, SharedTensor, Stream, Transfer, Uploads};
use sardana_twins::{Count, Planted, Session};

use super::twin::found_at;

/// Orders of streams in which each fault is looked for.
const SEEDS: u64 = 12;

/// Whether batches, a tensor that is lent, or one that the host changes give a fault away.
fn is_found(session: &Session<'_>) -> bool {
    let differs = moved().unwrap_or(true);
    differs || session.fault().is_some()
}

/// Whether other values come of them.
fn moved() -> Result<bool, Box<dyn Error>> {
    let device = Device::open(0)?;
    let values = |from: u16| -> Vec<f32> { (from..from + 20).map(f32::from).collect() };
    let add = |to: &mut DeviceTensor<f32>, one: &DeviceTensor<f32>| {
        device.on(Stream::Compute).add(&mut to.view_mut(), &[one.view()])
    };
    let mut uploads = Uploads::new(&device, 2);
    let mut sum = SharedTensor::new(DeviceTensor::<f32>::zeros(&device, Stream::Compute, 20)?);
    let mut lent = Vec::new();
    for batch in 0..4_u16 {
        let mut there = DeviceTensor::unset(&device, Stream::Compute, 20)?;
        uploads.up(Stream::Compute, &values(100 * batch), &mut there.view_mut())?;
        add(sum.change()?, &there)?;
        lent.push(sum.lend(&device.record(Stream::Compute)?));
    }
    let mut transfer = Transfer::new(&device)?;
    let mut differs = false;
    for (batch, lent) in (0..).zip(lent) {
        // The sum of all batches up to this one.
        let (batches, before) = (f32::from(batch + 1_u16), f32::from((0..=batch).sum::<u16>()));
        let expected = values(0).into_iter().map(|value| value * batches + 100.0 * before);
        differs |= !lent.to_vec(&mut transfer)?.into_iter().eq(expected);
    }
    let mut changed = DeviceTensor::unset(&device, Stream::Compute, 20)?;
    transfer.up(&values(7), &mut changed.view_mut())?;
    add(&mut changed, sum.tensor())?;
    transfer.change(&mut changed.view_mut(), |values| {
        values.iter_mut().for_each(|value| *value *= 2.0)
    })?;
    add(&mut changed, sum.tensor())?;
    let expected = (values(0).into_iter().zip(values(7))).map(|(value, own)| 3.0 * (4.0 * value + 600.0) + 2.0 * own);
    differs |= !changed.to_vec()?.into_iter().eq(expected);
    Ok(differs)
}

/// At which calls of its kind a fault is found, and at how many it makes no difference.
fn found(what: Planted, count: Count, covered: usize) {
    let calls = |session: &Session<'_>| {
        let all = 0..session.count(count);
        all.filter(|&call| count != Count::Records || session.is_awaited(call))
            .collect()
    };
    if let Some((found, calls)) = found_at(what, SEEDS, calls, is_found) {
        println!("{what:?} {found:?} of {calls:?}");
        assert!(
            calls.len() > covered && found.len() + covered == calls.len(),
            "{what:?}: found at {found:?} of {calls:?}"
        );
    }
}

#[test]
fn a_stream_that_does_not_wait_for_the_other_is_found() {
    // Two make no difference: the first sum is there once the host has got back the room of a later batch; and what goes up again has come down before.
    found(Planted::ForgetStreamWait, Count::StreamWaits, 2);
}

#[test]
fn memory_of_the_host_that_is_used_before_its_copy_has_come_is_found() {
    found(Planted::ForgetHostWait, Count::HostWaits, 0);
}

#[test]
fn a_kernel_or_a_copy_on_the_wrong_stream_is_found() {
    found(Planted::LaunchElsewhere, Count::Launches, 0);
    found(Planted::CopyElsewhere, Count::Copies, 0);
}

#[test]
fn a_copy_that_begins_at_the_wrong_place_is_found() {
    found(Planted::CopyBeside, Count::Copies, 0);
}

#[test]
fn a_moment_that_is_recorded_before_what_it_stands_for_is_found() {
    // Six make no difference: the first sum's, as above; two before values go up to what nothing else uses at that moment; and three that are waited for at the end alone, when
    // the host has all.
    found(Planted::RecordEarly, Count::Records, 6);
}

#[test]
fn memory_that_is_freed_before_its_use_is_found() {
    // The last two are freed once the host has all.
    found(Planted::FreeEarly, Count::Frees, 2);
}
