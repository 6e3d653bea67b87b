//! `sardana bench all-reduce`: sums of gradients of many sizes, beside what this machine could do at most.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sardana::device::DeviceChoice;
use sardana::job::Staffing;
use sardana::launch::{Event, LaunchConfig, Launched, launch};
use sardana::operator::{JobStatus, OperatorAnswer, OperatorRequest};
use sardana::{Compression, GenerationEvent, JobEvent};
use sardana_protocol::messages::LinkKind;
use serde_json::json;

use super::exchange::{Exchange, Took, Travel};
use super::gpu;
use super::limits::Limits;
use super::plot::{Line, Picture};
use super::progress::Progress;
use super::sizes::{self, Sizes};
use super::times::words;
use crate::ending::{Failure, runtime};
use crate::run::Linking;

/// Sum gradients of many sizes among workers of this host, and print how long a step takes.
///
/// It is a job whose workers do nothing but communicate: real processes, a coordinator, and the same links as in training. A step is one update:
/// each worker writes its gradient, all are summed, each worker has the sum. The rate is the gradient's bytes over the median step. The limits
/// are measured beside it: a copy within memory, one from thread to thread through a megabyte that both have, and one over a TCP connection
/// of this host with itself. `of limit` compares the rate with the second, or where links are QUIC's with the third, which is not encrypted. `links through` is
/// what the workers' links were made of: shared memory or QUIC.
///
/// With `--device cuda` gradients lie on GPUs, one for each worker or in turn, and each worker has the sum there. Then copies from and to pinned memory are the limit with which the
/// rate is compared: of as many bytes as cross between all workers' GPUs and the host, one after the other, on the first GPU. Gradients of a few KiB do not pass GPUs one
/// after the other, so that it says little of those.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana bench all-reduce\n  \
    sardana bench all-reduce --ranks 4 --sizes 1MiB,64MiB --link quic\n  \
    sardana bench all-reduce --plan fast --compression bf16 --link quic\n  \
    sardana bench all-reduce --sizes 1GiB --device cuda\n  \
    sardana bench all-reduce --json | jq '.rows[].median_seconds'\n  \
    sardana bench all-reduce --svg all-reduce.svg")]
pub(super) struct AllReduce {
    /// How many workers.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks: u32,
    /// Bytes of a gradient: some sizes, or a range, from one to the next four times as large.
    #[arg(long, value_name = "SIZES", default_value = "4KiB..256MiB")]
    sizes: Sizes,
    /// Gradients of each worker in a step: K is so many times the number of workers.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: u32,
    /// In which order gradients are added: `exact`, by shard, or `fast`, as it suits the ring.
    #[arg(long, value_enum, default_value_t = Plan::Exact)]
    plan: Plan,
    /// As what the numbers travel from worker to worker, with `--plan fast`: as they are, or rounded to halves at each hop.
    #[arg(long, value_enum, default_value_t = Travel::None)]
    compression: Travel,
    #[command(flatten)]
    linking: Linking,
    /// Where gradients lie: in the host's memory, or with `cuda` on a GPU.
    #[arg(long, value_name = "cpu|cuda|cuda:N", default_value_t = DeviceChoice::Cpu)]
    device: DeviceChoice,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
    /// Draw it as well, into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Plan {
    Exact,
    Fast,
}

/// What was measured of one size.
#[derive(Debug, Clone)]
struct Row {
    bytes: u64,
    /// Seconds of a step.
    median: f64,
    least: f64,
    steps: u64,
    /// Of processors, by all workers, for each 10⁹ bytes of gradients.
    processor: f64,
    limits: Limits,
    /// Seconds of copies of what crosses between GPUs and the host, where gradients lie there.
    crossing: Option<f64>,
    /// What the links passed through, by the workers' word.
    links: Vec<LinkKind>,
}

impl Row {
    fn of(bytes: u64, took: &[Took], limits: Limits, crossing: Option<f64>, links: Vec<LinkKind>) -> Self {
        let mut steps: Vec<f64> = took.iter().flat_map(|took| took.steps.iter().copied()).collect();
        steps.sort_by(f64::total_cmp);
        let measured = took.first().map_or(0, |took| took.steps.len() as u64);
        let processor: f64 = took.iter().map(|took| took.processor).sum();
        Self {
            bytes,
            median: steps.get(steps.len() / 2).copied().unwrap_or(f64::NAN),
            least: steps.first().copied().unwrap_or(f64::NAN),
            steps: measured,
            processor: processor / (bytes as f64 * measured as f64 / 1e9),
            limits,
            crossing,
            links,
        }
    }

    /// The part of what the machine could do at most.
    fn of_limit(&self) -> f64 {
        let limit = if self.links.contains(&LinkKind::Quic) {
            self.limits.tcp
        } else {
            self.limits.shared
        };
        self.crossing.unwrap_or(self.bytes as f64 / limit) / self.median
    }

    /// Bytes a second.
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.median
    }

    fn line(&self) -> String {
        let gigabytes = |rate: f64| format!("{:.2}", rate / 1e9);
        format!(
            "{:>9} {:>11} {:>11} {:>7} {:>9.2} {:>9.2} {:>8} {:>8} {:>8}  {}",
            sizes::words(self.bytes),
            words(self.median),
            words(self.least),
            gigabytes(self.rate()),
            self.of_limit(),
            self.processor,
            gigabytes(self.limits.memory),
            gigabytes(self.limits.shared),
            gigabytes(self.limits.tcp),
            self.through(),
        )
    }

    /// What the links passed through. One worker has none.
    fn through(&self) -> String {
        if self.links.is_empty() {
            "-".to_owned()
        } else {
            self.kinds().join(" and ")
        }
    }

    fn kinds(&self) -> Vec<String> {
        self.links.iter().map(LinkKind::to_string).collect()
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "bytes": self.bytes,
            "steps": self.steps,
            "median_seconds": self.median,
            "min_seconds": self.least,
            "bytes_per_second": self.rate(),
            "processor_seconds_per_gigabyte": self.processor,
            "links": self.kinds(),
            "of_limit": self.of_limit(),
            "crossing_seconds": self.crossing,
            "limits_bytes_per_second": { "memory": self.limits.memory, "shared": self.limits.shared, "tcp": self.limits.tcp },
        })
    }
}

const HEAD: &str = "     size      median         min    GB/s  of limit  CPU s/GB   memory   shared      TCP  links through";

impl AllReduce {
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        let compression = Compression::from(self.compression);
        if self.plan == Plan::Exact && compression != Compression::None {
            return Err(Failure::Usage(format!(
                "expected --plan fast with --compression {compression}, found --plan exact, which adds f32 as they are: \
                 set --plan fast, or leave --compression out"
            )));
        }
        // This program's own workers say the same, later.
        self.device.require().map_err(Failure::usage)?;
        let picture = Picture::create(self.svg.as_deref())?;
        let progress = Progress::new();
        if !self.json {
            progress.print(&format!("{}, whole steps; limits in GB/s\n{HEAD}", self.title()));
        }
        let mut rows = Vec::new();
        for &bytes in &self.sizes.0 {
            progress.say(format!("gradients of {}", sizes::words(bytes)));
            let row = self.measure(bytes)?;
            if !self.json {
                progress.print(&row.line());
            }
            rows.push(row);
        }
        drop(progress);
        if self.json {
            let rows: Vec<_> = rows.iter().map(Row::json).collect();
            println!(
                "{}",
                json!({
                    "ranks": self.ranks,
                    "shards": self.ranks * self.shards,
                    "compression": Compression::from(self.compression).to_string(),
                    "what": self.title(),
                    "rows": rows,
                })
            );
        }
        if let Some(picture) = picture {
            picture.draw(&self.title(), "bytes of a gradient", &lines(&rows))?;
        }
        Ok(())
    }

    fn title(&self) -> String {
        let order = if self.plan == Plan::Fast { "fast" } else { "exact" };
        format!(
            "all-reduce of f32{}, {} ranks, K = {}, {order} order{}",
            if self.is_on_gpus() { " on GPUs" } else { "" },
            self.ranks,
            self.ranks * self.shards,
            Compression::from(self.compression).behind_order()
        )
    }

    fn is_on_gpus(&self) -> bool {
        self.device.gpu().is_ok_and(|gpu| gpu.is_some())
    }

    /// Seconds that copies take of what crosses between the workers' GPUs and the host in a step. In exact order the running sum comes down at each, goes up again at
    /// all but the first to be added to, and then at all but the last, which has it there. In fast order each gradient comes down, and the sum goes up.
    fn crossing(&self, bytes: u64) -> Result<Option<f64>, Failure> {
        let Ok(Some(ordinal)) = self.device.gpu() else {
            return Ok(None);
        };
        let [up, down] = gpu::pinned_copies(ordinal, bytes)?;
        let ranks = f64::from(self.ranks);
        let ups = match self.plan {
            Plan::Exact => 2.0 * (ranks - 1.0),
            Plan::Fast => ranks,
        };
        Ok(Some(ranks * down + ups * up))
    }

    fn measure(&self, bytes: u64) -> Result<Row, Failure> {
        let folder = tempfile::tempdir().map_err(Failure::failed)?;
        let on_gpus = self.is_on_gpus();
        let most = |(_, most): (u64, u64)| if on_gpus { most.min(ON_GPUS) } else { most };
        let exchange = Exchange {
            bytes,
            warm_up: (WARMED / bytes).clamp(WARM_UP.0, most(WARM_UP)),
            steps: (MOVED / bytes).clamp(STEPS.0, most(STEPS)),
            ranks: self.ranks,
            shards: self.ranks * self.shards,
            fast: self.plan == Plan::Fast,
            compression: self.compression,
            folder: folder.path().to_owned(),
        };
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let staffing = Staffing {
            workers: self.ranks,
            min: self.ranks,
            max: self.ranks,
            restarts: 0,
            shard_capacity: None,
            balance: sardana::Balance::Off,
        };
        let mut config = LaunchConfig::program(program, exchange.arguments(), staffing);
        config.environment.extend(self.linking.environment());
        let config = config.on(self.device).map_err(Failure::failed)?;
        let links = runtime()?.block_on(carry_out(config))?;
        let limits = usize::try_from(bytes)
            .map_err(Failure::failed)
            .and_then(|bytes| Limits::measure(bytes).map_err(Failure::failed))?;
        Ok(Row::of(bytes, &exchange.took()?, limits, self.crossing(bytes)?, links))
    }
}

/// Follows the job to its end. Of which kinds the links are that it began with.
async fn carry_out(config: LaunchConfig) -> Result<Vec<LinkKind>, Failure> {
    let mut asking = None;
    let observe = |launched: &Launched, event: &Event| {
        if let Event::Job(JobEvent::Generation(GenerationEvent::Formed { .. })) = event {
            let steering = launched.steering();
            asking.get_or_insert_with(|| tokio::spawn(async move { steering.ask(OperatorRequest::Status).await }));
        }
    };
    let launched = launch(config).await.map_err(Failure::failed)?;
    launched.finish(observe).await.map_err(Failure::failed)?;
    let Some(asking) = asking else { return Ok(Vec::new()) };
    match asking.await.map_err(Failure::failed)?.map_err(Failure::failed)? {
        OperatorAnswer::Status(status) => Ok(kinds(&status)),
        OperatorAnswer::Done { what: reason } | OperatorAnswer::Refused { reason } => Err(Failure::Failed(reason)),
    }
}

fn kinds(status: &JobStatus) -> Vec<LinkKind> {
    status.links.kinds.iter().map(|kind| kind.kind).collect()
}

/// So many bytes of gradients are summed of each size before anything is measured,
const WARMED: u64 = 32 << 20;

/// in so many steps, at least and at most: of small ones so many that the system has given each rank a processor of its own. Linux took 30 ms for two ranks
/// on two processors; before, they took turns on one.
const WARM_UP: (u64, u64) = (4, 8_000);

/// So many bytes are summed of each size then,
const MOVED: u64 = 8 << 30;

/// in so many steps, at least and at most.
const STEPS: (u64, u64) = (12, 2_000);

/// And of those on GPUs at most: a step there takes as long as many of the others.
const ON_GPUS: u64 = 100;

fn lines(rows: &[Row]) -> Vec<Line> {
    let line = |name, rate: fn(&Row) -> f64| Line {
        name,
        points: rows.iter().map(|row| (row.bytes as f64, rate(row))).collect(),
    };
    vec![
        line("all-reduce", Row::rate),
        line("copy in memory", |row| row.limits.memory),
        line("copy through shared memory", |row| row.limits.shared),
        line("TCP within the host, not encrypted", |row| row.limits.tcp),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_of_all_ranks_and_what_they_cost() {
        let took = |steps: [f64; 3], processor| Took {
            steps: steps.to_vec(),
            processor,
        };
        let limits = Limits {
            memory: 4e9,
            shared: 2e9,
            tcp: 1e9,
        };
        let row = Row::of(
            1_000_000_000,
            &[took([1.0, 2.0, 3.0], 4.0), took([1.5, 2.0, 9.0], 5.0)],
            limits,
            None,
            vec![LinkKind::Quic],
        );
        assert_eq!((row.median, row.least, row.steps), (2.0, 1.0, 3));
        assert_eq!(row.processor, 3.0, "9 s for 3 GB");
        assert_eq!(row.rate(), 5e8);
        assert!(
            row.line().contains("0.50      3.00") && row.line().ends_with("  QUIC"),
            "{}",
            row.line()
        );
        assert_eq!(row.json()["median_seconds"], 2.0);
        assert_eq!((row.of_limit(), &row.json()["links"]), (0.5, &json!(["QUIC"])));
        let near = Row {
            links: vec![LinkKind::SharedMemory],
            ..row.clone()
        };
        assert_eq!(near.of_limit(), 0.25, "which could pass twice as much");
        let crossing = Row {
            crossing: Some(1.5),
            ..row
        };
        assert_eq!((crossing.of_limit(), &crossing.json()["of_limit"]), (0.75, &json!(0.75)));
    }
}
