//! A group whose processes are far from each other, each on a host of its own, on a way that loses some of what they send. Needs root and `ip`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use sardana::launch::Event;
use sardana::{AgentEvent, GenerationEvent, JobEvent, WorkerId};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Told, send};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::groups::{GROUP, arguments, hear};
use crate::hosts::Site;
use crate::paths::network;
use crate::proxy;

/// From one host to another.
const DELAY: Duration = Duration::from_millis(10);

/// What has not been said by then never will be.
const LIMIT: Duration = Duration::from_secs(60);

/// What the processes say, and all that they have said.
struct Said {
    lines: mpsc::UnboundedReceiver<String>,
    story: Vec<String>,
}

impl Said {
    /// Listens until so many processes have said what `is_it`: which, and that.
    async fn by(&mut self, many: usize, what: &str, is_it: impl Fn(&str) -> bool) -> Result<BTreeMap<u32, String>> {
        let hearing = async {
            let mut said = BTreeMap::new();
            while said.len() < many {
                let line = self.lines.recv().await.context("the socket is closed")?;
                let (pid, words) = line.split_once(' ').context("a process says who it is")?;
                if is_it(words) {
                    said.insert(pid.parse()?, words.to_owned());
                }
                self.story.push(line);
            }
            Ok(said)
        };
        let heard = timeout(LIMIT, hearing).await;
        let heard = heard.unwrap_or_else(|_| bail!("it hangs"));
        heard.with_context(|| format!("waiting for {what}, after\n{}", self.story.join("\n")))
    }

    fn errors(&self) -> Vec<&String> {
        self.story.iter().filter(|line| line.contains(" over ")).collect()
    }
}

/// The members of each generation, in the order in which they were formed.
fn generations(site: &Site) -> Vec<Vec<WorkerId>> {
    let formed = site.job_events_since(0).filter_map(|event| {
        let JobEvent::Generation(GenerationEvent::Forming { members, .. }) = event else {
            return None;
        };
        Some(members.clone())
    });
    formed.collect()
}

/// How processes have ended, but for those that ended well.
fn bad_ends(site: &Site) -> Vec<&String> {
    let ends = site.ended.told.iter().filter_map(|(_, told)| {
        let Told::Event(Event::Agent(AgentEvent::Ended { how, .. })) = told else {
            return None;
        };
        Some(how)
    });
    ends.filter(|how| *how != "exit code 0").collect()
}

/// Losses and delays end no operation: only a killed process and the one in its place do, whose generations have other members. Each process
/// compares each value of each result, and ends badly if one differs or an operation fails otherwise.
#[tokio::test]
async fn a_group_goes_on_over_a_long_way_on_which_some_is_lost() -> Result<()> {
    let (workers, proxy) = ([1, 2, 3], 4);
    let Some(network) = network(5) else {
        return Ok(());
    };
    let carried = proxy::lay(&network, proxy, &workers, DELAY).await?;
    let site = Site::over(Setup::new(3), network)?;
    let socket = site.trial.folder().join("said");
    let ((lines, _), story) = (hear(&socket)?, Vec::new());
    let mut said = Said { lines, story };
    let mut site = site.running(GROUP, arguments(&socket, 3));
    site.coordinate().await?;
    for host in workers {
        site.join(host, Some(proxy::told(host).into()))?;
    }
    let is_it = |words: &str| words == "calls round 3 with 3" || words == "holds in round 3";
    let three = said.by(3, "one that holds, and the others", is_it).await?;
    ensure!(said.story.iter().all(|line| !line.contains("over ")), "{:?}", said.story);
    let holds = three.iter().find(|(_, words)| words.starts_with("holds"));
    let (&victim, _) = holds.context("one holds")?;
    send(victim, Signal::KILL)?;
    let over = said.by(2, "errors", |words| words == "over g1.1 in round 3").await?;
    ensure!(!over.contains_key(&victim), "{over:?}");
    let ends = said
        .by(3, "the end", |words| words.starts_with("finished after 10 in "))
        .await?;
    ensure!(ends.values().collect::<BTreeSet<_>>().len() == 1, "one end: {ends:?}");
    let (summary, site) = site.outcome().await?;
    ensure!(summary.is_of_a_group(), "{summary:?}");
    let generations = generations(&site);
    let changes = generations.windows(2).all(|two| two[0] != two[1]);
    ensure!(changes && generations.len() <= 3, "{generations:?}, {:?}", said.errors());
    ensure!(bad_ends(&site) == ["signal 9"], "{:?}", bad_ends(&site));
    ensure!(carried.datagrams() > 2_000 && carried.lost() > 20, "{carried:?}");
    Ok(())
}
