//! `sardana run`: a whole job on this host.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anstream::{AutoStream, ColorChoice};
use clap::{Args, ValueEnum};
use sardana::device::DeviceChoice;
use sardana::hosts::default_place;
use sardana::job::Staffing;
use sardana::launch::{Colour, LOG_BYTES, LOG_FILES, LaunchConfig, LogBounds, Output, Steering, launch};
use sardana::notices::NoticesConfig;
use sardana::{Balance, Checkpointing, LINK_VARIABLE, Summary, train};

use crate::ending::{EndSignal, EndSignals, Failure, runtime};
use crate::notices::{Heeding, Whose, stop_at};
use crate::saving::{Saving, SavingPlace};

/// Run a job on this host: N workers of PROGRAM, a coordinator and an agent.
///
/// PROGRAM is any program that embeds the `sardana` library and calls `sardana::train` or `sardana::serve_if_started_by_agent`, or
/// `sardana::group::join` if it trains in its own way.
/// Workers that die are replaced; the others go on at once, and the final state is that of an undisturbed run. SIGINT or SIGTERM
/// ends the job at the next step's boundary, a second one at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana run -n 4 -- ./train --epochs 3\n  \
    sardana run -n 8 --min 4 --restarts 100 --log-dir logs -- ./train\n\n\
    Exit codes: 0 the job is done, 1 it failed, 2 wrong usage, 130 or 143 ended at once by a second SIGINT or SIGTERM.")]
pub(crate) struct Run {
    /// How many workers to start.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// Fewer workers than this do not train: the job waits.
    #[arg(long, value_name = "M", default_value_t = 1)]
    min: u32,
    /// Workers beyond this are spares, which step in at once.
    #[arg(long, value_name = "M", default_value_t = 1024)]
    max: u32,
    /// How many times in all a worker that ended badly is replaced.
    #[arg(long, value_name = "R", default_value_t = 3)]
    restarts: u32,
    #[command(flatten)]
    balancing: Balancing,
    #[command(flatten)]
    linking: Linking,
    #[command(flatten)]
    computing: Computing,
    #[command(flatten)]
    saving: Saving,
    #[command(flatten)]
    saving_place: SavingPlace,
    /// Where the coordinator listens. Port 0 takes any.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The cloud whose notices are watched for: when it says that it takes this machine away, the job ends at the next boundary, as by a
    /// signal. By default none: this job has no other host to go on with, and would end early where it might have finished.
    #[arg(long, value_enum, value_name = "WHOSE", default_value_t = Whose::None)]
    notices: Whose,
    #[command(flatten)]
    heeding: Heeding,
    #[command(flatten)]
    printing: Printing,
    /// The program, and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// How the work is divided among the workers.
#[derive(Debug, Args)]
pub(crate) struct Balancing {
    /// Whether shards move towards faster workers, so that all finish together. In exact order that never reaches the result.
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true, default_value_t = Switch::On)]
    balance: Switch,
}

/// What the links between workers go through.
#[derive(Debug, Default, Args)]
pub(crate) struct Linking {
    /// What sums of gradients go through: by default memory that workers of one host share, and QUIC between hosts.
    #[arg(long, value_name = "auto|quic", value_enum, hide_possible_values = true, default_value_t = Link::Auto)]
    link: Link,
}

/// What workers compute on.
#[derive(Debug, Default, Args)]
pub(crate) struct Computing {
    /// What workers compute on: `cuda` is a GPU for each, of those that CUDA_VISIBLE_DEVICES names or else all, in turn if there are fewer;
    /// `cuda:N` the one of that number for all. An instance of a divided one (MIG) counts as a GPU. `auto`, the default, is `cuda` if there are GPUs and `cpu` otherwise, as far as the program
    /// can. SARDANA_DEVICE says the same where this is left out. It never reaches the result.
    #[arg(long, value_name = "auto|cpu|cuda|cuda:N")]
    device: Option<DeviceChoice>,
}

impl Computing {
    pub(crate) fn device(&self) -> Result<DeviceChoice, Failure> {
        DeviceChoice::said(self.device).map_err(Failure::usage)
    }
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Link {
    #[default]
    Auto,
    Quic,
}

impl Linking {
    /// What workers find of it in their environment.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        match self.link {
            // What is set for this program holds for its workers.
            Link::Auto => Vec::new(),
            Link::Quic => vec![(LINK_VARIABLE.into(), "quic".into())],
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl From<Balancing> for Balance {
    fn from(balancing: Balancing) -> Self {
        match balancing.balance {
            Switch::On => Self::default(),
            Switch::Off => Self::Off,
        }
    }
}

/// Where the output of workers goes.
#[derive(Debug, Args)]
pub(crate) struct Printing {
    /// Keep the output of each worker in a file of this folder as well, named after the worker.
    #[arg(long, value_name = "DIR", conflicts_with = "no_prefix")]
    log_dir: Option<PathBuf>,
    /// Most MiB that are kept of each worker's output: in the file, and the part before it in a second one that ends in .1.
    #[arg(long, value_name = "MIB", requires = "log_dir", default_value_t = LOG_BYTES >> 20, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    log_mib: u64,
    /// Of how many workers the output is kept, beyond those that run: of the last ones.
    #[arg(long, value_name = "N", requires = "log_dir", default_value_t = LOG_FILES)]
    log_files: usize,
    /// Pass on the output of workers as it is, without [rank worker] before each line.
    #[arg(long)]
    no_prefix: bool,
}

impl Printing {
    pub(crate) fn output(self) -> Result<Output, Failure> {
        if self.no_prefix {
            return Ok(Output::Inherit);
        }
        // NO_COLOR and its like are honoured.
        let plain =
            [AutoStream::choice(&std::io::stdout()), AutoStream::choice(&std::io::stderr())].contains(&ColorChoice::Never);
        let output = Output::Prefixed {
            log_dir: self.log_dir,
            bounds: LogBounds::new(self.log_mib << 20, self.log_files),
            colour: if plain { Colour::Off } else { Colour::On },
        };
        output.check().map_err(Failure::usage)?;
        Ok(output)
    }
}

/// A job on this host only keeps its checkpoints here, or nowhere.
fn checkpointing(saving: Saving, place: SavingPlace) -> Result<Option<Checkpointing>, Failure> {
    match (saving.saves(), place.checkpoint_dir) {
        (Some(saves), Some(dir)) => {
            let mirror = saving.mirror;
            Ok(Some(Checkpointing { dir, saves, mirror }))
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err(Failure::Usage(
            "expected --checkpoint-dir DIR with --checkpoint-every: say where checkpoints are kept".to_owned(),
        )),
        (None, Some(_)) => Err(Failure::Usage(
            "expected --checkpoint-every STEPS|TIME with --checkpoint-dir: say how often checkpoints are taken".to_owned(),
        )),
    }
}

impl Run {
    fn config(self) -> Result<(LaunchConfig, Option<NoticesConfig>), Failure> {
        let Self {
            workers,
            min,
            max,
            restarts,
            balancing,
            linking,
            computing,
            saving,
            saving_place,
            listen,
            notices,
            heeding,
            printing,
            program,
        } = self;
        if !(1 <= min && min <= workers && workers <= max) {
            return Err(Failure::Usage(format!(
                "expected 1 <= --min <= --workers <= --max, found --min {min}, --workers {workers}, --max {max}"
            )));
        }
        let (program, arguments) = split(program)?;
        let staffing = Staffing {
            workers,
            min,
            max,
            restarts,
            shard_capacity: None,
            balance: balancing.into(),
        };
        let mut launch = LaunchConfig {
            listen,
            output: printing.output()?,
            checkpoints: checkpointing(saving, saving_place)?,
            ..LaunchConfig::program(program, arguments, staffing)
                .on(computing.device()?)
                .map_err(Failure::failed)?
        };
        launch.environment.extend(linking.environment());
        Ok((launch, heeding.config(notices)))
    }

    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        let (config, notices) = self.config()?;
        // The workers that a second signal leaves behind end with the runtime.
        let summary = runtime()?.block_on(async {
            let signals = EndSignals::catch()?;
            let mut launched = launch(config).await.map_err(Failure::failed)?;
            // Without it the job runs as well, only no operator finds it.
            let offered = default_place().and_then(|place| launched.operator_join_file(&place).map(Path::to_owned));
            match offered {
                Ok(path) => {
                    tracing::info!(target: "sardana::event::operators", path = %path.display(), "operators of this user may join");
                }
                Err(error) => tracing::warn!(target: "sardana::event::operators", %error, "no operator can join"),
            }
            let steering = launched.steering();
            let finishing = launched.finish(|_, event| train::log(event));
            tokio::select! {
                biased;
                finished = finishing => finished.map_err(Failure::failed),
                signal = twice(signals, &steering) => Err(Failure::Ended(signal)),
                never = stop_at(notices, &steering) => match never {},
            }
        })?;
        print(&summary);
        Ok(())
    }
}

/// A command line's program, and its arguments.
pub(crate) fn split(command: Vec<OsString>) -> Result<(PathBuf, Vec<OsString>), Failure> {
    let mut words = command.into_iter();
    match words.next() {
        Some(program) if !program.is_empty() => Ok((program.into(), words.collect())),
        Some(_) | None => Err(Failure::Usage("expected a program after --, found none".to_owned())),
    }
}

/// The first signal ends the job at a boundary. Returns with the second.
pub(crate) async fn twice(mut signals: EndSignals, steering: &Steering) -> EndSignal {
    let signal = signals.next().await;
    tracing::warn!(target: "sardana::event::signal", %signal, "the job ends at the next boundary; once more to end it at once");
    steering.request_stop();
    signals.next().await
}

pub(crate) fn print(summary: &Summary) {
    if summary.is_of_a_group() {
        return println!("the group is done");
    }
    for (name, value) in &summary.results {
        println!("{name}: {value}");
    }
    println!("steps: {}", summary.step.get());
    println!("order of addition: {}{}", summary.order, summary.compression.behind_order());
    println!(
        "shard gradients computed: {}, of them again: {}",
        summary.computed, summary.recomputed
    );
    if summary.unknown > 0 {
        println!("counts that are not known: {}", summary.unknown);
    }
    println!("state: {}", summary.hash);
}
