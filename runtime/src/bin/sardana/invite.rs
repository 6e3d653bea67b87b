//! `sardana invite`: a join file for a user of another host.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sardana::hosts::{InviteConfig, Role, invite};

use crate::ending::Failure;

/// Write a join file, with which a worker, an agent, an operator or a checkpoint actor gets into the job.
///
/// Its holder can use it: carry it over a safe way, such as scp. It is of mode 0600, and an existing file is kept. Once used it
/// serves its holder again and again, until it expires: a user on a host, where the key is kept that it was used with.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana invite --state-dir job -o agent.join\n  \
    sardana invite --state-dir job --role operator --expires 8h --uses 20 -o operator.join\n\n\
    Exit codes: 0 written, 1 not written, 2 wrong usage.")]
pub(crate) struct Invite {
    /// The coordinator's state directory.
    #[arg(long, value_name = "DIR")]
    state_dir: PathBuf,
    /// What the holder becomes.
    #[arg(long, value_enum, default_value_t = Invited::Agent)]
    role: Invited,
    /// For how long it can be used: a number with s, m, h or d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = span)]
    expires: Duration,
    /// How many holders can use it. Each agent and each checkpoint actor that runs at the same time counts.
    #[arg(long, value_name = "N", default_value_t = 1)]
    uses: u32,
    /// The path of the join file.
    #[arg(short = 'o', long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Invited {
    Worker,
    Agent,
    Operator,
    Checkpoint,
}

impl Invite {
    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        let role = match self.role {
            Invited::Worker => Role::Worker,
            Invited::Agent => Role::Agent,
            Invited::Operator => Role::Operator,
            Invited::Checkpoint => Role::Checkpoint,
        };
        let config = InviteConfig {
            state_dir: self.state_dir,
            role,
            expires: self.expires,
            uses: self.uses,
            out: self.out,
        };
        invite(&config).map_err(Failure::failed)?;
        println!("{}", config.out.display());
        Ok(())
    }
}

fn span(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a number with s, m, h or d, such as 90s or 8h, found `{text}`");
    let unit = text.chars().last().ok_or_else(expected)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(expected()),
    };
    let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| expected())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(expected)
}
