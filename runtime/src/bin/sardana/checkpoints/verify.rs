//! `sardana checkpoints verify`: whether what is there is what was saved.

use clap::Args;
use sardana::checkpoints::{Checkpoints, Verification, short};
use sardana::operator::{count, plain};

use super::place::Remote;
use super::words::size;
use super::{Opened, Source, bar};
use crate::ending::Failure;

/// Read every byte, compare it with what was saved, and say of each checkpoint whether it can be used.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana checkpoints verify DIR\n  \
    sardana checkpoints verify DIR --also COPY --heal\n\n\
    Exit codes: 0 all is whole, 1 something is wrong (it is said what, where, and what to do), 2 wrong usage.")]
pub(super) struct Verify {
    #[command(flatten)]
    source: Source,
    /// Write what is damaged or missing in DIR anew, with bytes from wherever they are whole: the directories given with --also.
    #[arg(long)]
    heal: bool,
}

impl Verify {
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        let checkpoints = match self.source.open_quietly()? {
            Opened::Here(checkpoints) => checkpoints,
            Opened::Remote(remote) => return self.carry_out_remotely(&remote),
        };
        let mut verification = verify(&checkpoints);
        if self.heal && !verification.is_clean() {
            let healed = checkpoints.heal(&verification).map_err(Failure::failed)?;
            println!(
                "{} written anew; {} in no directory",
                count(healed.pieces as u64, "piece"),
                count(healed.lost as u64, "piece")
            );
            verification = verify(&checkpoints);
        }
        print_directories(&verification);
        print_checkpoints(&verification);
        if verification.is_clean() {
            Ok(())
        } else {
            Err(Failure::Failed(advice(&verification)))
        }
    }

    fn carry_out_remotely(&self, remote: &Remote) -> Result<(), Failure> {
        if self.heal {
            return Err(Failure::Usage(format!(
                "expected a directory with --heal, found the mirror {0}; what is damaged there is written anew by a copy of a whole \
                 checkpoint (sardana checkpoints copy DIR {0} STEP --compare)",
                remote.mirror
            )));
        }
        let bar = bar(0);
        let verification = remote.wait(remote.mirror.verify(|bytes| {
            bar.inc_length(bytes);
            bar.inc(bytes);
        }));
        bar.finish_and_clear();
        let verification = verification.map_err(Failure::failed)?;
        for (path, verified) in &verification.directories {
            let (pieces, bytes) = (count(verified.pieces, "piece"), size(verified.bytes));
            let not = verification.lacking.len();
            println!("{}: {pieces} of {bytes} read and whole, {not} not", path.display());
        }
        print_checkpoints(&verification);
        if verification.is_clean() {
            return Ok(());
        }
        Err(Failure::Failed(format!(
            "{}. If a directory has it whole, write what is damaged anew (sardana checkpoints copy DIR {1} STEP --compare); otherwise delete what cannot be used (sardana checkpoints prune {1} --delete ID)",
            found(&verification),
            remote.mirror
        )))
    }
}

fn verify(checkpoints: &Checkpoints) -> Verification {
    let bar = bar(0);
    let verification = checkpoints.verify(&mut |progress| {
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.done_bytes);
    });
    bar.finish_and_clear();
    verification
}

fn print_directories(verification: &Verification) {
    for (path, verified) in &verification.directories {
        println!(
            "{}: {} of {} read and whole, {} not",
            path.display(),
            count(verified.pieces, "piece"),
            size(verified.bytes),
            verified.harmed.len()
        );
        for harm in &verified.harmed {
            println!("  {}", harm.reason);
        }
    }
    for noticed in &verification.noticed {
        println!("note: {noticed}");
    }
}

fn print_checkpoints(verification: &Verification) {
    for checked in &verification.checkpoints {
        let name = short(checked.key);
        match (checked.state, checked.problems.is_empty(), checked.elsewhere) {
            (Some(state), true, 0) => println!("{name}: whole, state {state}"),
            (_, true, elsewhere) => println!(
                "{name}: what is here is whole; not usable without {} of other hosts: name their directories with --also",
                count(elsewhere as u64, "piece")
            ),
            (_, false, _) => {
                println!("{name}: not usable");
                for problem in &checked.problems {
                    println!("  {}", plain(problem));
                }
            }
        }
    }
}

fn found(verification: &Verification) -> String {
    let all = &verification.checkpoints;
    let bad = all.iter().filter(|checked| !checked.problems.is_empty()).count();
    let newest = all.iter().rev().find(|checked| checked.is_usable());
    let newest = newest.map_or_else(
        || "none of them can be used".to_owned(),
        |checked| format!("{} is the newest that can", short(checked.key)),
    );
    if bad == 0 {
        "something is damaged, but every checkpoint can be read from the directories given".to_owned()
    } else {
        format!("{bad} of {} cannot be used; {newest}", count(all.len() as u64, "checkpoint"))
    }
}

fn advice(verification: &Verification) -> String {
    let found = found(verification);
    format!(
        "{found}. If another directory has what is damaged (that of another host, or a copy), verify again with --also OTHER --heal, or \
         copy a whole checkpoint here (sardana checkpoints copy OTHER DIR STEP); otherwise delete what cannot be used (sardana \
         checkpoints prune DIR --delete ID). See whether the disk is failing"
    )
}
