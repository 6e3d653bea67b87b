//! What was measured, as a person reads it and as JSON.

use std::fmt::Write;

use serde_json::json;

use super::limits::Limits;
use super::phases::{COPIED, Join, Kills, Restore, Save, Way};
use crate::bench::plot::Bar;
use crate::bench::sizes;
use crate::bench::times::{quantile, words};

/// All that was measured.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub(super) state: u64,
    pub(super) ranks: u32,
    pub(super) limits: Limits,
    pub(super) join: Join,
    pub(super) kills: Kills,
    pub(super) save: Save,
    pub(super) restore: Restore,
}

/// More would be too thin to be seen.
const KILLS_DRAWN: usize = 8;

/// Bytes a second as a person reads them.
fn mib(rate: f64) -> String {
    format!("{:.0} MiB/s", rate / f64::from(1 << 20))
}

impl Report {
    fn rate(&self, seconds: f64) -> f64 {
        self.state as f64 / seconds
    }

    /// Seconds of processors for each 10⁹ bytes of the state.
    fn per_gigabyte(&self, processor: f64) -> f64 {
        processor / (self.state as f64 / 1e9)
    }

    /// The report as lines.
    pub(super) fn text(&self) -> String {
        let Join {
            before: [median, slow, longest],
            after,
            ..
        } = self.join;
        let mut text = format!(
            "a state of {}, {} workers; a step takes {} (p99 {}, longest {}), and {} with one more\n",
            sizes::words(self.state),
            self.ranks,
            words(median),
            words(slow),
            words(longest),
            words(after),
        );
        let Self { limits, restore, .. } = self;
        // A String takes what it is given.
        let _ = writeln!(
            text,
            "limits    copy into fresh memory {}, TCP {}, all of it at once {}, a file read by {} at once {}",
            mib(limits.memory),
            mib(limits.tcp),
            mib(limits.tcp_whole),
            self.ranks,
            mib(limits.file),
        );
        self.join_text(&mut text);
        self.kills_text(&mut text);
        let _ = writeln!(
            text,
            "save      stop to disk {}, {}",
            words(self.save.seconds),
            mib(self.rate(self.save.seconds))
        );
        for remark in &self.save.remarks {
            let _ = writeln!(text, "save      {remark}");
        }
        let _ = writeln!(
            text,
            "restore   checkpoint chosen until all workers have it {}, {}: {:.2} of the file",
            words(restore.seconds),
            mib(self.rate(restore.seconds)),
            self.rate(restore.seconds) / limits.file,
        );
        let _ = writeln!(
            text,
            "restore   processors until they have loaded it {:.2} s, {:.2} s/GB of each worker's state",
            restore.processor,
            self.per_gigabyte(restore.processor) / f64::from(self.ranks),
        );
        text
    }

    fn kills_text(&self, text: &mut String) {
        let Kills {
            resumed,
            replaced,
            started,
            ways,
        } = &self.kills;
        if resumed.is_empty() {
            return;
        }
        let mut line = |what: &str, times: &[f64]| {
            let [median, longest] = [0.5, 1.0].map(|share| quantile(&mut times.to_vec(), share));
            let (median, longest) = (words(median), words(longest));
            let _ = writeln!(
                text,
                "kill      {what:<44} median {median:>10}, longest {longest:>10} of {}",
                times.len()
            );
        };
        line("SIGKILL to the others' next update", resumed);
        line("SIGKILL to another takes part in its place", replaced);
        line("  SIGKILL to process start", started);
        let Some(first) = ways.first() else { return };
        for (part, (what, _)) in first.parts().into_iter().enumerate() {
            let times: Vec<f64> = ways.iter().map(|way| way.parts()[part].1).collect();
            line(&format!("  {what}"), &times);
        }
    }

    fn join_text(&self, text: &mut String) {
        let join = &self.join;
        let rate = self.rate(join.way.copied);
        for (what, seconds) in join.way.parts().into_iter().chain([("all of it", join.way.whole())]) {
            let _ = write!(text, "join      {what:<34} {:>10}", words(seconds));
            if what == COPIED {
                let limits = &self.limits;
                let [of_memory, of_tcp, of_whole] = [limits.memory, limits.tcp, limits.tcp_whole].map(|limit| rate / limit);
                let _ = write!(
                    text,
                    ", {}: {of_memory:.2} of the copy, {of_tcp:.2} of TCP, {of_whole:.2} of TCP all at once",
                    mib(rate)
                );
            }
            text.push('\n');
        }
        let whens = [
            "while its process starts",
            "while it copies and catches up",
            "then, and a second on",
        ];
        for (when, longest) in whens.into_iter().zip(join.longest) {
            let ratio = longest / join.before[0];
            let _ = writeln!(
                text,
                "join      longest step {when:<30} {:>10}, {ratio:.2} of the median",
                words(longest)
            );
        }
        let _ = writeln!(
            text,
            "join      processors of all workers meanwhile {:.2} s, {:.2} s/GB",
            join.processor,
            self.per_gigabyte(join.processor)
        );
        for remark in &join.remarks {
            let _ = writeln!(text, "join      {remark}");
        }
    }

    /// A bar for each thing that was measured.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let Self {
            join,
            kills,
            save,
            restore,
            ..
        } = self;
        let bar = |name: &str, parts: Vec<(&'static str, f64)>| Bar {
            name: name.to_owned(),
            parts,
        };
        let joined = bar("join", join.way.parts().to_vec());
        let killed = kills.started.iter().zip(&kills.ways).map(|(&started, way)| {
            let parts = [("SIGKILL to process start", started)].into_iter().chain(way.parts());
            bar("kill", parts.collect())
        });
        let saved = bar("save", vec![("stop to disk", save.seconds)]);
        let restored = bar("restore", vec![("chosen until all have it", restore.seconds)]);
        [joined]
            .into_iter()
            .chain(killed.take(KILLS_DRAWN))
            .chain([saved, restored])
            .collect()
    }

    /// The report for programs. All times are seconds, all rates bytes a second.
    pub(super) fn json(&self) -> serde_json::Value {
        let Self {
            limits,
            join,
            kills,
            restore,
            ..
        } = self;
        let [starting, copying, taking_part] = join.longest;
        let mut joined = way_json(&join.way);
        joined["copied_bytes_per_second"] = json!(self.rate(join.way.copied));
        joined["longest_step_seconds"] = json!({ "starting": starting, "copying": copying, "taking_part": taking_part });
        let copied = self.rate(join.way.copied);
        joined["of_limits"] = json!({
            "memory": copied / limits.memory, "tcp": copied / limits.tcp, "tcp_whole": copied / limits.tcp_whole,
        });
        joined["processor_seconds"] = json!(join.processor);
        joined["processor_seconds_per_gigabyte"] = json!(self.per_gigabyte(join.processor));
        joined["remarks"] = json!(join.remarks);
        json!({
            "state_bytes": self.state,
            "ranks": self.ranks,
            "limits_bytes_per_second": self.limits.json(),
            "step_seconds": {
                "median": join.before[0], "p99": join.before[1], "max": join.before[2], "median_after": join.after,
            },
            "join": joined,
            "kills": {
                "to_next_update_seconds": kills.resumed,
                "to_taking_part_seconds": kills.replaced,
                "to_process_start_seconds": kills.started,
                "ways": kills.ways.iter().map(way_json).collect::<Vec<_>>(),
            },
            "save": { "seconds": self.save.seconds, "remarks": self.save.remarks, "bytes_per_second": self.rate(self.save.seconds) },
            "restore": {
                "seconds": restore.seconds,
                "bytes_per_second": self.rate(restore.seconds),
                "of_limits": { "file": self.rate(restore.seconds) / limits.file },
                "processor_seconds": restore.processor,
                "processor_seconds_per_gigabyte": self.per_gigabyte(restore.processor) / f64::from(self.ranks),
            },
        })
    }
}

fn way_json(way: &Way) -> serde_json::Value {
    json!({
        "start_to_hello_seconds": way.hello,
        "hello_to_snapshot_seconds": way.snapshot,
        "snapshot_to_copied_seconds": way.copied,
        "hello_to_copied_seconds": way.to_copied(),
        "copied_to_caught_up_seconds": way.caught_up,
        "caught_up_to_taking_part_seconds": way.takes_part,
        "start_to_taking_part_seconds": way.whole(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAY: Way = Way {
        hello: 0.25,
        snapshot: 0.125,
        copied: 0.5,
        caught_up: 0.0625,
        takes_part: 0.0625,
    };

    #[test]
    fn rates_are_of_the_state_and_what_follows_adds_up() {
        let report = Report {
            state: 100 << 20,
            ranks: 2,
            limits: Limits {
                memory: f64::from(400 << 20),
                tcp: f64::from(100 << 20),
                tcp_whole: f64::from(80 << 20),
                file: f64::from(200 << 20),
            },
            join: Join {
                before: [0.04, 0.05, 0.06],
                after: 0.03,
                way: WAY,
                longest: [0.04, 0.08, 0.06],
                processor: 0.5,
                remarks: vec!["Held".to_owned()],
            },
            kills: Kills {
                resumed: vec![0.02, 0.01],
                replaced: vec![0.5, 0.75],
                started: vec![0.25, 0.25],
                ways: [0.125, 0.375].map(|hello| Way { hello, ..WAY }).to_vec(),
            },
            save: Save {
                seconds: 2.0,
                remarks: vec!["given up".to_owned()],
            },
            restore: Restore {
                seconds: 1.0,
                processor: 3.0,
            },
        };
        let json = report.json();
        assert_eq!(json["join"]["hello_to_copied_seconds"], 0.625);
        assert_eq!(json["join"]["start_to_taking_part_seconds"], 1.0);
        assert_eq!(json["join"]["copied_bytes_per_second"], f64::from(200 << 20));
        assert_eq!(json["join"]["of_limits"]["tcp"], 2.0);
        assert_eq!(json["restore"]["of_limits"]["file"], 0.5);
        assert_eq!(json["kills"]["ways"][1]["start_to_hello_seconds"], 0.375);
        let bars = report.bars();
        let names: Vec<&str> = bars.iter().map(|bar| bar.name.as_str()).collect();
        assert_eq!(names, ["join", "kill", "kill", "save", "restore"]);
        let lasts = |bar: &Bar| -> f64 { bar.parts.iter().map(|(_, seconds)| seconds).sum() };
        assert_eq!(bars.iter().map(lasts).collect::<Vec<_>>(), [1.0, 1.125, 1.375, 2.0, 1.0]);
        let text = report.text();
        for expected in [
            "a state of 100.0 MiB, 2 workers; a step takes 40.00 ms",
            "200 MiB/s: 0.50 of the copy, 2.00 of TCP, 2.50 of TCP all at once\njoin      copied to loaded",
            "80.00 ms, 2.00 of the median",
            "median   10.00 ms, longest   20.00 ms of 2",
            "kill        process start to hello ",
            "median  125.00 ms, longest  375.00 ms of 2\nkill        hello to snapshot ",
            "2000.00 ms, 50 MiB/s",
            "100 MiB/s: 0.50 of the file",
            "processors of all workers meanwhile 0.50 s, 4.77 s/GB",
            "processors until they have loaded it 3.00 s, 14.31 s/GB of each",
            "Held",
            "save      given up",
        ] {
            assert!(text.contains(expected), "{expected} is missing from {text}");
        }
    }
}
