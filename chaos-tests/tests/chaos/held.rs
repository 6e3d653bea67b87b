//! A worker that has outlived many others holds no more of the system than one that has outlived few: no descriptors, and no memory that it shared with the dead.

use std::fs::{read_dir, read_to_string};
use std::io;

use anyhow::Result;
use sardana::WorkerId;
use sardana::launch::Event;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Hands, reported};

use crate::paced::{paced, slow};

/// So many are killed, one after the other.
const DEATHS: usize = 12;

/// What a process holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    descriptors: usize,
    /// Of memory with a descriptor, such as gradients and links.
    mappings: usize,
}

impl Held {
    fn by(pid: u32) -> io::Result<Self> {
        let maps = read_to_string(format!("/proc/{pid}/maps"))?;
        Ok(Self {
            descriptors: read_dir(format!("/proc/{pid}/fd"))?.count(),
            mappings: maps.lines().filter(|line| line.contains("/memfd:sardana")).count(),
        })
    }
}

/// What the survivor holds each time that all are members again, and have trained.
struct Outliving {
    survivor: WorkerId,
    held: Vec<Held>,
    /// Who was killed last.
    killed: WorkerId,
    /// How often steps were told since all are members again.
    told: u32,
}

impl Outliving {
    fn kill_another(&mut self, hands: &mut Hands<'_>) {
        if let Some(&other) = hands.members().iter().find(|&&member| member != self.survivor) {
            (self.killed, self.told) = (other, 0);
            hands.kill(other);
        }
    }
}

#[tokio::test]
async fn a_worker_that_outlives_many_holds_no_more_than_one_that_outlives_few() -> Result<()> {
    let setup = Setup {
        restarts: 2 * DEATHS as u32,
        // Several chunks, so that gradients are memory that the workers share.
        elements: 100_000,
        ..slow(3)
    };
    let (told, seen) = std::sync::mpsc::channel();
    let strike = |hands: &mut Hands<'_>| {
        let survivor = hands.members()[0];
        let mut outliving = Outliving {
            survivor,
            held: Vec::new(),
            killed: survivor,
            told: 0,
        };
        outliving.kill_another(hands);
        outliving
    };
    let watch = move |outliving: &mut Outliving, hands: &mut Hands<'_>, event: &Event| {
        let all = hands.members().len() == 3 && !hands.members().contains(&outliving.killed);
        if outliving.held.len() == DEATHS || !all || reported(event).is_none() {
            return outliving.held.len() == DEATHS;
        }
        // What is told first may be of the generation before.
        outliving.told += 1;
        if outliving.told < 3 {
            return false;
        }
        // Without the survivor, or what it holds, there is nothing to wait for, and too little was seen.
        let Some(Ok(held)) = hands.pid(outliving.survivor).map(Held::by) else {
            return true;
        };
        outliving.held.push(held);
        if outliving.held.len() < DEATHS {
            outliving.kill_another(hands);
        } else {
            // Its receiver is gone if the trial has failed.
            let _ = told.send(outliving.held.clone());
        }
        outliving.held.len() == DEATHS
    };
    let paced = paced(setup, "", strike, watch).await?;
    let held = seen.try_iter().next().unwrap_or_default();
    paced.demand(
        held.len() == DEATHS,
        "all but one were killed, and came back, again and again",
    )?;
    let shares = held.iter().all(|held| held.mappings > 0);
    paced.demand(shares, "the workers of a host share memory")?;
    let (few, many) = held.split_at(DEATHS / 2);
    // What each death left behind would be six more. Now and then a transfer is under way.
    type Part = fn(&Held) -> usize;
    let parts: [(&str, Part); 2] = [("descriptors", |held| held.descriptors), ("mappings", |held| held.mappings)];
    for (what, part) in parts {
        let least = |held: &[Held]| held.iter().map(part).min().unwrap_or_default();
        let no_more = least(many) <= least(few) + DEATHS / 4;
        paced.demand(no_more, &format!("the survivor holds no more {what} in the end: {held:?}"))?;
    }
    Ok(())
}
