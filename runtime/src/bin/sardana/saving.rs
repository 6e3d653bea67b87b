//! The flags that say when checkpoints are taken, where they are kept, and for how long: shared by the commands that start jobs.

use std::path::PathBuf;

use clap::Args;
use sardana::checkpoints::mirror::MirrorUrl;
use sardana::checkpoints::{Every, Keep};
use sardana::hosts::HostName;
use sardana_protocol::limits::MAX_DEPOTS;
use sardana_protocol::membership::Saves;

/// When checkpoints are taken, and how long they are kept: flags of the commands that lead a job.
#[derive(Debug, Clone, Args)]
pub(crate) struct Saving {
    /// Take a checkpoint every so many steps (100), or after so much time (500ms, 30s, 5m, 2h). Without this none is taken.
    ///
    /// Training stands still only while workers copy the state; the rest happens beside it. Another one is taken when the job is done or
    /// is stopped, and when its last workers leave. Some host must have a --checkpoint-dir: this one, or those of other agents; until one
    /// has, none is taken, and the job says so. A job that is started again goes on from the newest, with as many workers as it has then.
    #[arg(long, value_name = "STEPS|TIME")]
    checkpoint_every: Option<Every>,
    /// On how many hosts each checkpoint is kept: R - 1 of them may be lost for good. Where there are fewer hosts, it is kept on those that
    /// there are, and on more once they come. Hosts are told apart by their names: see --host of `sardana agent` and `sardana checkpoint`.
    #[arg(
        long, value_name = "R", default_value_t = 1, requires = "checkpoint_every",
        value_parser = clap::value_parser!(u32).range(1..=MAX_DEPOTS as i64)
    )]
    replicas: u32,
    /// Which checkpoints are kept: the newest N, and besides the first at or after each multiple of STEPS. Others are deleted once a newer
    /// one is complete; the newest always stays.
    #[arg(long, value_name = "last=N[,every=STEPS]", default_value_t, requires = "checkpoint_every")]
    keep: Keep,
    /// Copy the newest checkpoint to object storage, again and again, beside training: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,
    /// az://CONTAINER/PREFIX, or file:///FOLDER. Give each job a prefix of its own.
    ///
    /// A copy that takes longer than the next checkpoint is followed by the newest. What is there already is not sent again, and what is
    /// not kept here is not kept there. A mirror that is down is said, and never slows training; at the job's end the last checkpoint is
    /// waited for, 15 minutes at most. The host that leads the job must have a --checkpoint-dir of its own. Before the job
    /// begins, a checkpoint that is newer there than in --checkpoint-dir is brought from there: so a job whose disks
    /// are lost goes on. Credentials, and where the store is, come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    /// AWS_REGION, AWS_ENDPOINT_URL; GOOGLE_SERVICE_ACCOUNT; AZURE_STORAGE_ACCOUNT_NAME, and their like. Needs a sardana that was built
    /// with --features mirror.
    #[arg(long, value_name = "URL", requires = "checkpoint_every")]
    pub(crate) mirror: Option<MirrorUrl>,
}

impl Saving {
    /// What the coordinator is told; none if no checkpoints are wanted.
    pub(crate) fn saves(&self) -> Option<Saves> {
        self.checkpoint_every.map(|every| Saves {
            every,
            replicas: self.replicas,
            keep: self.keep,
        })
    }
}

/// Where checkpoints are kept: flags of the commands that run workers on this host.
#[derive(Debug, Clone, Args)]
pub(crate) struct SavingPlace {
    /// Keep the job's checkpoints in this directory of this host: one of your own, made if it is not there, on a disk that outlives the
    /// machine if it may be taken away. Look after it with `sardana checkpoints`.
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoint_dir: Option<PathBuf>,
}

/// What this host is called: a flag of the commands for a host that is one of several.
#[derive(Debug, Clone, Args)]
pub(crate) struct Naming {
    /// What this host is called in the job's status, and when checkpoints are placed; by default what the system calls it.
    ///
    /// Replicas are for hosts that are lost: each checkpoint is on --replicas hosts, and two checkpoint directories on one machine are
    /// one host, of which only one is used, unless they are told other names. Give other names only to what is lost separately: other
    /// machines, or other disks if the machine itself is not what you fear for. Letters, digits, dots, hyphens and underscores.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<HostName>,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        saving: Saving,
        #[command(flatten)]
        naming: Naming,
        #[command(flatten)]
        place: SavingPlace,
    }

    fn parse(line: &str) -> Result<Cli, String> {
        let words = std::iter::once("job").chain(line.split_whitespace());
        Cli::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_become_what_the_coordinator_is_told() {
        assert_eq!(parse("").unwrap().saving.saves(), None);
        let cli = parse("--checkpoint-every 100 --checkpoint-dir x").unwrap();
        let saves = cli.saving.saves().unwrap();
        assert_eq!(
            (saves.every, saves.replicas, saves.keep),
            ("100".parse().unwrap(), 1, Keep::default())
        );
        assert_eq!(cli.place.checkpoint_dir, Some(PathBuf::from("x")));
        let cli = parse("--checkpoint-every 30s --replicas 2 --keep last=1,every=10").unwrap();
        let saves = cli.saving.saves().unwrap();
        assert_eq!(saves.every.to_string(), "30000ms");
        assert_eq!((saves.replicas, saves.keep.to_string().as_str()), (2, "last=1,every=10"));
        let named = parse("--checkpoint-dir x --host rack-7.gpu_3").unwrap().naming.host;
        assert_eq!(named.map(String::from), Some("rack-7.gpu_3".to_owned()));
        assert_eq!(parse("--checkpoint-dir x").unwrap().naming.host, None);
        // A host may keep what another one decides to take.
        assert_eq!(parse("--checkpoint-dir x").unwrap().saving.saves(), None);
    }

    #[test]
    fn flags_that_make_no_sense_are_refused_with_what_would() {
        for (line, words) in [
            (
                "--checkpoint-every 0",
                &["--checkpoint-every", "a number of steps above 0", "30s"][..],
            ),
            ("--checkpoint-every often", &["often", "500ms"]),
            ("--checkpoint-every 5 --keep 3", &["--keep", "last=N", "last=3,every=1000"]),
            ("--checkpoint-every 5 --replicas 0", &["--replicas", "1..=64"]),
            ("--checkpoint-every 5 --replicas 65", &["--replicas", "1..=64"]),
            ("--host=", &["--host", "1 to 253 letters"]),
            ("--host a/b", &["--host", "letters, digits, dots"]),
            ("--replicas 2", &["--checkpoint-every"]),
            ("--keep last=2", &["--checkpoint-every"]),
        ] {
            let error = parse(line).unwrap_err();
            for word in words {
                assert!(error.contains(word), "{line}: {word} is missing from: {error}");
            }
        }
    }

    #[test]
    fn help_says_who_must_have_a_directory() {
        let help = Cli::command().render_long_help().to_string();
        for word in [
            "Some host must have a --checkpoint-dir",
            "R - 1 of them may be lost",
            "two checkpoint directories on one machine are one host",
            "the newest always stays",
            "[default: last=3]",
        ] {
            assert!(help.contains(word), "{word} is missing from: {help}");
        }
    }
}
