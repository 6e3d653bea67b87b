//! Faults of streams and copies, planted one at a time, are found: by the twin driver, or by other bits. A check that finds none of them would find nothing.

use std::error::Error;

use sardana_collectives::gradient::{GradientBuffer, Sum};
use sardana_cuda::device::{Device, DeviceTensor, Stream};
use sardana_cuda::gradient::{MeanOnDevice, SumRoom};
use sardana_protocol::words::Step;
use sardana_twins::{Count, Planted, Session};

use super::super::twin::found_at;
use super::mixed;
use super::shards::{Case, From, written_and_read};

/// Orders of streams in which each fault is looked for.
const SEEDS: u64 = 40;

/// Whether a gradient that stays, one that is spilled, or a sum that comes up gives a fault away.
fn is_found(session: &Session<'_>) -> bool {
    let differs = run().unwrap_or(true);
    differs || session.fault().is_some()
}

/// Whether other bits come of them.
fn run() -> Result<bool, Box<dyn Error>> {
    let device = Device::open(0)?;
    let case = mixed();
    let layout = case.layout();
    let mut room = SumRoom::new(&device)?;
    let mut differs = false;
    let stays = Case {
        shards: vec![Some(vec![From::Device; 3]); 2],
        ..mixed()
    };
    for (case, room) in [(&case, u64::MAX - 1), (&stays, u64::MAX - 1), (&case, 0)] {
        device.keep_gradients_within(room);
        let mut buffer = GradientBuffer::zeros(&layout);
        differs |= written_and_read(case, &mut buffer, &layout, &device)? != case.expected();
    }
    let mut used = Vec::new();
    for seed in 0..2 {
        let case = Case { seed, ..mixed() };
        let mut buffer = GradientBuffer::zeros(&layout);
        case.write(&mut buffer, &layout, None)?;
        let sum = Sum::from_buffer(Step::ZERO, buffer);
        let mean = sum.mean(&layout);
        let tensor = mean.device_sum(&mut room)?.tensor::<f32>(0)?;
        let mut there = DeviceTensor::<f32>::unset(&device, Stream::Compute, tensor.len())?;
        let on = device.on(Stream::Compute);
        on.sum_into::<f32>(&mut there.view_mut(), &tensor, &[])?;
        let bytes = layout.tensor_bytes(0).expect("it has a first tensor");
        used.push((there, sum.bytes()[bytes].to_vec()));
    }
    for (there, expected) in used {
        differs |= bytemuck::cast_slice::<f32, u8>(&there.to_vec()?) != expected;
    }
    Ok(differs)
}

/// At which calls of its kind a fault is found, and how many there are.
fn found(what: Planted, count: Count) -> Option<(Vec<u64>, u64)> {
    let (found, calls) = found_among(what, |session| (0..session.count(count)).collect())?;
    Some((found, calls.len() as u64))
}

/// At which of these calls of its kind a fault is found, and which ones they are.
fn found_among(what: Planted, calls: impl FnOnce(&Session<'_>) -> Vec<u64>) -> Option<(Vec<u64>, Vec<u64>)> {
    found_at(what, SEEDS, calls, is_found)
}

#[test]
fn a_stream_that_does_not_wait_for_the_other_is_found() {
    // The two that make no difference are waits for what the host has waited for by then, when it spilled the tensor between.
    let Some((found, calls)) = found(Planted::ForgetStreamWait, Count::StreamWaits) else {
        return;
    };
    assert!(calls > 10 && found.len() as u64 + 2 == calls, "found at {found:?} of {calls}");
}

#[test]
fn memory_of_the_host_that_is_read_before_the_copy_has_landed_is_found() {
    let Some((found, calls)) = found(Planted::ForgetHostWait, Count::HostWaits) else {
        return;
    };
    assert!(calls > 5 && found.len() as u64 == calls, "found at {found:?} of {calls}");
}

#[test]
fn a_kernel_or_a_copy_on_the_wrong_stream_is_found() {
    for (what, count) in [
        (Planted::LaunchElsewhere, Count::Launches),
        (Planted::CopyElsewhere, Count::Copies),
    ] {
        let Some((found, calls)) = found(what, count) else { return };
        assert!(
            calls > 10 && found.len() as u64 == calls,
            "{what:?}: found at {found:?} of {calls}"
        );
    }
}

#[test]
fn a_moment_that_is_recorded_before_what_it_stands_for_is_found() {
    // Four make no difference: two that are waited for when the host has waited for more by then, where it spilled a tensor between; the one before the first sum
    // comes up, when nothing has used its memory; and the one behind the last sum's copy, which is looked at only when values computed of it have come down.
    let awaited = |session: &Session<'_>| {
        let all = 0..session.count(Count::Records);
        all.filter(|&record| session.is_awaited(record)).collect()
    };
    let Some((found, calls)) = found_among(Planted::RecordEarly, awaited) else {
        return;
    };
    assert!(
        calls.len() > 20 && found.len() + 4 == calls.len(),
        "found at {found:?} of {calls:?}"
    );
}

#[test]
fn a_copy_that_begins_at_the_wrong_place_is_found() {
    let Some((found, calls)) = found(Planted::CopyBeside, Count::Copies) else {
        return;
    };
    assert!(calls > 10 && found.len() as u64 == calls, "found at {found:?} of {calls}");
}

#[test]
fn memory_that_is_freed_before_its_use_is_found() {
    let Some((found, calls)) = found(Planted::FreeEarly, Count::Frees) else {
        return;
    };
    // The values of each tensor that is written, and what was computed of them. What is freed once the host has all may be freed at once.
    let needed = [0, 1, 2, 3, 4, 5, 6, 7];
    assert!(
        needed.iter().all(|call| found.contains(call)),
        "found at {found:?} of {calls}"
    );
}
