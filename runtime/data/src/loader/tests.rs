use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use sardana_protocol::job::JobSpec;
use sardana_protocol::words::Step;

use super::*;
use crate::{DataFingerprint, DatasetExt, SampleRandom, Sampler};

/// Samples of a kilobyte each that say their number and a random one, and count how often each was made.
struct Counted {
    made: Mutex<BTreeMap<u64, usize>>,
    most_held: AtomicUsize,
}

impl Counted {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            made: Mutex::default(),
            most_held: AtomicUsize::new(0),
        })
    }

    fn made(&self) -> BTreeMap<u64, usize> {
        self.made.lock().unwrap().clone()
    }
}

fn loader<D>(data: D, threads: usize, ahead: usize) -> Loader<D>
where
    D: Dataset + 'static,
    D::Item: HeldBytes,
{
    Loader::on_demand(data).ahead(ahead).threads(threads).unwrap()
}

/// What one sample takes of the memory.
fn each() -> usize {
    vec![0_u64; 128].held_bytes() + size_of::<Option<Result<Vec<u64>, DataError>>>() + 8
}

const SAMPLES: u64 = 64;

impl Dataset for Counted {
    type Item = Vec<u64>;

    fn len(&self) -> u64 {
        SAMPLES
    }

    fn get(&self, index: u64, random: &SampleRandom) -> Result<Vec<u64>, DataError> {
        *self.made.lock().unwrap().entry(index).or_default() += 1;
        let mut sample = vec![index, random.stream(0).next_u64()];
        sample.resize(128, 0);
        Ok(sample)
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        Ok(DataFingerprint::default())
    }
}

const STEPS: u64 = 12;

fn sampler() -> Sampler {
    let spec = JobSpec {
        samples: SAMPLES,
        batch: 16,
        shards: 4,
        steps: Step::new(STEPS),
        ..sardana_protocol::samples::spec()
    };
    Sampler::new(&spec).unwrap()
}

fn coming(step: u64, shards: std::ops::Range<u32>) -> Coming {
    Coming::new(sampler(), Step::new(step), shards, Step::new(STEPS))
}

/// All samples that a worker with these shards asks for, in order.
fn trained(loader: &Loader<Arc<Counted>>, shards: std::ops::Range<u32>) -> Vec<Vec<u64>> {
    let mut samples = Vec::new();
    for step in 0..STEPS {
        loader.coming(coming(step, shards.clone()));
        for shard in shards.clone() {
            samples.extend(loader.samples(&sampler().shard(Step::new(step), shard)).unwrap());
            loader.dataset().most_held.fetch_max(loader.held_bytes(), Ordering::Relaxed);
        }
    }
    samples
}

#[test]
fn the_samples_do_not_depend_on_threads_or_memory() {
    let expected = trained(&Loader::on_demand(Counted::new()), 0..4);
    assert_eq!(expected.len() as u64, 16 * STEPS);
    for threads in 1..=8 {
        for bytes in [1, 5_000, 1 << 20] {
            let loader = loader(Counted::new(), threads, bytes);
            assert_eq!(trained(&loader, 0..4), expected, "{threads} threads, {bytes} bytes");
        }
    }
}

#[test]
fn each_sample_of_each_epoch_is_decoded_once() {
    for bytes in [3_000, 1 << 20] {
        let data = Counted::new();
        trained(&loader(Arc::clone(&data), 3, bytes), 0..4);
        let epochs = (16 * STEPS / SAMPLES) as usize;
        let made = data.made();
        assert!(made.values().all(|&times| times == epochs), "{bytes} bytes: {made:?}");
        assert_eq!(made.len() as u64, SAMPLES);
    }
}

#[test]
fn what_waits_stays_within_the_memory() {
    for (threads, budget) in [(1, 10 * each()), (4, 10 * each()), (4, 40 * each())] {
        let data = Counted::new();
        trained(&loader(Arc::clone(&data), threads, budget), 0..4);
        let most = data.most_held.load(Ordering::Relaxed);
        assert!(most <= budget, "{threads} threads held {most} of {budget} bytes");
    }
}

/// As pictures: most are small. Eight decoders are at work, each of which may have a large one.
#[test]
fn samples_of_many_sizes_stay_within_the_memory_too() {
    const LARGE: usize = 64 << 10;
    let budget = 10 * LARGE;
    let mut queue = Queue::<Vec<u64>>::new(budget);
    queue.plan(coming(0, 0..4));
    let (mut away, mut decoded) = (VecDeque::new(), 0);
    loop {
        while away.len() < 8
            && let Some(ticket) = queue.ticket()
        {
            away.push_back(ticket);
        }
        let Some(ticket) = away.pop_front() else { break };
        let bytes = if ticket.sample.is_multiple_of(8) { LARGE } else { 1_000 };
        queue.done(&ticket, Ok(Vec::new()), bytes);
        decoded += 1;
        assert!(queue.held_bytes() <= budget, "{} of {budget} bytes", queue.held_bytes());
    }
    assert!(decoded < 16 * (STEPS - 1), "some have no room");
    assert!(queue.held_bytes() > budget - 2 * LARGE, "what room there is is used");
}

#[test]
fn decoders_fill_the_memory_before_they_are_asked() {
    let loader = loader(Counted::new(), 2, 1 << 20);
    loader.coming(coming(0, 1..3));
    // Of the step under way only what is asked for; of the others all.
    let (two, all) = (2 * 4, (STEPS as usize - 1) * 2 * 4);
    let samples = loader.samples(&sampler().shard(Step::ZERO, 1)).unwrap();
    assert_eq!(samples.len() * 2, two);
    let mut queue = loader.work.lock();
    while queue.held_bytes() < all * each() {
        queue = loader.work.decoded.wait(queue).unwrap();
    }
    drop(queue);
    assert_eq!(loader.dataset().made().values().sum::<usize>(), all + two / 2);
}

/// Of 10 samples in 8 shards of two the last three shards are empty, in each step to the job's end.
#[test]
fn shards_without_samples_do_not_wait() {
    let spec = JobSpec {
        samples: SAMPLES,
        batch: 10,
        shards: 8,
        steps: Step::new(STEPS),
        ..sardana_protocol::samples::spec()
    };
    let sampler = Sampler::new(&spec).unwrap();
    let mut queue = Queue::<Vec<u64>>::new(1 << 20);
    queue.plan(Coming::new(sampler.clone(), Step::ZERO, 5..8, Step::new(STEPS)));
    assert!(queue.ticket().is_none());
    assert_eq!(queue.waiting(), 0);
    for threads in [0, 1] {
        let loader = loader(Counted::new(), threads, 1 << 20);
        assert!(loader.samples(&sampler.shard(Step::ZERO, 5)).unwrap().is_empty());
        assert_eq!(loader.samples(&sampler.shard(Step::ZERO, 4)).unwrap().len(), 2);
    }
}

#[test]
fn what_a_new_generation_took_away_is_dropped() {
    let loader = loader(Counted::new(), 1, 1 << 20);
    loader.coming(coming(0, 0..4));
    let wait_for = |samples: usize| {
        let mut queue = loader.work.lock();
        while queue.held_bytes() < samples * each() {
            queue = loader.work.decoded.wait(queue).unwrap();
        }
    };
    wait_for(11 * 16);
    assert_eq!(loader.held_bytes(), 11 * 16 * each());
    loader.coming(coming(3, 2..4));
    assert_eq!(loader.held_bytes(), 9 * 8 * each(), "steps 3 to 11, two shards of four");
    // What is kept serves.
    let before = loader.dataset().made().values().sum::<usize>();
    loader.samples(&sampler().shard(Step::new(3), 2)).unwrap();
    assert_eq!(loader.dataset().made().values().sum::<usize>(), before);
    // All of it once more: what was dropped is decoded again, once.
    loader.coming(coming(3, 0..4));
    wait_for((8 * 4 + 1) * 4);
    assert_eq!(loader.dataset().made().values().sum::<usize>(), before + 8 * 2 * 4);
}

#[test]
fn a_sample_that_cannot_be_read_is_an_error_of_its_shard_alone() {
    for threads in [0, 2] {
        let bad = Counted::new().map("fails at 7", |sample: Vec<u64>, _| match sample[0] {
            7 => Err(DataError::unfit("another sample", "number 7")),
            8 => panic!("number 8"),
            _ => Ok(sample),
        });
        let loader = loader(bad, threads, 1 << 20);
        loader.coming(coming(0, 0..4));
        let mut failed = Vec::new();
        for index in 0..16 {
            let shard = sampler().shard(Step::new(index / 4), (index % 4) as u32);
            match loader.samples(&shard) {
                Ok(samples) => assert_eq!(samples.len(), 4),
                Err(error) => failed.push((shard, error.to_string())),
            }
        }
        for (shard, error) in &failed {
            let seven = shard.samples().contains(&7) && error.contains("found number 7");
            let eight = shard.samples().contains(&8) && error.contains("panicked at sample 8");
            assert!(seven || eight, "{shard:?}: {error}");
        }
        assert!((1..=2).contains(&failed.len()), "{failed:?}");
    }
}

/// Both sample sizes and the budget are such that nothing may be decoded ahead: yet decoders help with what is waited for.
#[test]
fn what_is_waited_for_is_decoded_by_all_however_little_memory_there_is() {
    let data = Counted::new().map("both at once", |sample: Vec<u64>, _| {
        // Two of these are needed at once to go on.
        MEETING.wait();
        Ok(sample)
    });
    static MEETING: std::sync::Barrier = std::sync::Barrier::new(2);
    let loader = loader(data, 1, 1);
    let samples = loader.samples(&sampler().shard(Step::ZERO, 0)).unwrap();
    assert_eq!(samples.len(), 4);
}

#[test]
fn a_size_that_cannot_be_told_is_an_error_too() {
    struct Untellable;
    impl HeldBytes for Untellable {
        fn held_bytes(&self) -> usize {
            panic!("no size")
        }
    }
    let data = Counted::new().map("untellable", |_, _| Ok(Untellable));
    let loader = loader(data, 2, 1 << 20);
    loader.coming(coming(0, 0..4));
    let error = loader.samples(&sampler().shard(Step::ZERO, 0)).err().unwrap().to_string();
    assert!(error.contains("panicked at sample"), "{error}");
}

#[test]
fn two_threads_may_ask_for_one_shard() {
    let loader = loader(Counted::new(), 1, 1 << 20);
    let shard = sampler().shard(Step::ZERO, 0);
    std::thread::scope(|scope| {
        let ask = || loader.samples(&shard).unwrap().len();
        let others: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        assert!(others.into_iter().all(|other| other.join().unwrap() == 4));
    });
}

/// A data set that hangs, as one on a server that is gone, does not keep its loader.
#[test]
fn a_loader_ends_although_a_decoder_hangs() {
    static BEGUN: std::sync::Barrier = std::sync::Barrier::new(2);
    static RELEASED: std::sync::Barrier = std::sync::Barrier::new(2);
    let data = Counted::new().map("hangs", |sample: Vec<u64>, _| {
        BEGUN.wait();
        RELEASED.wait();
        Ok(sample)
    });
    let loader = loader(data, 1, 1 << 20);
    loader.coming(coming(0, 0..4));
    BEGUN.wait();
    drop(loader);
    RELEASED.wait();
}
