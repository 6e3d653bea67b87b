//! What a process does that a test has started as a rank. It reads lines from the test, and tells it lines.

use std::fmt::Write as _;
use std::io::BufRead;

use half::{bf16, f16};
use sardana_cuda::device::{Device, DeviceTensor, Element, Stream};
use sardana_cuda::nccl::{Communicator, Id, NcclError, Readiness, Reduced, Summing};

/// Which part it plays.
pub(crate) const PART: &str = "SARDANA_TEST_NCCL_PART";

/// Not a test by itself: the processes that the tests start.
#[test]
fn plays() {
    let Some(part) = std::env::var_os(PART) else { return };
    match part.to_str().unwrap() {
        "sums" => sums(),
        "survives" => survives(),
        "early" => early(),
        "alone" => alone(),
        "mistakes" => mistakes(),
        "absent" => absent(),
        "sums of jobs" => crate::jobs::sums(),
        "ends within a sum" => crate::jobs::ends_within_a_sum(),
        "one GPU" => crate::jobs::one_gpu(),
        "no NCCL" => crate::jobs::no_nccl(),
        other => panic!("{other}"),
    }
}

pub(crate) fn told(words: &str) {
    println!("told: {words}");
}

fn line() -> String {
    let mut line = String::new();
    assert_ne!(std::io::stdin().lock().read_line(&mut line).unwrap(), 0, "the test is there");
    line.trim_end().to_owned()
}

/// Its rank, how many there are, and their communicator, once all are there.
fn joined(device: &Device) -> (usize, usize, Communicator) {
    let mut found = line();
    if found == "make an id" {
        told(&hex(&Id::new().unwrap().to_bytes()));
        found = line();
    }
    let mut words = found.split(' ');
    let mut number = || words.next().unwrap().parse::<usize>().unwrap();
    let (rank, ranks) = (number(), number());
    let group = Communicator::begin(device, id(words.next().unwrap()), rank, ranks).unwrap();
    until(&group, Readiness::Ready);
    (rank, ranks, group)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn id(text: &str) -> Id {
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
    Id::from_bytes(std::array::from_fn(byte))
}

/// Asks until it is so far; other ranks are on their way there.
fn until(group: &Communicator, readiness: Readiness) {
    while group.poll().unwrap() != readiness {
        std::thread::yield_now();
    }
}

/// The tensor of a sum, once that is enqueued.
fn enqueued<T>(mut summing: Summing<'_, T>) -> DeviceTensor<T> {
    loop {
        if let Some(tensor) = summing.poll().unwrap() {
            assert!(summing.poll().unwrap().is_none(), "it is given back once");
            return tensor;
        }
        std::thread::yield_now();
    }
}

fn empty(device: &Device) -> DeviceTensor<f32> {
    DeviceTensor::unset(device, Stream::Compute, 0).unwrap()
}

/// Why a sum is not begun. Its tensor comes back.
fn refused<T: Reduced>(group: &Communicator, tensor: DeviceTensor<T>) -> NcclError {
    let address = tensor.view().address();
    let refused = group.all_reduce(Stream::Compute, tensor).err().unwrap();
    let error = refused.error().clone();
    assert_eq!(refused.to_string(), error.to_string());
    assert_eq!(refused.into_tensor().view().address(), address);
    error
}

/// What a rank adds to a sum: whole numbers, whose sums have no roundings.
fn own(rank: usize, length: usize) -> impl Iterator<Item = i16> {
    (0..length).map(move |at| (at % 7) as i16 - 3 * rank as i16)
}

fn expected(ranks: usize, length: usize) -> impl Iterator<Item = i16> {
    (0..length).map(move |at| (0..ranks).map(|rank| (at % 7) as i16 - 3 * rank as i16).sum())
}

fn sum_of<T: Element + Reduced>(
    device: &Device,
    stream: Stream,
    (rank, ranks, group): (usize, usize, &Communicator),
    value: impl Fn(i16) -> T,
) {
    for length in [1, 300, 0, 1_025] {
        let values: Vec<T> = own(rank, length).map(&value).collect();
        let tensor = DeviceTensor::from_slice(device, stream, &values).unwrap();
        let summing = group.all_reduce(stream, tensor).unwrap();
        if length > 0 {
            // The twin says once of each that it is not enqueued yet, and ends a process that asks for the next meanwhile.
            assert_eq!(refused(group, empty(device)), NcclError::Waiting);
        }
        let tensor = enqueued(summing);
        let sum: Vec<T> = expected(ranks, length).map(&value).collect();
        let found = tensor.to_vec().unwrap();
        assert_eq!(
            bytemuck::cast_slice::<T, u8>(&found),
            bytemuck::cast_slice::<T, u8>(&sum),
            "{length}"
        );
    }
}

fn finish(group: Communicator) {
    group.finish().unwrap();
    assert_eq!(group.finish(), Err(NcclError::Waiting));
    until(&group, Readiness::Finished);
    assert_eq!(
        (group.poll(), group.abort(), group.finish()),
        (Ok(Readiness::Finished), Ok(()), Err(NcclError::Ended))
    );
}

fn sums() {
    let device = Device::open(0).unwrap();
    let (rank, ranks, group) = joined(&device);
    for stream in [Stream::Compute, Stream::Copies] {
        let rank = (rank, ranks, &group);
        sum_of(&device, stream, rank, f32::from);
        sum_of(&device, stream, rank, f64::from);
        sum_of(&device, stream, rank, |value| f16::from_f32(value.into()));
        sum_of(&device, stream, rank, |value| bf16::from_f32(value.into()));
    }
    finish(group);
    told("all sums are right");
}

fn survives() {
    let device = Device::open(0).unwrap();
    let (rank, ranks, group) = joined(&device);
    sum_of(&device, Stream::Compute, (rank, ranks, &group), f32::from);
    told("the first sum is right");
    assert_eq!(line(), "sum");
    let tensor = DeviceTensor::from_slice(&device, Stream::Compute, &[1.0_f32; 8]).unwrap();
    let tensor = enqueued(group.all_reduce(Stream::Compute, tensor).unwrap());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| device.synchronize());
        told("it waits");
        assert_eq!(line(), "a rank is dead");
        assert!(!waits.is_finished(), "no rank can have added what the dead rank did not");
        group.abort().unwrap();
        waits.join().unwrap().unwrap();
    });
    assert_eq!(group.poll(), Err(NcclError::Ended));
    assert_eq!(refused(&group, tensor), NcclError::Ended);
    assert_eq!((group.finish(), group.abort()), (Err(NcclError::Ended), Ok(())));
    told("the wait has ended");
    let (rank, ranks, group) = joined(&device);
    assert_eq!(ranks, 2);
    sum_of(&device, Stream::Compute, (rank, ranks, &group), f32::from);
    finish(group);
    told("the next sum is right");
}

/// What is done with a tensor as early as it can be, and with one whose sum is not waited for.
fn early() {
    let device = Device::open(0).unwrap();
    let (_, ranks, group) = joined(&device);
    let tensor = |value: f32| DeviceTensor::from_slice(&device, Stream::Compute, &[value; 64]).unwrap();
    let one = tensor(1.0);
    let held = device.memory().held;
    for number in 0..4 {
        let sum = enqueued(group.all_reduce(Stream::Compute, tensor(2.0)).unwrap());
        let mut copy = tensor(0.0);
        // Behind the sum, since the tensor could not be had before.
        device.on(Stream::Compute).copy(&mut copy.view_mut(), &sum.view()).unwrap();
        drop(sum);
        assert_eq!(copy.to_vec().unwrap(), [(2 * ranks) as f32; 64], "{number}");
    }
    let mut begun = group.all_reduce(Stream::Compute, tensor(2.0)).unwrap();
    assert!(begun.poll().unwrap().is_none(), "the twin says so once");
    // The communicator was asked meanwhile, and for the next sum as well: this one is enqueued all the same.
    until(&group, Readiness::Ready);
    let next = group.all_reduce(Stream::Compute, tensor(3.0)).unwrap();
    let both = [begun, next].map(|summing| enqueued(summing).to_vec().unwrap()[0]);
    assert_eq!(both, [(2 * ranks) as f32, (3 * ranks) as f32]);
    assert_eq!(device.memory().held, held);
    told("all are behind their sums");
    // What is dropped before it is enqueued never is: the twin would find that it writes to memory that is freed.
    drop(group.all_reduce(Stream::Compute, tensor(4.0)).unwrap());
    assert_eq!((group.poll(), device.memory().held), (Err(NcclError::Ended), held));
    device.synchronize().unwrap();
    assert_eq!(one.to_vec().unwrap(), [1.0; 64], "the device is of use");
    told("nothing was left behind");
}

fn alone() {
    let device = Device::open(0).unwrap();
    let group = Communicator::begin(&device, Id::new().unwrap(), 0, 2).unwrap();
    let tensor = DeviceTensor::from_slice(&device, Stream::Compute, &[1.0_f32]).unwrap();
    for _ in 0..100 {
        assert_eq!(group.poll(), Ok(Readiness::Waiting));
        assert_eq!(refused(&group, empty(&device)), NcclError::Waiting);
        assert_eq!(group.finish(), Err(NcclError::Waiting));
    }
    group.abort().unwrap();
    assert_eq!(group.poll(), Err(NcclError::Ended));
    assert_eq!(tensor.to_vec().unwrap(), [1.0], "the device is of use");
    // One that is only dropped is aborted as well: the twin ends a process that does it twice.
    drop((group, Communicator::begin(&device, Id::new().unwrap(), 1, 2).unwrap()));
    told("given up");
}

fn mistakes() {
    let device = Device::open(0).unwrap();
    let id = Id::new().unwrap();
    for (rank, ranks) in [(0, 0), (2, 2), (usize::MAX, usize::MAX), (0, 1 << 40)] {
        let error = Communicator::begin(&device, id, rank, ranks).unwrap_err();
        assert!(matches!(error, NcclError::Input { .. }), "{error}");
    }
    let failed = |id, rank, ranks| match Communicator::begin(&device, id, rank, ranks) {
        Err(NcclError::Failed { call, code, .. }) => (call, code),
        other => panic!("{other:?}"),
    };
    assert_eq!(failed(Id::from_bytes([0; 128]), 0, 1), ("ncclCommInitRankConfig", 2));
    let group = Communicator::begin(&device, id, 0, 1).unwrap();
    assert_eq!(failed(id, 0, 1), ("ncclCommInitRankConfig", 5), "the rank is taken");
    assert_eq!(failed(id, 0, 2), ("ncclCommInitRankConfig", 4), "there is one rank");
    until(&group, Readiness::Ready);
    let other = Device::open(0).unwrap();
    let foreign = DeviceTensor::from_slice(&other, Stream::Compute, &[1.0_f32]).unwrap();
    let error = refused(&group, foreign);
    assert!(matches!(error, NcclError::Input { .. }), "{error}");
    assert_eq!(group.poll(), Ok(Readiness::Ready));
    // More than the twin takes at once.
    let large = DeviceTensor::<f32>::zeros(&device, Stream::Compute, (1 << 18) + 1).unwrap();
    let error = refused(&group, large);
    assert!(
        matches!(
            error,
            NcclError::Failed {
                call: "ncclAllReduce",
                code: 4,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(group.poll(), Err(NcclError::Ended), "what has failed was aborted");
    told("all are told");
}

fn absent() {
    match Id::new() {
        Ok(_) => told("it is there"),
        Err(error) => {
            assert_eq!(Id::new(), Err(error.clone()), "the answer stays");
            let device = Device::open(0).unwrap();
            let begun = Communicator::begin(&device, Id::from_bytes([1; 128]), 0, 1);
            assert_eq!(begun.unwrap_err(), error);
            told(&error.to_string());
        }
    }
}
