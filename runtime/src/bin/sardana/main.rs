//! The `sardana` program: runs jobs, watches them and steers them from the command line.

#[macro_use]
mod printing;

mod access;
mod agent;
mod asking;
mod bench;
mod checkpoint;
mod checkpoints;
mod coordinator;
mod data;
mod doctor;
mod drain;
mod ending;
mod invite;
mod kill;
mod logging;
mod notices;
mod run;
mod saving;
mod scale;
mod status;
mod stop;

use std::fmt;
use std::io::{Write, stderr};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use ending::Failure;
use logging::LogFormat;

/// Elastic data-parallel training: workers come and go, the result stays the same, bit for bit.
#[derive(Debug, Parser)]
#[command(
    version,
    about,
    after_help = "On one host:\n  \
        sardana run -n 4 -- ./train          a job with 4 workers\n  \
        sardana status --watch               see it run, from another terminal\n  \
        sardana drain r2                     let one worker leave\n  \
        sardana bench all-reduce             how fast this machine sums gradients\n  \
        sardana bench copy                   what a worker that joins costs the others\n  \
        sardana doctor                       what this machine has of what a job uses\n\n\
        RUST_LOG sets what is logged, for example RUST_LOG=sardana=debug."
)]
struct Cli {
    /// How the log on standard error is written.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Human)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Status(status::Status),
    Drain(drain::Drain),
    Kill(kill::Kill),
    Scale(scale::Scale),
    Stop(stop::Stop),
    Agent(agent::Agent),
    Invite(invite::Invite),
    Coordinator(coordinator::Coordinator),
    Checkpoint(checkpoint::Checkpoint),
    Checkpoints(checkpoints::Checkpoints),
    Data(data::Data),
    Bench(bench::Bench),
    Doctor(doctor::Doctor),
}

impl Command {
    /// What is logged of it, unless something else is asked for.
    const fn log_level(&self) -> &'static str {
        match self {
            // Of the jobs that it runs only what goes wrong is of interest.
            Self::Bench(_) => "warn",
            Self::Run(_)
            | Self::Status(_)
            | Self::Drain(_)
            | Self::Kill(_)
            | Self::Scale(_)
            | Self::Stop(_)
            | Self::Agent(_)
            | Self::Invite(_)
            | Self::Coordinator(_)
            | Self::Checkpoint(_)
            | Self::Checkpoints(_)
            | Self::Data(_)
            | Self::Doctor(_) => "info",
        }
    }

    /// Whether it does nothing else than what it prints. Others have done something, whatever becomes of their words.
    const fn is_for_its_words(&self) -> bool {
        match self {
            Self::Status(_) | Self::Bench(_) | Self::Doctor(_) => true,
            Self::Checkpoints(checkpoints) => checkpoints.is_for_its_words(),
            Self::Data(data) => data.is_for_its_words(),
            Self::Run(_)
            | Self::Drain(_)
            | Self::Kill(_)
            | Self::Scale(_)
            | Self::Stop(_)
            | Self::Agent(_)
            | Self::Invite(_)
            | Self::Coordinator(_)
            | Self::Checkpoint(_) => false,
        }
    }

    fn carry_out(self) -> Result<(), Failure> {
        match self {
            Self::Run(run) => run.carry_out(),
            Self::Status(status) => status.carry_out(),
            Self::Drain(drain) => drain.carry_out(),
            Self::Kill(kill) => kill.carry_out(),
            Self::Scale(scale) => scale.carry_out(),
            Self::Stop(stop) => stop.carry_out(),
            Self::Agent(agent) => agent.carry_out(),
            Self::Invite(invite) => invite.carry_out(),
            Self::Checkpoint(checkpoint) => checkpoint.carry_out(),
            Self::Coordinator(coordinator) => coordinator.carry_out(),
            Self::Checkpoints(checkpoints) => checkpoints.carry_out(),
            Self::Data(data) => data.carry_out(),
            Self::Bench(bench) => bench.carry_out(),
            Self::Doctor(doctor) => doctor.carry_out(),
        }
    }
}

/// Says it on standard error. Where that is full as well nothing can be said, and the exit code speaks.
fn say(words: fmt::Arguments<'_>) {
    let _ = writeln!(stderr(), "{words}");
}

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let word = matches.subcommand_name().unwrap_or_default();
    let Cli { log_format, command } = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    logging::start(log_format, command.log_level());
    let is_for_its_words = command.is_for_its_words();
    let code = match command.carry_out() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(format_args!("sardana {word}: {failure}"));
            failure.exit_code()
        }
    };
    let Some(error) = printing::finish() else { return code };
    say(format_args!(
        "sardana {word}: not all that it prints could be written: {error}; make room there, or let its standard output lead elsewhere"
    ));
    if is_for_its_words && code == ExitCode::SUCCESS {
        ExitCode::FAILURE
    } else {
        code
    }
}
