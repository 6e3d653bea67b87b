//! `sardana bench link`: what one link between two workers of this host carries, beside what every program of this host has.

pub(super) mod end;
mod pair;
mod traffic;

use std::path::PathBuf;

use clap::Args;
use sardana_actors::memory::available;
use serde_json::json;

use super::limits::copied;
use super::plot::{Line, Picture};
use super::progress::Progress;
use super::sizes::{self, Sizes};
use super::times::words;
use super::wires::{Ways, Wire};
use crate::ending::Failure;
use crate::run::Linking;
use pair::Pair;
use traffic::{Seen, Traffic};

/// Send messages of many sizes over one link between two workers of this host, and print what it takes
///
/// Two processes with a worker's certificate make the links that two members of a generation make: one each way, through memory that both
/// map, or over QUIC, which is encrypted. A message is like a gradient of that size: frames of 128 KiB at most, written where the link sends
/// them from, and copied from where the link has put them. Nothing is added, no step is taken. Of each size is measured, one after the other:
///
///   round trip  the whole message there, and once it is there the whole of it back: median, 99th percentile, least; of the largest
///               sizes there are 20, so that the 99th percentile is the longest;
///   one way     bytes a second of messages one after the other, until the other end says that it has all of them;
///   each way    bytes a second in each of the two directions, while both send and receive;
///   CPU s/GB    seconds of processors, of both processes together, for each 10⁹ bytes one way.
///
/// Beside it, with messages of the same size, between two threads and not encrypted: through a megabyte of memory that both have, over a
/// Unix socket, and over a TCP connection of this host with itself; with --json also a copy within memory, by one thread, and each way at
/// once. `of limit` compares one way with the first of them for links through memory, and with TCP for QUIC.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  \
    sardana bench link\n  \
    sardana bench link --sizes 64B,1MiB --link quic\n  \
    sardana bench link --json | jq '.rows[] | [.bytes, .round_trip_seconds.median]'\n  \
    sardana bench link --svg link.svg"
)]
pub(super) struct Link {
    /// Bytes of a message: some sizes, or a range, from one to the next four times as large.
    #[arg(long, value_name = "SIZES", default_value = "64B..64MiB")]
    sizes: Sizes,
    #[command(flatten)]
    linking: Linking,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
    /// Draw it as well, into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What was measured of one size.
#[derive(Debug, Clone)]
struct Row {
    traffic: Traffic,
    asked: Seen,
    /// Of processors, by both ends, for each 10⁹ bytes one way.
    processor: f64,
    /// Which of the limits the link is compared with.
    beside: Wire,
    /// Bytes a second of a copy within memory.
    copied: f64,
    shared: Ways,
    unix: Ways,
    tcp: Ways,
}

const HEAD: &str = "                round trip              one way each way              CPU          limits, one way            limits, round trip\n     \
                    size    median       p99       min     GB/s     GB/s of limit     s/GB  memory    Unix     TCP    memory      Unix       TCP";

impl Row {
    fn measure(pair: &mut Pair, bytes: u64, beside: Wire) -> Result<Self, Failure> {
        let traffic = Traffic {
            bytes,
            trips: (TRIPPED / bytes).clamp(TRIPS.0, TRIPS.1),
            messages: (MOVED / bytes).clamp(MESSAGES.0, MESSAGES.1),
        };
        let [asked, answered] = pair.carry(traffic)?;
        let bytes = usize::try_from(bytes).map_err(Failure::failed)?;
        let ways = |wire: Wire| wire.measure(bytes).map_err(Failure::failed);
        let moved = traffic.bytes as f64 * traffic.messages as f64;
        Ok(Self {
            traffic,
            asked,
            processor: (asked.processor + answered.processor) / (moved / 1e9),
            beside,
            copied: copied(bytes),
            shared: ways(Wire::Memory)?,
            unix: ways(Wire::Unix)?,
            tcp: ways(Wire::Tcp)?,
        })
    }

    fn rate(&self, seconds: f64) -> f64 {
        self.traffic.bytes as f64 * self.traffic.messages as f64 / seconds
    }

    fn one_way(&self) -> f64 {
        self.rate(self.asked.one_way)
    }

    fn each_way(&self) -> f64 {
        self.rate(self.asked.both_ways)
    }

    fn limit(&self) -> &Ways {
        match self.beside {
            Wire::Memory => &self.shared,
            Wire::Unix => &self.unix,
            Wire::Tcp => &self.tcp,
        }
    }

    fn line(&self) -> String {
        let gigabytes = |rate: f64| format!("{:.3}", rate / 1e9);
        let [median, slow, least] = self.asked.trip;
        format!(
            "{:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8.2} {:>8.2} {:>7} {:>7} {:>7} {:>9} {:>9} {:>9}",
            sizes::words(self.traffic.bytes),
            words(median),
            words(slow),
            words(least),
            gigabytes(self.one_way()),
            gigabytes(self.each_way()),
            self.one_way() / self.limit().one_way,
            self.processor,
            gigabytes(self.shared.one_way),
            gigabytes(self.unix.one_way),
            gigabytes(self.tcp.one_way),
            words(self.shared.round_trip),
            words(self.unix.round_trip),
            words(self.tcp.round_trip),
        )
    }

    fn json(&self) -> serde_json::Value {
        let [median, slow, least] = self.asked.trip;
        let of = |ways: &Ways| {
            json!({
                "round_trip": median / ways.round_trip,
                "one_way": self.one_way() / ways.one_way,
                "each_way": self.each_way() / ways.both_ways,
            })
        };
        json!({
            "bytes": self.traffic.bytes,
            "round_trips": self.traffic.trips,
            "messages": self.traffic.messages,
            "round_trip_seconds": { "median": median, "p99": slow, "min": least },
            "one_way_bytes_per_second": self.one_way(),
            "each_way_bytes_per_second": self.each_way(),
            "processor_seconds_per_gigabyte": self.processor,
            "limits": {
                "copy": { "one_way_bytes_per_second": self.copied },
                "memory": self.shared.json(),
                "unix": self.unix.json(),
                "tcp": self.tcp.json(),
            },
            "of_limits": { "memory": of(&self.shared), "unix": of(&self.unix), "tcp": of(&self.tcp) },
        })
    }
}

/// So many bytes go there in round trips of each size,
const TRIPPED: u64 = 256 << 20;

/// in so many round trips, at least and at most.
const TRIPS: (u64, u64) = (20, 5_000);

/// So many bytes go one way, and then each way,
const MOVED: u64 = 1 << 30;

/// in so many messages, at least and at most.
const MESSAGES: (u64, u64) = (8, 50_000);

impl Link {
    pub(super) fn carry_out(self) -> Result<(), Failure> {
        // What cannot be measured or written is said before anything is measured.
        self.check_memory(available())?;
        let picture = Picture::create(self.svg.as_deref())?;
        let mut pair = Pair::start(&self.linking.environment())?;
        let title = format!("a link through {} between two processes", pair.through);
        let beside = end::limit(pair.through);
        let progress = Progress::new();
        if !self.json {
            progress.print(&format!("{title}; times of messages, rates in GB/s\n{HEAD}"));
        }
        let mut rows = Vec::new();
        for &bytes in &self.sizes.0 {
            progress.say(format!("messages of {}", sizes::words(bytes)));
            let row = Row::measure(&mut pair, bytes, beside)?;
            if !self.json {
                progress.print(&row.line());
            }
            rows.push(row);
        }
        drop(progress);
        if self.json {
            let through = pair.through.to_string();
            let rows: Vec<_> = rows.iter().map(Row::json).collect();
            println!("{}", json!({ "through": through, "what": title, "rows": rows }));
        }
        if let Some(picture) = picture {
            picture.draw(&title, "bytes of a message", &lines(&rows))?;
        }
        Ok(())
    }

    /// Each of the two processes has what it sends and what it receives; while the limits are measured, this one has four such buffers.
    fn check_memory(&self, available: Option<u64>) -> Result<(), Failure> {
        let largest = self.sizes.0.iter().copied().max().unwrap_or(0);
        let needed = largest.saturating_mul(4).saturating_add(SPARE_BYTES);
        match available {
            Some(available) if available < needed => Err(Failure::Failed(format!(
                "messages of {} need {} of memory, and {} are left: give smaller --sizes",
                sizes::words(largest),
                sizes::words(needed),
                sizes::words(available),
            ))),
            Some(_) | None => Ok(()),
        }
    }
}

/// What processes take besides.
const SPARE_BYTES: u64 = 64 << 20;

fn lines(rows: &[Row]) -> Vec<Line> {
    let line = |name, rate: fn(&Row) -> f64| Line {
        name,
        points: rows.iter().map(|row| (row.traffic.bytes as f64, rate(row))).collect(),
    };
    vec![
        line("link, one way", Row::one_way),
        line("link, each way at once", Row::each_way),
        line("from thread to thread through memory", |row| row.shared.one_way),
        line("Unix socket", |row| row.unix.one_way),
        line("TCP within the host, not encrypted", |row| row.tcp.one_way),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let ways = |times: f64| Ways {
            round_trip: 1.0 / times,
            one_way: 4e9 * times,
            both_ways: 2e9 * times,
        };
        let seen = |processor| Seen {
            trip: [0.5, 0.75, 0.25],
            one_way: 2.0,
            both_ways: 4.0,
            processor,
        };
        Row {
            traffic: Traffic {
                bytes: 1_000_000_000,
                trips: 20,
                messages: 8,
            },
            asked: seen(1.0),
            processor: 1.5,
            beside: Wire::Tcp,
            copied: 9e9,
            shared: ways(4.0),
            unix: ways(2.0),
            tcp: ways(1.0),
        }
    }

    #[test]
    fn rates_are_of_all_messages_and_compared_with_the_limit_of_the_same_kind() {
        let row = row();
        assert_eq!((row.one_way(), row.each_way()), (4e9, 2e9));
        let json = row.json();
        assert_eq!(
            json["of_limits"]["tcp"],
            json!({ "round_trip": 0.5, "one_way": 1.0, "each_way": 1.0 })
        );
        assert_eq!(
            json["of_limits"]["memory"],
            json!({ "round_trip": 2.0, "one_way": 0.25, "each_way": 0.25 })
        );
        assert!(row.line().contains("     1.00 "), "{}", row.line());
        let through_memory = Row {
            beside: Wire::Memory,
            ..row
        };
        assert!(through_memory.line().contains("     0.25 "), "{}", through_memory.line());
    }

    #[test]
    fn messages_that_memory_does_not_hold_are_refused_with_what_they_need() {
        let link = |sizes: &str| Link {
            sizes: sizes.parse().unwrap(),
            linking: Linking::default(),
            json: false,
            svg: None,
        };
        link("64B,1GiB").check_memory(Some(5 << 30)).unwrap();
        link("1GiB").check_memory(None).unwrap();
        let refused = link("64B,1GiB").check_memory(Some(4 << 30)).unwrap_err().to_string();
        assert!(
            refused.contains("1.0 GiB need 4.1 GiB of memory, and 4.0 GiB are left"),
            "{refused}"
        );
    }
}
