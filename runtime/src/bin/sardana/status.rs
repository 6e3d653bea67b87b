//! `sardana status`: how a job stands.

use std::io::{IsTerminal, stdin, stdout};

use clap::Args;
use sardana::operator::watch::{Watched, watch};
use sardana::operator::{Access, JobStatus, LinksShown, OperatorAnswer, OperatorRequest, ask, json, table};

use crate::asking::Target;
use crate::ending::{Failure, runtime};

/// Show how a job stands: which worker computes what, how fast, what passes their links, and what happened last.
///
/// A line about links is of all links of one kind from one worker to another, of the generation under way: how many they are, bytes sent
/// with the frames' headers, and bytes a second over the last seconds. Over QUIC it has the sender's losses and round trip as well; these are of the connection,
/// which all that the two say to each other shares. The worst come first: those that lose most, then the slowest.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana status                       the only job that you run on this host\n  \
    sardana status --watch               until q or Esc\n  \
    sardana status --links               all links between workers\n  \
    sardana status --json | jq .step\n\n\
    Exit codes: 0 shown, 1 no job could be asked, or what it says could not be written, 2 wrong usage.")]
pub(crate) struct Status {
    /// Show it on the whole screen, again and again, until q or Esc.
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Show all links between workers, not only the worst. JSON has them anyway.
    #[arg(long, conflicts_with = "watch")]
    links: bool,
    /// Print it as JSON, for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Status {
    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        runtime()?.block_on(async {
            let access = self.target.find().await?;
            let has_terminal = stdin().is_terminal() && stdout().is_terminal();
            if self.watch && has_terminal {
                return show(&access).await;
            }
            if self.watch {
                eprintln!("sardana status: --watch needs a terminal, found none: the status is printed once");
            }
            let status = status(&access).await?;
            let shown = if self.links { LinksShown::All } else { LinksShown::Worst };
            if self.json {
                println!("{}", json(&status));
            } else {
                print!("{}", table(&status, shown));
            }
            Ok(())
        })
    }
}

async fn status(access: &Access) -> Result<JobStatus, Failure> {
    match ask(access, &OperatorRequest::Status).await.map_err(Failure::failed)? {
        OperatorAnswer::Status(status) => Ok(*status),
        OperatorAnswer::Refused { reason } | OperatorAnswer::Done { what: reason } => Err(Failure::Failed(reason)),
    }
}

async fn show(access: &Access) -> Result<(), Failure> {
    match watch(access).await.map_err(Failure::failed)? {
        Watched::Enough => {}
        Watched::Over(last) => {
            print!("{}", table(&last, LinksShown::Worst));
            println!("\nthe job is over; this was the last that was seen of it");
        }
    }
    Ok(())
}
