//! Two coordinators of one job at once: one leads in the end, the other one says so and ends, and no worker notices (GEN-1).

use anyhow::{Result, ensure};
use rustix::process::Signal;
use sardana_chaos_tests::gate::Place;

use crate::coordinated::{GATE, Life, Site, setup, standby};

/// It says which coordinator fences it, and that it is no way back, by name.
pub(crate) async fn is_fenced(old: &mut Life) -> Result<()> {
    let why = old.fails().await?;
    for word in ["another coordinator (i", ") leads the job", "this one (i1)", "--take-over"] {
        ensure!(why.contains(word), "{word:?} is missing from {why:?}");
    }
    ensure!(!old.said("done "), "it has not led to the end: {:#?}", old.said);
    Ok(())
}

/// Another coordinator takes over at a standby's address while the first lives, and is frozen until the other leads if `is_frozen`.
async fn taken_over(is_frozen: bool) -> Result<()> {
    let standby = standby();
    let mut site = Site::with(setup(2), None, &[&format!("standby={standby}")]).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(2).await?;
    site.until_step(GATE).await?;
    if is_frozen {
        site.coordinator.signal(Signal::STOP)?;
    }
    let mut first = site.is_taken_over(standby, &[])?;
    if is_frozen {
        site.until("adopted g1.1").await?;
        first.signal(Signal::CONT)?;
        is_fenced(&mut first).await?;
    } else {
        is_fenced(&mut first).await?;
        site.until("adopted g1.1").await?;
    }
    site.ends(pace, host).await?;
    site.nobody_noticed(2)
}

#[tokio::test]
async fn one_that_was_frozen_while_another_took_over_learns_it_when_it_wakes_up() -> Result<()> {
    taken_over(true).await
}

#[tokio::test]
async fn one_that_leads_hands_over_to_who_takes_over() -> Result<()> {
    taken_over(false).await
}

#[tokio::test]
async fn a_second_one_in_the_same_directory_is_refused() -> Result<()> {
    let mut site = Site::new(setup(2), None).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(2).await?;
    site.until_step(GATE).await?;
    let pid = site.coordinator.pid()?;
    let expected = [
        "another coordinator uses this state directory".to_owned(),
        format!("(process {pid})"),
        "stop it first, or give another directory".to_owned(),
    ];
    // A coordinator that says nothing for a while lives, too.
    for signal in [None, Some(Signal::STOP), Some(Signal::CONT)] {
        signal.map_or(Ok(()), |signal| site.coordinator.signal(signal))?;
        for arguments in [&[][..], &["take-over"]] {
            let why = site.second(arguments)?.fails().await?;
            for word in &expected {
                ensure!(why.contains(word), "{word:?} is missing from {why:?}");
            }
        }
    }
    let done = site.ends(pace, host).await?;
    ensure!((done.recomputed, done.unknown) == (0, 0), "{:#?}", site.coordinator.said);
    let generations = |said: &[String]| said.iter().filter(|line| line.starts_with("forming ")).count();
    ensure!(generations(&site.coordinator.said) == 1, "{:#?}", site.coordinator.said);
    ensure!(!site.said("adopted"), "it is the same life");
    Ok(())
}
