//! What a worker tells of itself from time to time: that it lives, how fast it is, and what passes its links.

use sardana_protocol::limits::HEARTBEAT;
use sardana_protocol::member::Heartbeat;
use sardana_protocol::memory::DeviceMemory;
use sardana_protocol::messages::{LinkReport, WorkerMessage};
use sardana_protocol::words::Generation;
use tokio::time::Instant;

use super::driver::StepDriver;
use crate::peers::Peers;

/// When it told last.
pub(super) struct Telling {
    last: Instant,
    /// Whether there is a coordinator: what is told of links while there is none would only be old when one comes.
    heard: bool,
    links: LinkNews,
    /// What it was told last of a GPU's memory.
    device_memory: Option<DeviceMemory>,
}

impl Telling {
    pub(super) fn new() -> Self {
        Self {
            last: Instant::now(),
            heard: false,
            links: LinkNews::new(),
            device_memory: None,
        }
    }

    /// From now on a coordinator hears what is told, or none does.
    pub(super) fn heard(&mut self, heard: bool) {
        self.heard = heard;
        // Another coordinator knows what was said at the hello.
        self.device_memory = None;
    }

    /// Tells what is due now.
    pub(super) fn beat(&mut self, driver: &StepDriver, peers: &Peers) {
        let due = self.last.elapsed() >= HEARTBEAT;
        let heartbeat = if due {
            self.last = Instant::now();
            Heartbeat::Due(driver.pace())
        } else {
            Heartbeat::NotDue
        };
        driver.beat(heartbeat);
        if due && self.heard {
            self.links(driver, peers);
            self.device_memory(driver);
        }
    }

    /// Tells what the worker has of a GPU's memory, if that has changed.
    fn device_memory(&mut self, driver: &StepDriver) {
        let memory = driver.device_memory();
        if memory != self.device_memory {
            self.device_memory.clone_from(&memory);
            memory
                .map(WorkerMessage::DeviceMemory)
                .into_iter()
                .for_each(|news| driver.say(news));
        }
    }

    /// Tells what has passed the links there are. Before their generation is said to be ready it is said with it of which kind they are.
    pub(super) fn links(&mut self, driver: &StepDriver, peers: &Peers) {
        if let Some(news) = self.links.of(peers) {
            driver.say(news);
        }
    }
}

/// What is to be told of a worker's links.
#[derive(Debug)]
pub(crate) struct LinkNews {
    began: Instant,
    /// Of which it was told last. None: of no links.
    told_of: Option<Generation>,
}

impl LinkNews {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            told_of: None,
        }
    }

    /// What has passed the links there are; once that there are none any more.
    pub(crate) fn of(&mut self, peers: &Peers) -> Option<WorkerMessage> {
        let at = self.began.elapsed();
        let traffic = peers.traffic().filter(|traffic| !traffic.lines.is_empty());
        let before = std::mem::replace(&mut self.told_of, traffic.as_ref().map(|traffic| traffic.generation));
        let report = match traffic {
            Some(traffic) => Some(LinkReport {
                generation: traffic.generation,
                at,
                lines: traffic.lines,
                untold: traffic.untold,
            }),
            None => before.map(|generation| LinkReport {
                generation,
                at,
                lines: Vec::new(),
                untold: 0,
            }),
        };
        report.map(WorkerMessage::Links)
    }
}
