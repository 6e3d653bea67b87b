//! Processes that make collective calls of their own: killed, stopped, drained, joined and refused under a real coordinator and agent. Each of them
//! compares each result with what it must be for the ranks that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sardana::job::Staffing;
use sardana::launch::{Event, LaunchConfig, Launched, OperatorAnswer, OperatorRequest, launch};
use sardana::{Balance, JobEvent, LINK_VARIABLE, WorkerEvent, WorkerId};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

pub(crate) const GROUP: &str = env!("CARGO_BIN_EXE_chaos_group");
const HOLD: u64 = 3;
const GATE: u64 = 6;
const ROUNDS: u64 = 10;

/// A run takes seconds; one that takes this long hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// A group's job, and what its processes say.
struct Play {
    launched: Launched,
    said: mpsc::UnboundedReceiver<String>,
    /// What was said and not asked for yet: who is heard first is chance.
    pending: Vec<(u32, String)>,
    /// All that was said and happened so far, for a person.
    story: Vec<String>,
    lost: Vec<(WorkerId, String)>,
    ended: bool,
    /// How many of those that work on may end.
    go: Arc<Semaphore>,
    _folder: TempDir,
}

/// What processes say at this socket from now on, and their ends. One that works on is sent what it waits for once a permit is there.
pub(crate) fn hear(socket: &Path) -> Result<(mpsc::UnboundedReceiver<String>, Arc<Semaphore>)> {
    let listener = UnixListener::bind(socket)?;
    let (say, said) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let lets = Arc::clone(&go);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(take_in(stream, say.clone(), Arc::clone(&lets)));
        }
    });
    Ok((said, go))
}

async fn take_in(stream: UnixStream, say: mpsc::UnboundedSender<String>, go: Arc<Semaphore>) {
    let (reading, mut writing) = stream.into_split();
    let mut lines = BufReader::new(reading).lines();
    let mut pid = None;
    while let Ok(Some(line)) = lines.next_line().await {
        let works_on = line.ends_with("works on");
        pid = line.split_once(' ').map(|(pid, _)| pid.to_owned());
        let _ = say.send(line);
        if works_on && let Ok(permit) = go.acquire().await {
            permit.forget();
            let _ = writing.write_all(b"\n").await;
        }
    }
    if let Some(pid) = pid {
        let _ = say.send(format!("{pid} is gone"));
    }
}

/// The arguments of [`GROUP`] where so many processes play.
pub(crate) fn arguments(socket: &Path, workers: u32) -> Vec<OsString> {
    let numbers = [ROUNDS, workers.into(), HOLD, GATE].map(|number| number.to_string().into());
    [vec![socket.into()], numbers.to_vec()].concat()
}

impl Play {
    async fn begin(workers: u32, environment: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("said");
        let (said, go) = hear(&socket)?;
        let staffing = Staffing {
            workers,
            min: 1,
            max: 8,
            restarts: 0,
            shard_capacity: None,
            balance: Balance::Off,
        };
        let mut config = LaunchConfig::program(GROUP.into(), arguments(&socket, workers), staffing);
        config
            .environment
            .extend(environment.iter().map(|&(name, value)| (name.into(), value.into())));
        Ok(Self {
            launched: launch(config).await?,
            said,
            pending: Vec::new(),
            story: Vec::new(),
            lost: Vec::new(),
            ended: false,
            go,
            _folder: folder,
        })
    }

    /// Notes what a process says next, or what happens to the job.
    async fn next(&mut self) -> Result<()> {
        let event = tokio::select! {
            biased;
            Some(line) = self.said.recv() => {
                let (pid, words) = line.split_once(' ').context("a process says who it is")?;
                self.pending.push((pid.parse()?, words.to_owned()));
                self.story.push(line);
                return Ok(());
            }
            event = self.launched.next_event() => event.context("the coordinator ended")?,
        };
        self.story.push(format!("{event:?}"));
        match event {
            Event::Job(JobEvent::Worker(WorkerEvent::Lost { worker, cause, .. })) => {
                self.lost.push((worker, cause.to_string()));
            }
            Event::Job(JobEvent::Done(summary)) => {
                ensure!(summary.is_of_a_group() && summary.unknown == 0, "{summary:?}");
                self.ended = true;
            }
            Event::Job(JobEvent::Failed { reason }) => anyhow::bail!("the job failed: {reason}"),
            Event::Job(_) | Event::Agent(_) => {}
        }
        Ok(())
    }

    /// Waits until a process says what `is_it`, and returns its process and that.
    async fn hears(&mut self, what: &str, is_it: impl Fn(&str) -> bool) -> Result<(u32, String)> {
        let hearing = async {
            loop {
                if let Some(at) = self.pending.iter().position(|(_, words)| is_it(words)) {
                    return Ok(self.pending.remove(at));
                }
                self.next().await?;
            }
        };
        let heard: Result<Result<_>, _> = timeout(LIMIT, hearing).await;
        heard
            .unwrap_or_else(|_| Err(anyhow::anyhow!("it hangs")))
            .with_context(|| format!("waiting for {what}, after\n{}", self.story.join("\n")))
    }

    /// The processes that say what `is_it`, of so many.
    async fn all_say(&mut self, many: usize, what: &str, is_it: impl Fn(&str) -> bool) -> Result<BTreeMap<u32, String>> {
        let mut said = BTreeMap::new();
        while said.len() < many {
            said.extend([self.hears(what, &is_it).await?]);
        }
        Ok(said)
    }

    /// All three are in a group, and two of them in an operation that the third does not call: which one that is.
    async fn until_one_holds(&mut self) -> Result<(u32, BTreeSet<u32>)> {
        self.all_say(3, "three ranks", |words| words.ends_with("of 3")).await?;
        let is_it = |words: &str| words == "calls round 3 with 3" || words == "holds in round 3";
        let said = self.all_say(3, "one that holds, and the others", is_it).await?;
        let holds = said
            .iter()
            .find(|(_, words)| words.starts_with("holds"))
            .context("one holds")?;
        let others = said.keys().copied().filter(|pid| pid != holds.0).collect();
        Ok((*holds.0, others))
    }

    /// Of two, one is in an operation that the other does not call: which one that is.
    async fn until_both_are_in_round_3(&mut self) -> Result<u32> {
        let is_it = |words: &str| words == "calls round 3 with 2" || words == "holds in round 3";
        let said = self.all_say(2, "one that holds, and the other", is_it).await?;
        let holds = said.iter().find(|(_, words)| words.starts_with("holds"));
        Ok(*holds.context("one holds")?.0)
    }

    /// The worker that is this process.
    async fn worker(&self, pid: u32) -> Result<WorkerId> {
        let status = self.launched.steering().ask(OperatorRequest::Status).await?;
        let OperatorAnswer::Status(status) = status else {
            anyhow::bail!("no status: {status:?}");
        };
        let ids = status.overview.workers.iter().map(|view| view.worker);
        let found = ids.into_iter().find(|&id| self.launched.pid(id) == Some(pid));
        found.with_context(|| format!("no worker is process {pid}"))
    }

    async fn asks(&self, request: OperatorRequest) -> Result<()> {
        let answer = self.launched.steering().ask(request).await?;
        let done = matches!(answer, OperatorAnswer::Done { .. });
        ensure!(done, "{answer:?}");
        Ok(())
    }

    /// All that are left finish, in one generation; and the job is done.
    async fn ends(mut self, many: usize) -> Result<()> {
        let finished = format!("finished after {ROUNDS} in ");
        let ends = self.all_say(many, "the end", |words| words.starts_with(&finished)).await?;
        let generations: BTreeSet<&String> = ends.values().collect();
        ensure!(generations.len() == 1, "one end: {ends:?}");
        let told = async {
            while !self.ended {
                self.next().await?;
            }
            Ok(())
        };
        timeout(LIMIT, told).await.context("the job is not told to be done")?
    }
}

/// Kills a process while the others are in an operation; they go on as two, and a newcomer makes three of them again.
async fn killed_and_replaced(environment: &[(&str, &str)]) -> Result<()> {
    let mut play = Play::begin(3, environment).await?;
    let (victim, survivors) = play.until_one_holds().await?;
    let worker = play.worker(victim).await?;
    play.asks(OperatorRequest::Kill {
        whom: worker.to_string(),
    })
    .await?;
    let over = play.all_say(2, "errors", |words| words == "over g1.1 in round 3").await?;
    ensure!(
        over.keys().copied().eq(survivors.clone()),
        "all but the dead learn of it: {over:?}"
    );
    let two = play.all_say(2, "a group of two", |words| words.ends_with("of 2")).await?;
    ensure!(
        two.keys().copied().eq(survivors.clone()),
        "the survivors go on in the same processes"
    );
    play.all_say(2, "the round again", |words| words == "calls round 3 with 2")
        .await?;
    while play.lost.is_empty() {
        timeout(LIMIT, play.next()).await.context("the loss is not told")??;
    }
    let [(lost, cause)] = &play.lost[..] else {
        anyhow::bail!("expected the victim alone to be lost, found {:?}", play.lost);
    };
    ensure!(*lost == worker && cause.contains("signal 9"), "{lost} {cause}");
    play.asks(OperatorRequest::Scale { workers: 3 }).await?;
    let three = play.all_say(3, "three ranks again", |words| words.ends_with("of 3")).await?;
    let stay = survivors.iter().all(|pid| three.contains_key(pid));
    ensure!(stay && !three.contains_key(&victim), "{three:?}");
    play.all_say(3, "all beyond the gate", |words| words == "calls round 6 with 3")
        .await?;
    play.ends(3).await
}

#[tokio::test]
async fn a_group_goes_on_without_the_dead_and_with_a_newcomer() -> Result<()> {
    killed_and_replaced(&[]).await
}

#[tokio::test]
async fn a_group_over_quic_goes_on_without_the_dead_and_with_a_newcomer() -> Result<()> {
    killed_and_replaced(&[(LINK_VARIABLE, "quic")]).await
}

#[tokio::test]
async fn a_process_that_is_drained_ends_well_and_the_others_go_on() -> Result<()> {
    let mut play = Play::begin(3, &[]).await?;
    let (holder, calling) = play.until_one_holds().await?;
    let leaver = *calling.first().context("two are calling")?;
    let worker = play.worker(leaver).await?;
    play.asks(OperatorRequest::Drain {
        whom: worker.to_string(),
    })
    .await?;
    let (gone, words) = play.hears("the leaver", |words| words.starts_with("let go")).await?;
    ensure!(gone == leaver && words == "let go after 3", "{gone} {words}");
    // The one that holds still has its place in the next generation, and does not call there.
    let worker = play.worker(holder).await?;
    play.asks(OperatorRequest::Kill {
        whom: worker.to_string(),
    })
    .await?;
    play.hears("the last one", |words| words == "calls round 3 with 1").await?;
    play.asks(OperatorRequest::Scale { workers: 3 }).await?;
    play.all_say(3, "three ranks again", |words| words.ends_with("of 3")).await?;
    play.ends(3).await
}

#[tokio::test]
async fn a_stop_lets_all_of_them_go() -> Result<()> {
    let mut play = Play::begin(2, &[]).await?;
    play.until_both_are_in_round_3().await?;
    play.launched.steering().request_stop();
    let (_, words) = play.hears("the other", |words| words.starts_with("let go")).await?;
    ensure!(words == "let go after 3", "{words}");
    Ok(())
}

/// The agent ends the one that never learns that the job is over, and waits for what the other still does.
#[tokio::test]
async fn a_program_whose_part_is_over_may_go_on() -> Result<()> {
    let mut play = Play::begin(2, &[("CHAOS_WORKS_ON", "1")]).await?;
    let holder = play.until_both_are_in_round_3().await?;
    let Play {
        launched, mut said, go, ..
    } = play;
    launched.steering().request_stop();
    let hearing = async {
        let mut heard = Vec::new();
        while let Some(line) = said.recv().await {
            let (pid, words) = line.split_once(' ').context("a process says who it is")?;
            let (who, words) = (if pid.parse() == Ok(holder) { "holder" } else { "other" }, words.to_owned());
            if (who, &words[..]) == ("holder", "is gone") {
                go.add_permits(1);
            }
            heard.push(format!("{who} {words}"));
            if heard.ends_with(&["other is gone".to_owned()]) {
                break;
            }
        }
        anyhow::Ok(heard)
    };
    let (heard, summary) = timeout(LIMIT, async { tokio::join!(hearing, launched.finish(|_, _| ())) }).await?;
    let (heard, summary) = (heard?, summary?);
    ensure!(summary.is_of_a_group(), "{summary:?}");
    let expected = [
        "other let go after 3",
        "other works on",
        "holder is gone",
        "other has saved its model",
        "other is gone",
    ];
    ensure!(heard.ends_with(&expected.map(str::to_owned)), "{heard:?}");
    Ok(())
}

#[tokio::test]
async fn one_process_alone_is_a_group_too_and_ends_well() -> Result<()> {
    let mut play = Play::begin(1, &[]).await?;
    play.hears("the end", |words| words == "finished after 10 in g1.1").await?;
    let ended = |event: &str| event.contains("Ended") && event.contains("exit code 0");
    while !play.story.iter().any(|event| ended(event)) {
        timeout(LIMIT, play.next()).await.context("its agent does not see it end")??;
    }
    ensure!(play.ended, "{:?}", play.story);
    Ok(())
}
