//! The `sardana` program: runs a job on this host from the command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use sardana::job::Staffing;
use sardana::launch::{LaunchConfig, Launched, launch};
use sardana::{Summary, train};
use tracing_subscriber::EnvFilter;

/// Elastic data-parallel training: workers come and go, the result stays the same, bit for bit.
#[derive(Debug, Parser)]
#[command(
    version,
    about,
    after_help = "RUST_LOG sets what is logged, for example RUST_LOG=sardana=debug."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a job on this host: N workers of PROGRAM, a coordinator and an agent.
    ///
    /// PROGRAM is any program that embeds the `sardana` library and calls `sardana::train` or
    /// `sardana::serve_if_started_by_agent`. Workers that die are replaced; the others go on at once, and the final state is that
    /// of an undisturbed run. SIGINT ends the job at the next step's boundary, a second one at once.
    #[command(
        after_help = "Exit codes: 0 the job is done, 1 it failed, 2 wrong usage, 130 ended at once by a second SIGINT."
    )]
    Run(Run),
}

#[derive(Debug, Args)]
struct Run {
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
    /// Where the coordinator listens. Port 0 takes any.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The program, and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Run {
    fn config(self) -> Result<LaunchConfig, String> {
        let Self {
            workers,
            min,
            max,
            restarts,
            listen,
            program,
        } = self;
        if !(1 <= min && min <= workers && workers <= max) {
            return Err(format!(
                "expected 1 <= --min <= --workers <= --max, found --min {min}, --workers {workers}, --max {max}"
            ));
        }
        let mut words = program.into_iter();
        let program = words
            .next()
            .map(PathBuf::from)
            .ok_or("expected a program after --, found none")?;
        let staffing = Staffing {
            workers,
            min,
            max,
            restarts,
            shard_capacity: None,
        };
        Ok(LaunchConfig {
            listen,
            ..LaunchConfig::program(program, words.collect(), staffing)
        })
    }
}

fn main() -> ExitCode {
    let Cli {
        command: Command::Run(run),
    } = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let config = match run.config() {
        Ok(config) => config,
        Err(reason) => {
            eprintln!("sardana run: {reason}");
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("sardana run: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(async {
        let launched = launch(config).await?;
        stop_on_interrupt(&launched);
        launched.finish(|_, event| train::log(event)).await
    });
    match outcome {
        Ok(summary) => {
            print(&summary);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("sardana run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The first SIGINT ends the job at a boundary, the second this process; the workers end with it.
fn stop_on_interrupt(launched: &Launched) {
    const AT_ONCE: i32 = 130;
    let stopper = launched.stopper();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            tracing::warn!("the job ends at the next boundary; once more to end it at once");
            stopper.request_stop();
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(AT_ONCE);
        }
    });
}

fn print(summary: &Summary) {
    for (name, value) in &summary.results {
        println!("{name}: {value}");
    }
    println!("steps: {}", summary.step.get());
    println!("order of addition: {}", summary.order);
    println!(
        "shard gradients computed: {}, of them again: {}",
        summary.computed, summary.recomputed
    );
    println!("state: {}", summary.hash);
}
