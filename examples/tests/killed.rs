//! The MNIST job in real processes: killed again and again, lost as a whole, resumed with other numbers of workers, and refused on other
//! data. The state it ends in is that of the plain loop.

use std::num::NonZeroU64;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use sardana::data::formats::{Part, mnist};
use sardana::job::Staffing;
use sardana::launch::{Event, LaunchConfig, LaunchError, Launched, launch};
use sardana::model::Trainable;
use sardana::{CheckpointEvent, Checkpointing, Every, GenerationEvent, JobEvent, Step, Summary, WorkerId, reference};
use sardana_examples::mnist::Data;

const EPOCHS: u64 = 8;

/// A checkpoint every four steps.
const EVERY: Every = Every::Steps(NonZeroU64::new(4).expect("4 is not 0"));

/// What becomes of a run.
enum End {
    Done(Box<Summary>),
    Failed(String),
    /// All of it was killed once a checkpoint of this step or a later one was committed.
    Lost,
}

/// Writes a set of 400 made-up images; the label of one of them is given.
fn write(folder: &Path, label: u8) {
    let image = |number: usize| (0..28 * 28).map(|at| ((at * (number % 10 + 1)) % 251) as u8).collect();
    for (part, count) in [(Part::Train, 400), (Part::Test, 50)] {
        let images: Vec<Vec<u8>> = (0..count).map(image).collect();
        let mut labels: Vec<u8> = (0..count).map(|number| (number % 10) as u8).collect();
        labels[17] = label;
        mnist::write(folder, part, 28, 28, &images, &labels).expect("a set is written");
    }
}

fn kill(launched: &Launched, worker: WorkerId) {
    let pid = launched.pid(worker).and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    if let Some(pid) = pid {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Runs the job; kills a member at each of the steps in `kills`, and everything once a checkpoint of `lose` is committed.
fn run(data: &Path, checkpoints: &Path, workers: u32, kills: &[u64], lose: Option<u64>) -> End {
    let staffing = Staffing {
        workers,
        min: 1,
        max: 8,
        restarts: 20,
        shard_capacity: None,
        balance: Default::default(),
    };
    let arguments = ["--data".into(), data.into(), "--epochs".into(), EPOCHS.to_string().into()];
    let program = env!("CARGO_BIN_EXE_mnist").into();
    let config = LaunchConfig {
        checkpoints: Some(Checkpointing::new(checkpoints, EVERY)),
        ..LaunchConfig::program(program, arguments.to_vec(), staffing)
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut launched = launch(config).await.expect("it is launched");
        let (mut members, mut kills) = (Vec::new(), kills.iter().peekable());
        while let Some(event) = launched.next_event().await {
            match event {
                Event::Job(JobEvent::Generation(
                    GenerationEvent::Forming { members: now, .. } | GenerationEvent::Switched { members: now, .. },
                )) => members = now,
                Event::Job(JobEvent::Steps(reports)) => {
                    let at = reports.last().map_or(0, |report| report.step.get());
                    if let Some(&step) = kills.next_if(|&&step| step <= at) {
                        kill(&launched, members[step as usize % members.len()]);
                    }
                }
                Event::Job(JobEvent::Checkpoint(CheckpointEvent::Saved { key, .. }))
                    if lose.is_some_and(|step| key.step >= Step::new(step)) =>
                {
                    return End::Lost;
                }
                Event::Job(JobEvent::Done(summary)) => {
                    assert_eq!(kills.next(), None, "each kill had its step");
                    return End::Done(Box::new(summary));
                }
                Event::Job(JobEvent::Failed { reason }) => return End::Failed(reason),
                Event::Job(_) | Event::Agent(_) => {}
            }
        }
        End::Failed(LaunchError::NoCoordinator.to_string())
    })
}

#[test]
fn killed_lost_and_resumed_it_ends_in_the_state_of_the_plain_loop() {
    let folder = tempfile::tempdir().unwrap();
    let [data, other, checkpoints] = ["data", "other", "checkpoints"].map(|name| folder.path().join(name));
    for (data, label) in [(&data, 3), (&other, 4)] {
        std::fs::create_dir(data).unwrap();
        write(data, label);
    }
    let end = run(&data, &checkpoints, 3, &[1, 3], Some(9));
    assert!(matches!(end, End::Lost), "lost in the middle");
    // With another label it is another job.
    match run(&other, &checkpoints, 1, &[], None) {
        End::Failed(reason) => assert!(reason.contains("other data"), "{reason}"),
        End::Done(_) | End::Lost => panic!("a checkpoint of other data was taken"),
    }
    let end = run(&data, &checkpoints, 2, &[15, 21], None);
    let End::Done(summary) = end else {
        panic!("it goes on to the end")
    };

    let job = Data::in_folder(&data).job(EPOCHS).unwrap().build().unwrap();
    let mut model = Data::in_folder(&data).dense(job.spec()).unwrap();
    assert!(!model.describe().is_empty());
    let expected = reference::train(job.spec(), &mut model).unwrap();
    assert_eq!(summary.hash, expected.hash, "BITS-1");
    assert_eq!(summary.results, expected.results);
}
