//! The ranks of NCCL, a process each, as the one that starts them has them: what they go through, and how long that takes. Must not know NCCL.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use sardana_cuda::inventory;

use super::super::times::quantile;
use super::rank::{Said, Told};
use super::row::Figure;

/// So many generations are measured, each of processes of its own; the median counts.
const TIMES: usize = 3;

/// Ranks that are enough: with more of them the next communicator takes longer.
const MOST_RANKS: usize = 8;

/// NCCL's first communicator of a process takes a few seconds; what takes longer than this stands still.
const PATIENCE: Duration = Duration::from_secs(30);

/// What goes wrong, in words.
type Seen<T> = Result<T, String>;

/// How long the abort takes, and the next communicator.
pub(super) fn measured() -> Seen<[Figure; 2]> {
    let gpus = inventory::gpus().map_err(|error| error.to_string())?.len().min(MOST_RANKS);
    let (mut aborts, mut renewals) = (Vec::with_capacity(TIMES), Vec::with_capacity(TIMES));
    for _ in 0..TIMES {
        let [abort, renewal] = generation(gpus)?;
        aborts.push(abort);
        renewals.push(renewal);
    }
    let figure = |seconds: &mut [f64], of: String| Figure {
        bytes: None,
        of: Some(of),
        ..Figure::moved(0, quantile(seconds, 0.5))
    };
    let (was, is) = if gpus == 1 {
        let alone = "of 1 rank, on the one GPU: no other can die";
        (alone.to_owned(), "of 1 rank".to_owned())
    } else {
        (
            format!("of {gpus} ranks, of which 1 was killed while the others waited for it in a sum"),
            format!("of {} ranks", gpus - 1),
        )
    };
    Ok([figure(&mut aborts, was), figure(&mut renewals, is)])
}

/// One communicator that works until its last rank is killed, if it has others, and the next one. Seconds of the longest abort, and of the next
/// communicator until all of its ranks are ready.
fn generation(gpus: usize) -> Seen<[f64; 2]> {
    let mut ranks = (0..gpus).map(Process::start).collect::<Seen<Vec<_>>>()?;
    join(&mut ranks)?;
    sum(&mut ranks)?;
    if let [survivors @ .., last] = &mut ranks[..]
        && !survivors.is_empty()
    {
        tell_all(survivors, &Told::BeginSum)?;
        for rank in survivors {
            rank.hears(&Said::Begun)?;
        }
        last.kill();
        ranks.pop();
    }
    let dies = gpus > 1;
    tell_all(&mut ranks, &Told::Abort)?;
    let mut longest = 0.0_f64;
    for rank in &mut ranks {
        let said = rank.hear()?;
        let Said::Aborted { seconds, hung } = said else {
            return Err(unexpected("an abort", &said));
        };
        if hung != dies {
            return Err(unexpected("a sum that waits, if a rank is dead", &said));
        }
        longest = longest.max(seconds);
    }
    let next = join(&mut ranks)?;
    sum(&mut ranks)?;
    Ok([longest, next])
}

/// Makes a communicator of them: seconds, with its id, until the last one is ready.
fn join(ranks: &mut [Process]) -> Seen<f64> {
    let count = ranks.len();
    let first = ranks.first_mut().ok_or("expected a GPU, found none")?;
    first.tell(&Told::MakeId)?;
    let said = first.hear()?;
    let Said::Id { id, seconds: made } = &said else {
        return Err(unexpected("an id", &said));
    };
    for (rank, process) in ranks.iter_mut().enumerate() {
        let id = id.clone();
        process.tell(&Told::Join { id, rank, ranks: count })?;
    }
    let mut longest = 0.0_f64;
    for process in ranks {
        let said = process.hear()?;
        let Said::Joined { seconds } = said else {
            return Err(unexpected("a rank that has joined", &said));
        };
        longest = longest.max(seconds);
    }
    Ok(made + longest)
}

/// A sum that all take part in. NCCL connects ranks by it.
fn sum(ranks: &mut [Process]) -> Seen<()> {
    let expected = ranks.len() as f32;
    tell_all(ranks, &Told::BeginSum)?;
    for rank in &mut *ranks {
        rank.hears(&Said::Begun)?;
    }
    tell_all(ranks, &Told::EndSum)?;
    for rank in ranks {
        rank.hears(&Said::Summed(expected))?;
    }
    Ok(())
}

fn tell_all(ranks: &mut [Process], told: &Told) -> Seen<()> {
    ranks.iter_mut().try_for_each(|rank| rank.tell(told))
}

fn unexpected(expected: &str, found: &Said) -> String {
    match found {
        // In NCCL's words, or the driver's: expected, found, and what to do.
        Said::Failed(words) => words.clone(),
        other @ (Said::Ready
        | Said::Id { .. }
        | Said::Joined { .. }
        | Said::Begun
        | Said::Summed(_)
        | Said::Aborted { .. }) => format!("expected {expected}, found {other:?}: report it, with NCCL's version"),
    }
}

/// A rank. It is killed with this.
struct Process {
    child: Child,
    into: ChildStdin,
    said: Receiver<String>,
}

impl Process {
    fn start(gpu: usize) -> Seen<Self> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .args(["bench", "gpu-rank"])
            // What it says by itself must not come between answers.
            .env("NCCL_DEBUG_FILE", "/dev/stderr")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("expected to start a rank, found that {error}"))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (into, from) = pipes.expect("both were asked for");
        let (tell, said) = channel();
        thread::spawn(move || {
            let mut lines = BufReader::new(from).lines().map_while(Result::ok);
            lines.try_for_each(|line| tell.send(line))
        });
        let mut rank = Self { child, into, said };
        rank.tell(&Told::Use(gpu))?;
        rank.hears(&Said::Ready)?;
        Ok(rank)
    }

    fn tell(&mut self, told: &Told) -> Seen<()> {
        let line = serde_json::to_string(told).map_err(|error| error.to_string())?;
        writeln!(self.into, "{line}").map_err(|_| ended())
    }

    fn hear(&self) -> Seen<Said> {
        let line = self.said.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!(
                "expected an answer of a rank within {} s, found none: NCCL stands still; see NCCL_DEBUG=INFO",
                PATIENCE.as_secs()
            ),
            RecvTimeoutError::Disconnected => ended(),
        })?;
        serde_json::from_str(&line).map_err(|_| format!("expected an answer of a rank, found `{line}`"))
    }

    fn hears(&self, expected: &Said) -> Seen<()> {
        match self.hear()? {
            said if said == *expected => Ok(()),
            other => Err(unexpected(&format!("{expected:?}"), &other)),
        }
    }

    /// As a worker dies.
    fn kill(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ended() -> String {
    "expected a rank of NCCL, found that its process has ended; its own words are above".to_owned()
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
