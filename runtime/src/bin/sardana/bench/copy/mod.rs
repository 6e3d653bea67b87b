//! `sardana bench copy`: what it costs that a worker joins, is killed and replaced, or reads a checkpoint, by the size of the state.

mod course;
mod diary;
mod limits;
pub(super) mod member;
mod phases;
mod report;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::statvfs;
use sardana::job::Staffing;
use sardana::launch::LaunchConfig;
use sardana::{Balance, Checkpointing, Every};
use sardana_actors::memory::available;

use super::plot::Picture;
use super::progress::Progress;
use super::sizes;
use crate::ending::{EndSignals, Failure, runtime};
use crate::run::Linking;
use course::Course;
use limits::{Limits, at_hand, forget};
use member::Carrying;
use report::Report;

/// Copy a state between workers of this host, and to and from its disk, and print what it takes
///
/// A job of real worker processes trains a state of that size; its gradients are one number and sleep, so that processors are there for the
/// copying. Then, one after the other:
///
///   join     one more worker is asked for: from the start of its process to its hello; from there until the others have a snapshot of the
///            state, copied and hashed; until the newcomer has all of it, copied and compared with the hashes, and in how many MiB/s; until
///            it has loaded the state, compared it again, and caught up; until it computes gradients. Beside it the longest step of the
///            others meanwhile, and their median before; and what all of them have of processors from the request on, in seconds for
///            each 10⁹ bytes of the state;
///   kill     a member gets SIGKILL: until the others make the next update, and until another process computes in its place, by the same parts;
///   save     the job is stopped: from the request, with the step under way and the snapshot, to the last byte of the checkpoint on the disk;
///   restore  the job is started again, and nothing of the checkpoint is in memory: from its choice until each worker has read all of it
///            and has compared every byte with its hash; and what they have of processors until they have loaded it.
///
/// Limits of this machine, measured before: a copy of as many bytes into memory that nobody had, by one thread; TCP over loopback, not
/// encrypted, from and into a few megabytes, and of as many bytes at once, as a state is sent and received; a file of as many bytes, of which
/// nothing is in memory, read by as many threads as there are workers at once, each into memory of its own. Rates are bytes of the state over time. A joiner copies through memory that both processes map, or over QUIC, as --link says.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  \
    sardana bench copy\n  \
    sardana bench copy --state 256MiB -n 2 --link quic\n  \
    sardana bench copy --state 64MiB --step-ms 0 --kills 20     no gradient sleeps\n  \
    sardana bench copy --trained                                updates change all of the state\n  \
    sardana bench copy --dir /mnt/data --json | jq '.restore.bytes_per_second'\n  \
    sardana bench copy --svg copy.svg"
)]
pub(super) struct Copy {
    /// Bytes of the state.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = sizes::size)]
    state: u64,
    /// How many workers train before one more joins.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    ranks: u32,
    /// How long a step of these workers takes, in milliseconds: their gradients sleep as long.
    #[arg(long, value_name = "MS", default_value_t = 40, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    step_ms: u64,
    /// Let updates wait until the state has been copied, as where they change all of it. Otherwise it is as where they change little: frozen
    /// weights with adapters, say, whose copy outlives them.
    #[arg(long)]
    trained: bool,
    /// How many times a worker is killed.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=1_000))]
    kills: u16,
    #[command(flatten)]
    linking: Linking,
    /// A folder on the disk that is measured, which is left as it was. By default the one for temporary files.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
    /// Draw the workers' ways into the job as well, into this file: of those that were killed the first eight.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Copy {
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        // What cannot fit is said before anything is measured.
        self.check_memory(available())?;
        let parent = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let picture = Picture::create(self.svg.as_deref())?;
        let place = tempfile::tempdir_in(&parent).map_err(|error| cannot_write(&parent, &error))?;
        self.check_disk(&parent, free(&parent)?)?;
        let progress = Progress::new();
        let report = runtime()?.block_on(async {
            let mut signals = EndSignals::catch()?;
            // Whatever ends it, the folder goes.
            tokio::select! {
                biased;
                signal = signals.next() => Err(Failure::Ended(signal)),
                report = self.measure(place.path(), &progress) => report,
            }
        })?;
        if self.json {
            println!("{}", report.json());
        } else {
            progress.print(report.text().trim_end());
        }
        let title = format!("a state of {}, and {} workers", sizes::words(self.state), self.ranks);
        picture.map_or(Ok(()), |picture| picture.draw_bars(&title, &report.bars()))
    }

    async fn measure(&self, place: &Path, progress: &Progress) -> Result<Report, Failure> {
        let bytes = usize::try_from(self.state).map_err(Failure::failed)?;
        progress.say("measuring what this machine could do at most");
        let limits = Limits::measure(bytes, self.ranks, place).map_err(Failure::failed)?;
        let (config, carrying) = self.job(place, "first")?;
        at_hand(bytes.saturating_mul(self.ranks as usize + 3));
        progress.say(format!("{} workers train, and one joins", self.ranks));
        let mut course = Course::begin(config).await?;
        let join = phases::join(&mut course, self.ranks, &carrying.folder).await?;
        progress.say(format!("{} kills", self.kills));
        let kills = phases::kill(&mut course, self.kills.into(), self.ranks + 1, &carrying.folder).await?;
        progress.say("saving the last state");
        let save = phases::save(course).await?;
        let (config, carrying) = self.job(place, "again")?;
        for segment in std::fs::read_dir(place.join("checkpoints/segments")).map_err(Failure::failed)? {
            forget(&segment.map_err(Failure::failed)?.path()).map_err(Failure::failed)?;
        }
        at_hand(bytes.saturating_mul(self.ranks as usize + 1));
        progress.say("restoring it");
        let restore = phases::restore(config, &carrying.folder).await?;
        Ok(Report {
            state: self.state,
            ranks: self.ranks,
            limits,
            join,
            kills,
            save,
            restore,
        })
    }

    /// A job whose workers keep their diaries in the folder `name` of `place`, and which keeps its checkpoints there.
    fn job(&self, place: &Path, name: &str) -> Result<(LaunchConfig, Carrying), Failure> {
        let folder = place.join(name);
        std::fs::create_dir(&folder).map_err(Failure::failed)?;
        // As many for each, with one worker more and without.
        let shards = self.ranks * (self.ranks + 1);
        let carrying = Carrying {
            state: self.state,
            shards,
            rest_us: self.step_ms * 1_000 / u64::from(self.ranks + 1),
            trained: self.trained,
            folder,
        };
        let staffing = Staffing {
            workers: self.ranks,
            min: self.ranks.min(2),
            max: self.ranks + 1,
            restarts: u32::MAX,
            shard_capacity: None,
            balance: Balance::Off,
        };
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let mut config = LaunchConfig::program(program, carrying.arguments(), staffing);
        config.environment.extend(self.linking.environment());
        // Only its last state is saved.
        let never = Every::Steps(NonZeroU64::MAX);
        config.checkpoints = Some(Checkpointing::new(place.join("checkpoints"), never));
        Ok((config, carrying))
    }

    /// A member has the state, a copy of it for its probe, and two shares of a snapshot; one that joins has what it receives besides.
    fn check_memory(&self, available: Option<u64>) -> Result<(), Failure> {
        let needed = self
            .state
            .saturating_mul(u64::from(2 * self.ranks + 4))
            .saturating_add(SPARE_BYTES);
        match available {
            Some(available) if available < needed => Err(self.too_large("of memory", needed, available)),
            Some(_) | None => Ok(()),
        }
    }

    /// The checkpoint, and before it a plain file, lie on the disk.
    fn check_disk(&self, parent: &Path, free: u64) -> Result<(), Failure> {
        let needed = self.state.saturating_add(self.state / 8).saturating_add(SPARE_BYTES);
        if free < needed {
            return Err(self.too_large(&format!("at {}", parent.display()), needed, free));
        }
        Ok(())
    }

    fn too_large(&self, of_what: &str, needed: u64, left: u64) -> Failure {
        Failure::Failed(format!(
            "a state of {} with {} workers needs {} {of_what}, and {} are left: give a smaller --state, fewer workers (-n) or another --dir",
            sizes::words(self.state),
            self.ranks,
            sizes::words(needed),
            sizes::words(left),
        ))
    }
}

fn cannot_write(folder: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!(
        "expected a folder that files can be written to, found {}: {error}; create it, or name another one by --dir",
        folder.display()
    ))
}

/// What processes and their files take besides.
const SPARE_BYTES: u64 = 256 << 20;

/// Bytes that may still be written in a folder.
fn free(folder: &Path) -> Result<u64, Failure> {
    let found = statvfs(folder).map_err(Failure::failed)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_does_not_fit_is_refused_with_what_it_needs() {
        let copy = Copy {
            state: 1 << 30,
            ranks: 3,
            step_ms: 40,
            trained: false,
            kills: 0,
            linking: Linking::default(),
            dir: None,
            json: false,
            svg: None,
        };
        copy.check_memory(None).unwrap();
        copy.check_memory(Some(11 << 30)).unwrap();
        let refused = copy.check_memory(Some(9 << 30)).unwrap_err().to_string();
        assert!(
            refused.contains("needs 10.2 GiB of memory, and 9.0 GiB are left"),
            "{refused}"
        );
        copy.check_disk(Path::new("/there"), 2 << 30).unwrap();
        let refused = copy.check_disk(Path::new("/there"), 1 << 30).unwrap_err().to_string();
        assert!(refused.contains("at /there, and 1.0 GiB are left"), "{refused}");
    }
}
