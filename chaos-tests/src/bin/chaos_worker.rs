//! A worker of the toy job; started by hand, a launcher of such workers that says on standard output what it does, so that a test
//! can kill the launcher.

use std::io::Write;

use anyhow::Result;
use sardana::launch::{Event, LaunchConfig, launch};
use sardana::{JobEvent, serve_if_started_by_agent};
use sardana_chaos_tests::model::Touchy;
use sardana_chaos_tests::setup::Setup;

fn main() -> Result<()> {
    let (setup, folder) = Setup::from_environment()?;
    let job = setup.job()?;
    serve_if_started_by_agent(&job, move |_| Touchy::in_worker(&setup, &folder));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let summary = runtime.block_on(async {
        let launched = launch(LaunchConfig::this_program(*job.staffing())?).await?;
        launched.finish(|_, event| say(event)).await
    })?;
    println!("done {}", summary.hash);
    Ok(())
}

fn say(event: &Event) {
    if let Event::Job(JobEvent::Steps(reports)) = event
        && let Some(last) = reports.last()
    {
        println!("step {}", last.step.get());
        // The reader may be gone.
        let _ = std::io::stdout().flush();
    }
}
