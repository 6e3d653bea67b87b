//! Rings in fast order whose ranks sum by NCCL, each with a GPU of its own in one process on a twin driver; and what becomes of those that cannot.

mod ranks;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sardana_collectives::gradient::{GradientBuffer, Mean, WriteMode};
use sardana_collectives::ring::RingInput;
use sardana_cuda::device::{Device, DeviceTensor, Stream};
use sardana_cuda::gradient::{GradientElement, MeanOnDevice, SumRoom};
use sardana_cuda::kernels::Module;
use sardana_protocol::state::Dtype;
use sardana_protocol::words::{ShardRange, Step};
use sardana_twins::{Planted, Source};

use crate::Host;
use crate::rank::told;
use ranks::{FIRST, Worker, end, expected, generation, layout, run, value, write};

fn host(with_nccl: bool) -> Option<Host> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a source file is read");
    let names: Vec<&str> = Module::Sums.kernels().map(|kernel| kernel.name).collect();
    let sums = Source::new("sums.cu", &read("sums.cu"), &names).including("prelude.cuh", &read("prelude.cuh"));
    Host::with(with_nccl, &[sums])
}

/// Has a process play this part, for several orders of streams.
fn plays(host: &Host, part: &str, says: &str) {
    for seed in 0..4 {
        let mut process = host.start(part, seed);
        process.hears(says);
        process.ends_well();
    }
}

#[test]
fn ranks_of_a_job_sum_where_their_gradients_lie_and_all_have_the_sum_there_and_here() {
    let Some(host) = host(true) else { return };
    plays(&host, "sums of jobs", "all sums are right");
}

/// Ranks are threads, whose calls come in any order, and some calls make no difference: each kind of fault has to be found at some of the first calls.
#[test]
fn faults_of_streams_and_copies_are_found_where_jobs_sum() {
    let Some(host) = host(true) else { return };
    let is_right = |seed, plant| host.is_right("sums of jobs", seed, "all sums are right", plant);
    assert!(
        (0..2).all(|seed| is_right(seed, (Planted::ForgetStreamWait, u64::MAX))),
        "at no call"
    );
    for what in [
        Planted::ForgetStreamWait,
        Planted::ForgetHostWait,
        Planted::LaunchElsewhere,
        Planted::CopyElsewhere,
        Planted::CopyBeside,
    ] {
        let is_found = |&call: &u64| (0..2).any(|seed| !is_right(seed, (what, call)));
        let found: Vec<u64> = (0..16).filter(is_found).collect();
        println!("{what:?} {found:?}");
        assert!(!found.is_empty(), "{what:?} is found nowhere");
    }
}

#[test]
fn a_generation_that_ends_within_a_sum_ends_at_once_and_the_next_sums_the_same_gradients_in_the_same_process() {
    let Some(host) = host(true) else { return };
    plays(&host, "ends within a sum", "the next generation sums");
}

#[test]
fn two_ranks_on_one_gpu_have_their_links_sum_and_are_told_why() {
    let Some(host) = host(true) else { return };
    plays(&host, "one GPU", "links have summed");
}

#[test]
fn ranks_without_nccl_have_their_links_sum_and_are_told_why() {
    let Some(host) = host(false) else { return };
    let mut process = host.start("no NCCL", 1);
    // A machine may have one.
    assert!(["links have summed", "it is there"].contains(&process.hear().as_str()));
    process.ends_well();
}

/// The last tensor of a sum, as an update finds it on the device.
fn there<T: GradientElement + Into<f64>>(device: &Device, mean: &Mean<'_>, room: &mut SumRoom) -> Vec<f64> {
    let sum = mean.device_sum(room).unwrap();
    let there = sum.tensor::<T>(2).unwrap();
    let mut copy = DeviceTensor::zeros(device, Stream::Compute, there.len()).unwrap();
    device.on(Stream::Compute).copy(&mut copy.view_mut(), &there).unwrap();
    copy.to_vec().unwrap().into_iter().map(Into::into).collect()
}

/// After two others.
const LAST: Step = Step::new(FIRST.get() + 2);

pub(crate) fn sums() {
    for dtype in [Dtype::F32, Dtype::F64] {
        let layout = layout(dtype);
        let workers = [0, 1, 2].map(Worker::on);
        run(async {
            // The last is a spare.
            let all = [&workers[0], &workers[1], &workers[2]];
            let mut seats = generation(&all, &[3, 2, 0], &layout);
            let mut rooms: Vec<SumRoom> = workers.iter().map(|worker| SumRoom::new(&worker.device).unwrap()).collect();
            for step in [FIRST, FIRST.next(), LAST] {
                // The first rank has a run of two shards on its device, and one shard here.
                let mut gradients: [GradientBuffer; 4] = std::array::from_fn(|_| GradientBuffer::zeros(&layout));
                let [run, here, third, fourth] = &mut gradients;
                write(&layout, (step, 0), Some(&workers[0].device), run, WriteMode::Store);
                write(&layout, (step, 1), Some(&workers[0].device), run, WriteMode::Add);
                write(&layout, (step, 2), None, here, WriteMode::Store);
                write(&layout, (step, 3), Some(&workers[1].device), third, WriteMode::Store);
                write(&layout, (step, 4), Some(&workers[1].device), fourth, WriteMode::Store);
                seats[0].piece(step, ShardRange::new(0, 2), run);
                seats[0].piece(step, ShardRange::one(2), here);
                seats[1].piece(step, ShardRange::one(4), fourth);
                seats[1].piece(step, ShardRange::one(3), third);
                let expected = expected(&layout, step, 0..5);
                for (seat, (worker, room)) in seats.iter_mut().zip(workers.iter().zip(&mut rooms)) {
                    let sum = seat.sum().await;
                    assert_eq!(sum.bytes(), expected);
                    let is_spare = worker.device == workers[2].device;
                    assert_eq!(sum.resident(&layout).is_none(), is_spare, "it stays where gradients lie");
                    let found = match dtype {
                        Dtype::F32 => there::<f32>(&worker.device, &sum.mean(&layout), room),
                        Dtype::F64 | Dtype::U64 => there::<f64>(&worker.device, &sum.mean(&layout), room),
                    };
                    let plain: Vec<f64> = (0..1_025)
                        .map(|at| (0..5).map(|shard| f64::from(value(step, shard, at))).sum())
                        .collect();
                    assert_eq!(found, plain);
                    let into = sum.into_buffer();
                    // A spare brings nothing, and would not wait for the others.
                    if step != LAST {
                        let step = step.next();
                        seat.inbox.send(RingInput::Begin { step, into }).unwrap();
                    }
                }
                // They were only read.
                for (gradient, shards) in gradients.iter_mut().zip([0..2, 2..3, 3..4, 4..5]) {
                    gradient.lower().unwrap();
                    assert_eq!(gradient.bytes(), self::expected(&layout, step, shards));
                }
            }
            end(seats).await;
        });
        for worker in &workers {
            assert_eq!(worker.said(), ["all ranks sum by NCCL"]);
            assert_eq!(*worker.means.asked.borrow(), 3);
        }
    }
    told("all sums are right");
}

pub(crate) fn ends_within_a_sum() {
    let layout = layout(Dtype::F32);
    let workers = [0, 1, 2].map(Worker::on);
    run(async {
        let all = [&workers[0], &workers[1], &workers[2]];
        let mut gradients: [GradientBuffer; 3] = std::array::from_fn(|_| GradientBuffer::zeros(&layout));
        for (shard, (worker, gradient)) in (0..).zip(all.iter().zip(&mut gradients)) {
            write(&layout, (FIRST, shard), Some(&worker.device), gradient, WriteMode::Store);
        }
        // The last rank dies before it asks NCCL for the sum; the others have, and wait for it.
        workers[2].means.dies.store(true, Ordering::Relaxed);
        let seats = generation(&all, &[1, 1, 1], &layout);
        for (shard, (seat, gradient)) in (0..).zip(seats.iter().zip(&mut gradients)) {
            seat.piece(FIRST, ShardRange::one(shard), gradient);
        }
        for worker in &workers[..2] {
            worker.means.asked.subscribe().wait_for(|asked| *asked == 1).await.unwrap();
        }
        // As a halt does.
        seats.iter().for_each(|seat| seat.ring.abort());
        for seat in seats {
            // Or the links have ended it before.
            assert!(seat.ring.await.map_or(true, |ended| ended.is_err()));
        }
        assert!(gradients.iter().all(GradientBuffer::is_unread), "the gradients are let go");
        // Another rank has come first, so that those that are left have other ranks; the first brings the missing shard.
        let [first, second, _] = &mut gradients;
        let mut seats = generation(&[&workers[1], &workers[0]], &[1, 2], &layout);
        seats[0].piece(FIRST, ShardRange::one(0), second);
        seats[1].piece(FIRST, ShardRange::one(1), first);
        let mut lost = GradientBuffer::zeros(&layout);
        write(&layout, (FIRST, 2), Some(&workers[0].device), &mut lost, WriteMode::Store);
        seats[1].piece(FIRST, ShardRange::one(2), &mut lost);
        let expected = expected(&layout, FIRST, 0..3);
        for seat in &mut seats {
            assert_eq!(seat.sum().await.bytes(), expected);
        }
        end(seats).await;
    });
    for (worker, times) in workers.iter().zip([2, 2, 1]) {
        assert_eq!(worker.said(), vec!["all ranks sum by NCCL"; times]);
        // What a generation had there ends with it, and with the last the worker's.
        let Worker { device, means, .. } = worker;
        assert_eq!(Arc::strong_count(means), 1, "{device:?}");
    }
    let devices = workers.map(|worker| worker.device);
    for device in devices {
        assert_eq!(device.memory().held, 0, "all is given back");
    }
    told("the next generation sums");
}

/// Two ranks, whose links must sum, and what they are told.
fn links_sum(workers: [Worker; 2]) -> Vec<Vec<String>> {
    let layout = layout(Dtype::F32);
    run(async {
        let mut seats = generation(&[&workers[0], &workers[1]], &[1, 1], &layout);
        for (shard, (seat, worker)) in (0..).zip(seats.iter().zip(&workers)) {
            let mut gradient = GradientBuffer::zeros(&layout);
            write(&layout, (FIRST, shard), Some(&worker.device), &mut gradient, WriteMode::Store);
            seat.piece(FIRST, ShardRange::one(shard), &mut gradient);
        }
        for seat in &mut seats {
            assert_eq!(seat.sum().await.bytes(), expected(&layout, FIRST, 0..2));
        }
        end(seats).await;
    });
    workers.iter().map(Worker::said).collect()
}

pub(crate) fn one_gpu() {
    let said = links_sum([0, 0].map(Worker::on));
    let why = "links sum, and not NCCL: expected a device of its own for each worker, found r0 and r1 on one; start no more workers than there are GPUs";
    assert_eq!(said, [[why], [why]]);
    told("links have summed");
}

pub(crate) fn no_nccl() {
    let said = links_sum([0, 1].map(Worker::on));
    if said.iter().all(|said| said[0] == "all ranks sum by NCCL") {
        return told("it is there");
    }
    for said in said {
        assert!(
            said.len() == 1
                && said[0].starts_with("links sum, and not NCCL: expected NCCL's library (libnccl.so.2), found none: "),
            "{said:?}"
        );
    }
    told("links have summed");
}
