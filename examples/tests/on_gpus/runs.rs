//! One run of the job in worker processes, and what was seen of it.

use std::ffi::{OsStr, OsString};

use sardana::job::Staffing;
use sardana::launch::{Colour, Event, LaunchConfig, Launched, LogBounds, OperatorAnswer, OperatorRequest, Output, launch};
use sardana::model::DeviceMemory;
use sardana::operator::{DeviceView, JobStatus};
use sardana::{AgentEvent, JobEvent, Summary};
use tokio::sync::mpsc;

use super::site::Site;

pub(super) type Environment = Vec<(OsString, OsString)>;

pub(super) fn env(name: &str, value: impl AsRef<OsStr>) -> (OsString, OsString) {
    (name.into(), value.as_ref().to_owned())
}

/// A run, as it begins.
pub(super) struct Run<'a> {
    site: &'a Site,
    workers: u32,
    berths: Vec<Environment>,
    /// Of all workers.
    pub(super) environment: Environment,
    /// How many workers there are to be once a step was applied.
    pub(super) grows_to: Option<u32>,
    /// Whether it begins only with all of them.
    pub(super) waits_for_all: bool,
    /// What the program is told besides.
    pub(super) arguments: Vec<OsString>,
}

/// What was seen.
#[derive(Default)]
pub(super) struct Seen {
    /// Processes.
    pub(super) started: usize,
    /// How processes ended that did not end well.
    pub(super) ends: Vec<String>,
    /// Steps that had been applied by then.
    pub(super) steps_before_the_first_end: usize,
    /// What they computed on when the first step was applied.
    pub(super) devices: Vec<DeviceView>,
    /// What they had of GPUs' memory then.
    pub(super) memory: Vec<DeviceMemory>,
    /// All that workers printed.
    pub(super) logs: String,
    steps: usize,
}

impl<'a> Run<'a> {
    pub(super) fn new(site: &'a Site, workers: u32) -> Self {
        Self {
            site,
            workers,
            berths: Vec::new(),
            environment: Vec::new(),
            grows_to: None,
            waits_for_all: false,
            arguments: Vec::new(),
        }
    }

    /// With these devices, in turn.
    pub(super) fn on(self, berths: &[Environment]) -> Self {
        Self {
            berths: berths.to_vec(),
            ..self
        }
    }

    /// Runs it to its end, which must be the plain loop's.
    pub(super) fn ends_like_the_plain_loop(self) -> Seen {
        let expected = self.site.expected();
        let (seen, summary) = self.ends();
        assert_eq!(summary.hash, expected.hash, "BITS-1; {}", seen.logs);
        assert_eq!(summary.results, expected.results);
        seen
    }

    /// Runs it to its end.
    pub(super) fn ends(self) -> (Seen, Summary) {
        let logs = tempfile::tempdir().unwrap();
        let output = Output::Prefixed {
            log_dir: Some(logs.path().to_owned()),
            bounds: LogBounds::new(1 << 20, 64),
            colour: Colour::Off,
        };
        let staffing = Staffing {
            workers: self.workers,
            min: if self.waits_for_all { self.workers } else { 1 },
            max: 8,
            restarts: 20,
            shard_capacity: None,
            balance: Default::default(),
        };
        let mut arguments = self.site.arguments();
        arguments.extend(self.arguments.clone());
        let mut config = LaunchConfig {
            berths: self.berths.clone(),
            output,
            ..LaunchConfig::program(env!("CARGO_BIN_EXE_cuda_mlp").into(), arguments, staffing)
        };
        config.environment.extend(self.environment.clone());
        let mut seen = Seen::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let summary = runtime.block_on(self.follow(config, &mut seen));
        for file in std::fs::read_dir(logs.path()).unwrap() {
            seen.logs += &std::fs::read_to_string(file.unwrap().path()).unwrap();
        }
        (seen, summary)
    }

    async fn follow(&self, config: LaunchConfig, seen: &mut Seen) -> Summary {
        let launched = launch(config).await.unwrap();
        let (tell, mut told) = mpsc::unbounded_channel();
        let finishing = launched.finish(|launched, event| self.note(launched, event, seen, &tell));
        let summary = finishing.await.unwrap();
        drop(tell);
        while let Some(status) = told.recv().await {
            seen.devices = status.devices;
            seen.memory = status.device_memory.into_iter().map(|(_, memory)| memory).collect();
        }
        summary
    }

    fn note(&self, launched: &Launched, event: &Event, seen: &mut Seen, tell: &mpsc::UnboundedSender<JobStatus>) {
        match event {
            Event::Job(JobEvent::Steps(reports)) => {
                if seen.steps == 0 {
                    self.begun(launched, tell.clone());
                }
                seen.steps += reports.len();
            }
            Event::Agent(AgentEvent::Started { .. }) => seen.started += 1,
            Event::Agent(AgentEvent::Ended { how, .. }) if how != "exit code 0" => {
                if seen.ends.is_empty() {
                    seen.steps_before_the_first_end = seen.steps;
                }
                seen.ends.push(how.clone());
            }
            Event::Job(_) | Event::Agent(_) => {}
        }
    }

    /// A step was applied.
    fn begun(&self, launched: &Launched, tell: mpsc::UnboundedSender<JobStatus>) {
        let steering = launched.steering();
        if let Some(workers) = self.grows_to {
            steering.request(OperatorRequest::Scale { workers });
        }
        tokio::spawn(async move {
            if let Ok(OperatorAnswer::Status(status)) = steering.ask(OperatorRequest::Status).await {
                // The receiver is gone only if the run failed.
                let _ = tell.send(*status);
            }
        });
    }
}
