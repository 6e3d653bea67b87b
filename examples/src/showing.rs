//! Runs a job and shows how far it is: a bar with epoch, step, metrics, samples a second and the time to go, and a line for each epoch.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use console::Term;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use sardana::device::DeviceChoice;
use sardana::launch::{Event, LaunchConfig, launch};
use sardana::model::{ModelError, Trainable};
use sardana::train::log;
use sardana::{Job, JobEvent, JobSpec, Rate, StepReport, Summary, serve_if_started_by_agent};
use tracing_subscriber::EnvFilter;

/// Trains the job in worker processes of this program, as [`sardana::train()`] does, and shows how far it is. `metrics` are the names of the
/// sums that the model reports, in their order.
///
/// # Errors
/// When the job fails.
pub fn train<M, F>(job: &Job, metrics: &[&str], build: F) -> Result<Summary>
where
    M: Trainable,
    F: FnOnce(&JobSpec) -> Result<M, ModelError>,
{
    train_on(job, DeviceChoice::said(None)?, metrics, build)
}

/// As [`train`], with this host's GPUs dealt out to the workers as `device` says.
///
/// # Errors
/// When the job fails, or there is no such device.
pub fn train_on<M, F>(job: &Job, device: DeviceChoice, metrics: &[&str], build: F) -> Result<Summary>
where
    M: Trainable,
    F: FnOnce(&JobSpec) -> Result<M, ModelError>,
{
    serve_if_started_by_agent(job, build);
    let mut shown = Shown::new(job, metrics);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let summary = runtime.block_on(async {
        let config = LaunchConfig {
            checkpoints: job.checkpoints().cloned(),
            ..LaunchConfig::this_program(*job.staffing())?.on(device)?
        };
        let launched = launch(config).await?;
        launched.finish(|_, event| shown.event(event)).await
    });
    shown.end();
    let summary = summary?;
    for (name, value) in &summary.results {
        println!("{} on held-out samples", result(name, *value));
    }
    println!("final state {} after {} steps", summary.hash, summary.step.get());
    if let Some(pace) = shown.pace.words() {
        println!("{pace}");
    }
    Ok(summary)
}

/// What happens goes to standard error, as much of it as `RUST_LOG` asks for.
pub fn logs() {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
}

/// Whether a job that has ended reads at least this part of the held-out samples, if that is asked for.
///
/// # Errors
/// When it does not.
pub fn check_accuracy(summary: &Summary, at_least: Option<f64>) -> Result<()> {
    let accuracy = summary.results.iter().find(|(name, _)| name == "accuracy");
    if let (Some(least), Some((_, found))) = (at_least, accuracy) {
        ensure!(
            *found >= least,
            "expected to read at least {least} of the held-out samples, found {found}"
        );
    }
    Ok(())
}

/// How fast a job is, to be put behind what it has reached. Nothing where that is not known yet, or it stands still.
#[must_use]
pub fn speed(samples_per_second: f64) -> String {
    if samples_per_second > 0.0 {
        format!("  {samples_per_second:.0} samples/s")
    } else {
        String::new()
    }
}

/// A result as people read it: parts of a whole in percent.
#[must_use]
pub fn result(name: &str, value: f64) -> String {
    if name == "accuracy" || name.starts_with("top") {
        format!("{name} {:.2} %", 100.0 * value)
    } else {
        format!("{name} {value:.4}")
    }
}

/// Sums of metrics over samples.
#[derive(Clone, Debug, Default)]
struct Sums {
    sums: Vec<f64>,
    samples: u64,
}

impl Sums {
    fn add(&mut self, report: &StepReport) {
        self.sums.resize(report.sums.len(), 0.0);
        self.sums.iter_mut().zip(&report.sums).for_each(|(sum, more)| *sum += more);
        self.samples += report.samples;
    }

    fn words(&self, names: &[String]) -> String {
        let means = self.sums.iter().map(|sum| sum / self.samples.max(1) as f64);
        let words = names.iter().zip(means).map(|(name, mean)| result(name, mean));
        words.collect::<Vec<_>>().join("  ")
    }
}

/// How long steps take, from the first ones that are told of to the last ones: without what goes before them, and what comes behind.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// When steps were told of for the first and the last time.
    between: Option<[Duration; 2]>,
    /// All but those that were told of first.
    steps: u64,
}

impl Pace {
    fn count(&mut self, now: Duration, steps: usize) {
        match &mut self.between {
            None => self.between = Some([now; 2]),
            Some([_, last]) => {
                *last = now;
                self.steps += steps as u64;
            }
        }
    }

    /// None where steps were told of only once.
    fn words(&self) -> Option<String> {
        let [first, last] = self.between.filter(|_| self.steps > 0)?;
        let each = (last - first).as_secs_f64() * 1e3 / self.steps as f64;
        Some(format!("{each:.3} ms a step, over the last {} steps", self.steps))
    }
}

/// What is seen of one run.
#[derive(Debug)]
struct Shown {
    names: Vec<String>,
    steps: u64,
    steps_per_epoch: u64,
    started: Instant,
    rate: Rate,
    steps_rate: Rate,
    pace: Pace,
    /// Of the epoch under way.
    epoch: Sums,
    /// None where there is no terminal.
    bar: Option<ProgressBar>,
}

impl Shown {
    fn new(job: &Job, metrics: &[&str]) -> Self {
        let steps = job.spec().steps.get();
        let bar = Term::stdout().is_term().then(|| {
            let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stdout());
            let form = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}").expect("the template is valid");
            bar.with_style(form)
        });
        Self {
            names: metrics.iter().map(|name| (*name).to_owned()).collect(),
            steps,
            steps_per_epoch: job.steps_per_epoch(),
            started: Instant::now(),
            rate: Rate::default(),
            steps_rate: Rate::default(),
            pace: Pace::default(),
            epoch: Sums::default(),
            bar,
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Job(JobEvent::Steps(reports)) => self.steps(reports),
            other @ (Event::Job(_) | Event::Agent(_)) => log(other),
        }
    }

    fn steps(&mut self, reports: &[StepReport]) {
        let now = self.started.elapsed();
        self.rate.count(now, reports.iter().map(|report| report.samples).sum());
        self.steps_rate.count(now, reports.len() as u64);
        self.pace.count(now, reports.len());
        for report in reports {
            self.epoch.add(report);
            if (report.step.get() + 1).is_multiple_of(self.steps_per_epoch) {
                let epoch = report.step.get() / self.steps_per_epoch + 1;
                let all = self.steps.div_ceil(self.steps_per_epoch);
                let line = format!(
                    "epoch {epoch:>3} of {all}  {}{}",
                    self.epoch.words(&self.names),
                    speed(self.rate.per_second(now))
                );
                self.line(&line);
                self.epoch = Sums::default();
            }
        }
        let (Some(last), Some(bar)) = (reports.last(), &self.bar) else {
            return;
        };
        let done = last.step.get() + 1;
        let mut step = Sums::default();
        step.add(last);
        bar.set_position(done);
        bar.set_message(format!(
            "epoch {}  {}{}{}",
            last.step.get() / self.steps_per_epoch + 1,
            step.words(&self.names),
            speed(self.rate.per_second(now)),
            self.to_go(now, done)
        ));
    }

    /// How long it will take, at the speed of the last seconds.
    fn to_go(&self, now: Duration, done: u64) -> String {
        let a_second = self.steps_rate.per_second(now);
        if a_second <= 0.0 {
            return String::new();
        }
        let left = Duration::try_from_secs_f64(self.steps.saturating_sub(done) as f64 / a_second);
        left.map_or_else(|_| String::new(), |left| format!("  {:#} to go", HumanDuration(left)))
    }

    fn line(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => println!("{line}"),
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            // Not as if all steps were done.
            bar.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use sardana::Step;

    use super::*;

    #[test]
    fn a_speed_that_is_not_known_is_not_shown_as_none() {
        assert_eq!(speed(0.0), "");
        assert_eq!(speed(1_250.4), "  1250 samples/s");
    }

    #[test]
    fn a_pace_leaves_out_what_is_told_first() {
        let mut pace = Pace::default();
        assert_eq!(pace.words(), None);
        pace.count(Duration::from_secs(2), 5);
        assert_eq!(pace.words(), None, "a moment is no time");
        pace.count(Duration::from_millis(2_500), 100);
        pace.count(Duration::from_secs(3), 300);
        assert_eq!(pace.words().as_deref(), Some("2.500 ms a step, over the last 400 steps"));
    }

    #[test]
    fn an_epoch_is_said_with_the_means_over_its_samples() {
        let mut sums = Sums::default();
        for (samples, loss, right) in [(8, 4.0, 6.0), (4, 8.0, 3.0)] {
            sums.add(&StepReport {
                step: Step::ZERO,
                samples,
                sums: vec![loss, right],
            });
        }
        let names = ["loss".to_owned(), "accuracy".to_owned()];
        assert_eq!(sums.words(&names), "loss 1.0000  accuracy 75.00 %");
    }
}
