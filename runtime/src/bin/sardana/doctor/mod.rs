//! `sardana doctor`: what this machine has of what a job uses, what each is needed for, and what to do where it is missing.

mod finding;
mod gpus;
mod host;

use clap::Args;
use serde_json::json;

use crate::ending::Failure;
use finding::{Finding, State};

/// Look at this machine: processors, memory, loopback, limits of the system, GPUs and their libraries; what each is needed for, and what to do
/// where something is missing.
///
/// Nothing is changed, and no job is asked. `fine` is as it should be, `limited` is less than it could be, `missing` is not there, which may be as it
/// should be, and `unknown` is what this system does not tell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana doctor                       what is here, and what to do about it\n  \
    sardana doctor --json | jq '.findings[] | select(.state != \"fine\")'\n\n\
    Exit codes: 0 shown, 1 it could not be written, 2 wrong usage.")]
pub(crate) struct Doctor {
    /// Print it as JSON, for programs.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        let findings: Vec<Finding> = host::findings().into_iter().chain(gpus::findings()).collect();
        if self.json {
            let all: Vec<_> = findings.iter().map(Finding::json).collect();
            println!("{}", json!({ "program": env!("CARGO_PKG_VERSION"), "findings": all }));
            return Ok(());
        }
        for finding in &findings {
            print!("{}", finding.text());
        }
        println!("{}", summary(&findings));
        Ok(())
    }
}

fn summary(findings: &[Finding]) -> String {
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let states = [State::Fine, State::Limited, State::Missing, State::Unknown];
    let counts: Vec<String> = states
        .into_iter()
        .map(|state| format!("{} {}", count(state), state.word()))
        .collect();
    format!("\n{}", counts.join(", "))
}
