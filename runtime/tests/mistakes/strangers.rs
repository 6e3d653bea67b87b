//! Workers that do not belong: of another job, with other settings, another model, or started twice.

use std::time::{Duration, SystemTime};

use sardana::data::fingerprint::Fingerprinting;
use sardana::data::{DataError, DataFingerprint, DataHash, Dataset, DatasetExt, SampleRandom};
use sardana::model::ModelError;
use sardana::worker::{EXIT_RETRY, ProcessError};
use sardana::{Job, JobSpec, Order, reference};
use sardana_actors::worker::WorkerError;
use sardana_net::trust::limits::CLOCK_SLACK;
use sardana_net::trust::{Authority, Clock, Moment, Role};
use sardana_protocol::words::JobId;

use super::site::Site;
use super::slope::{Slope, job};

fn renamed(spec: &JobSpec) -> Result<Slope, ModelError> {
    Ok(Slope {
        tensor: "v",
        ..Slope::new(spec)?
    })
}

fn moved(spec: &JobSpec) -> Result<Slope, ModelError> {
    Ok(Slope {
        w: 1.0,
        ..Slope::new(spec)?
    })
}

#[test]
fn whatever_differs_is_named_and_the_job_goes_on_without_it() {
    let mut site = Site::new(2);
    let first = site.worker(1, job(2), Slope::new);
    site.joined();
    let same = || Job::builder("slope").seed(7).shards(4).steps(5).data(64, 16).workers(2);
    let others = [
        (
            "the job's name differs",
            "slopes",
            Job::builder("slopes").seed(7).shards(4).steps(5).data(64, 16),
        ),
        ("the seed differs", "found 8", same().seed(8)),
        ("the number of shards differs", "found 8", same().shards(8)),
        ("the number of steps differs", "found s6", same().steps(6)),
        ("the number of samples differs", "found 65", same().data(65, 16)),
        ("the batch size differs", "found 32", same().data(64, 32)),
        ("the order of addition differs", "found fast", same().order(Order::Fast)),
    ];
    for (what, found, other) in others {
        let other = site.worker(2, other.build().unwrap(), Slope::new);
        other.gives_up(&[what, "expected", found]);
    }
    site.worker(2, job(2), renamed).gives_up(&["the model", "same model"]);
    site.worker(2, job(2), moved).gives_up(&["the initial state differs"]);

    let second = site.worker(2, job(2), Slope::new);
    let expected = reference::train(job(2).spec(), &mut Slope::new(job(2).spec()).unwrap()).unwrap();
    assert_eq!(site.end().unwrap().hash, expected.hash);
    assert_eq!(first.state(), expected.hash);
    assert_eq!(second.state(), expected.hash);
    // For a worker that comes now there is nothing to do, and nothing is wrong.
    let late = site.worker(3, job(2), Slope::new).outcome().unwrap_err();
    assert!(late.to_string().contains("the job is over"), "{late}");
    assert_eq!(late.exit_code(), 0);
}

/// Labels in a file of that name.
#[derive(Clone)]
struct Labels(&'static str, Vec<u8>);

impl Dataset for Labels {
    type Item = u8;

    fn len(&self) -> u64 {
        self.1.len() as u64
    }

    fn get(&self, index: u64, _: &SampleRandom) -> Result<u8, DataError> {
        Ok(self.1[index as usize])
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        let images = Fingerprinting::default().part("images", DataHash::of(b"images"));
        Ok(images.part(self.0, DataHash::of(&self.1)).finish())
    }
}

#[test]
fn a_worker_with_other_data_is_told_what_differs() {
    let mut site = Site::new(2);
    let labels = Labels("labels", (0..64).collect());
    let on = |data: &dyn Dataset<Item = u8>| {
        let job = Job::builder("slope").seed(7).shards(4).steps(5);
        job.train(&data, 16).unwrap().build().unwrap()
    };
    let first = site.worker(1, on(&labels), Slope::new);
    site.joined();
    let mut changed = labels.clone();
    changed.1[40] += 1;
    site.worker(2, on(&changed), Slope::new).gives_up(&[
        "the data differs",
        "expected labels with hash",
        "found labels with hash",
        "sardana data check",
    ]);
    let renamed = Labels("labels-2", labels.1.clone());
    site.worker(2, on(&renamed), Slope::new)
        .gives_up(&["the data differs", "expected labels with", "found labels-2 with"]);
    let mut longer = labels.clone();
    longer.1.push(9);
    site.worker(2, on(&longer), Slope::new)
        .gives_up(&["the number of samples differs", "expected 64", "found 65"]);
    let flipped = labels.clone().map("flip", |label, _| Ok(label));
    site.worker(2, on(&flipped), Slope::new).gives_up(&[
        "the data differs",
        "expected nothing after labels",
        "found the transform `flip`",
    ]);
    site.worker(2, job(1), Slope::new)
        .gives_up(&["the data differs", "found data that the program says nothing about"]);

    let second = site.worker(2, on(&labels), Slope::new);
    let hash = site.end().unwrap().hash;
    assert_eq!((first.state(), second.state()), (hash, hash));
}

#[test]
fn credentials_of_another_job_role_or_process_are_refused() {
    let mut site = Site::new(2);
    let _first = site.worker(1, job(2), Slope::new);
    site.joined();
    let twin = site.worker(1, job(2), Slope::new);
    twin.gives_up(&["connected already", "start the second with its own"]);
    let agent = site.authority.issue(Role::Agent, 2).unwrap();
    let agent = site.start(agent, job(2), Slope::new);
    agent.gives_up(&["credentials of its own role"]);
    for id in [[5; 16], [6; 16]] {
        let stranger = Authority::new(JobId::new(id)).unwrap().issue(Role::Worker, 2).unwrap();
        site.start(stranger, job(2), Slope::new).gives_up(&["another job"]);
    }
}

#[test]
fn clocks_that_disagree_are_named_with_both_times_and_what_to_do() {
    let ahead = Authority::new(JobId::new([5; 16]))
        .unwrap()
        .with_clock(Clock::ahead(Duration::from_secs(2 * 60 * 60)));
    let site = Site::of(ahead, 1);
    let before = Moment::of(SystemTime::now());
    let worker = site.authority.issue(Role::Worker, 1).unwrap();
    // This worker's clock is behind that of the coordinator's host.
    let words = site.start(worker, job(1), Slope::new).refusal();
    let begins = words
        .split_once("it begins at ")
        .unwrap()
        .1
        .split_once(", and by the clock of this host it is ")
        .unwrap();
    let now = begins.1.split_once("; set the clock of this host").unwrap().0;
    let after = Moment::of(SystemTime::now());
    let seconds = before.seconds()..=after.seconds();
    assert!(
        seconds.clone().any(|second| Moment::new(second).to_string() == now),
        "{words}"
    );
    // Certificates hold from CLOCK_SLACK before they are made.
    let skew = 2 * 60 * 60 - CLOCK_SLACK.as_secs();
    let is_begin = |second: u64| Moment::new(second + skew).to_string() == begins.0;
    assert!((before.seconds() - 60..=after.seconds()).any(is_begin), "{words}");
}

#[test]
fn a_workers_own_address_that_is_taken_is_named() {
    let site = Site::new(1);
    let taken = std::net::UdpSocket::bind(super::loopback::LOOPBACK).unwrap();
    let mut bundle = site.bundle(site.authority.issue(Role::Worker, 1).unwrap());
    bundle.listen = taken.local_addr().unwrap();
    let error = sardana::worker::serve(bundle, &job(1), Slope::new).unwrap_err();
    assert!(matches!(error, ProcessError::Worker(WorkerError::Bind(_))), "{error}");
    assert!(
        error.to_string().contains(&taken.local_addr().unwrap().to_string()),
        "{error}"
    );
    assert_eq!(error.exit_code(), EXIT_RETRY);
}
