//! What the host has, as the system tells it: on Linux by its files, elsewhere less of it.

use std::fs;
use std::thread::available_parallelism;

use bytesize::ByteSize;
use rustix::process::{Resource, getrlimit};
use sardana_actors::memory::available;
use sardana_collectives::{compression, reduce};
use sardana_net::quic::limits::{LOOPBACK_V4_BYTES, ROOMY_BUFFER_BYTES, SOCKET_BUFFER_BYTES};

use super::finding::{Finding, State};

/// Bytes of an IPv4 and a UDP header.
const HEADER_BYTES: u64 = 28;

/// The least for which no job of one host has been seen to run out.
const ROOMY_FILES: u64 = 1_024;

/// Features of processors that loops are compiled for, or that matrices are multiplied with.
const FEATURES: [&str; 8] = [
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512dq",
    "avx512_bf16",
];

pub(super) fn findings() -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(path).ok();
    vec![
        processors(read("/proc/cpuinfo").as_deref()),
        memory(available(), read("/proc/meminfo").as_deref()),
        huge_pages(read("/sys/kernel/mm/transparent_hugepage/enabled").as_deref()),
        loopback(number(read("/sys/class/net/lo/mtu"))),
        buffers(
            number(read("/proc/sys/net/core/rmem_max")),
            number(read("/proc/sys/net/core/wmem_max")),
        ),
        open_files(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum),
        locked_memory(getrlimit(Resource::Memlock).current),
    ]
}

fn number(text: Option<String>) -> Option<u64> {
    text?.trim().parse().ok()
}

fn processors(cpuinfo: Option<&str>) -> Finding {
    let count = available_parallelism().map_or(0, |count| count.get() as u64);
    let flags: Vec<&str> = cpuinfo
        .and_then(|text| {
            text.lines()
                .find_map(|line| line.strip_prefix("flags")?.trim_start().strip_prefix(':'))
        })
        .map(|flags| flags.split_whitespace().collect())
        .unwrap_or_default();
    let features: Vec<&str> = FEATURES.into_iter().filter(|feature| flags.contains(feature)).collect();
    let (additions, halves) = (reduce::instructions(), compression::instructions());
    let architecture = std::env::consts::ARCH;
    let with = if features.is_empty() {
        String::new()
    } else {
        format!(" with {}", features.join(", "))
    };
    let found = format!("{count} of {architecture}{with}; sums are added by {additions}, halves made by {halves}");
    let state = if count == 0 { State::Unknown } else { State::Fine };
    Finding::new(
        "processors",
        state,
        found,
        "gradients; all workers of a job have processors of one kind, so that all round alike",
    )
    .value("count", count)
    .value("architecture", architecture)
    .value("features", features)
    .value("additions", additions)
    .value("halves", halves)
}

fn memory(available: Option<u64>, meminfo: Option<&str>) -> Finding {
    let line = meminfo.and_then(|text| text.lines().find_map(|line| line.strip_prefix("MemTotal:")));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let total = kilobytes.map(|kilobytes| kilobytes.saturating_mul(1_024));
    let needed_for = "the state of each worker, the gradients that it holds, and copies of the state for newcomers";
    let finding = match (available, total) {
        (None, _) => Finding::new("memory", State::Unknown, "this system does not tell", needed_for)
            .advising("say how many gradients a worker may hold, with `.shard_capacity(n)` of the job"),
        (Some(available), Some(total)) => {
            let found = format!(
                "{} of {} are left, within the limits of control groups",
                size(available),
                size(total)
            );
            Finding::new("memory", State::Fine, found, needed_for)
        }
        (Some(available), None) => Finding::new("memory", State::Fine, format!("{} are left", size(available)), needed_for),
    };
    finding.value("available", available).value("total", total)
}

/// The word in brackets is what holds.
fn huge_pages(enabled: Option<&str>) -> Finding {
    let chosen = enabled
        .and_then(|text| text.split_once('[')?.1.split_once(']'))
        .map(|(word, _)| word);
    let needed_for = "getting memory for a state or a gradient in a third of the time";
    let finding = match chosen {
        None => Finding::new("huge pages", State::Unknown, "this system does not tell", needed_for),
        Some("never") => Finding::new("huge pages", State::Limited, "never given", needed_for)
            .advising("as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        Some(chosen) => Finding::new("huge pages", State::Fine, format!("given: {chosen}"), needed_for),
    };
    finding.value("enabled", chosen)
}

fn loopback(mtu: Option<u64>) -> Finding {
    let whole = u64::from(LOOPBACK_V4_BYTES) + HEADER_BYTES;
    let needed_for = "links between workers of this host that share no memory";
    let finding = match mtu {
        None => Finding::new("loopback", State::Unknown, "this system does not tell its MTU", needed_for),
        Some(mtu) if mtu < whole => {
            let found = format!("an MTU of {mtu} bytes, so that datagrams of {whole} are sent in parts");
            Finding::new("loopback", State::Limited, found, needed_for).advising("as root: ip link set lo mtu 65536")
        }
        Some(mtu) => Finding::new("loopback", State::Fine, format!("an MTU of {mtu} bytes"), needed_for),
    };
    finding.value("mtu", mtu)
}

fn buffers(receive: Option<u64>, send: Option<u64>) -> Finding {
    let needed_for = "bursts of large datagrams between workers of this host";
    let finding = match receive.zip(send).map(|(receive, send)| receive.min(send)) {
        None => Finding::new(
            "socket buffers",
            State::Unknown,
            "this system does not tell their limit",
            needed_for,
        ),
        Some(most) if most < ROOMY_BUFFER_BYTES as u64 => {
            let found = format!("at most {}, so that datagrams are small", size(most));
            let to_do =
                format!("as root: sysctl net.core.rmem_max={SOCKET_BUFFER_BYTES} net.core.wmem_max={SOCKET_BUFFER_BYTES}");
            Finding::new("socket buffers", State::Limited, found, needed_for).advising(to_do)
        }
        Some(most) => Finding::new("socket buffers", State::Fine, format!("at most {}", size(most)), needed_for),
    };
    finding.value("receive", receive).value("send", send)
}

fn open_files(now: Option<u64>, most: Option<u64>) -> Finding {
    let needed_for = "links, memory that workers share, and files of checkpoints";
    let finding = match now {
        Some(now) if now < ROOMY_FILES => {
            let most = most.map_or_else(|| "more".to_owned(), |most| most.to_string());
            let found = format!("at most {now} in each process, and {most} where it is raised");
            Finding::new("open files", State::Limited, found, needed_for).advising(format!("ulimit -n {ROOMY_FILES}"))
        }
        Some(now) => Finding::new(
            "open files",
            State::Fine,
            format!("at most {now} in each process"),
            needed_for,
        ),
        None => Finding::new("open files", State::Fine, "as many as the system has", needed_for),
    };
    finding.value("now", now).value("most", most)
}

fn locked_memory(now: Option<u64>) -> Finding {
    let found = now.map_or_else(
        || "as much as there is".to_owned(),
        |now| format!("at most {} in each process", size(now)),
    );
    Finding::new(
        "locked memory",
        State::Fine,
        found,
        "nothing that Sardana locks itself; drivers of GPUs and network cards may count theirs here",
    )
    .value("now", now)
}

fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_host_has_is_told() {
        let findings = findings();
        let about: Vec<&str> = findings.iter().map(|finding| finding.about.as_str()).collect();
        let expected = [
            "processors",
            "memory",
            "huge pages",
            "loopback",
            "socket buffers",
            "open files",
            "locked memory",
        ];
        assert_eq!(about, expected);
        for finding in findings {
            let needs_words = matches!(finding.state, State::Limited | State::Missing);
            assert!(!needs_words || finding.to_do.is_some(), "{finding:?}");
        }
    }

    #[test]
    fn features_of_a_processor_are_those_that_matter() {
        let found = processors(Some(
            "model name\t: any\nflags\t\t: fpu avx2 fma sse2 avx512f\nflags\t\t: none\n",
        ));
        assert_eq!(found.values["features"], serde_json::json!(["avx2", "fma", "avx512f"]));
        assert_eq!(processors(None).values["features"], serde_json::json!([]));
    }

    #[test]
    fn memory_is_what_is_left_within_limits() {
        let found = memory(Some(3 << 30), Some("MemTotal:       8388608 kB\nMemFree: 1 kB\n"));
        assert_eq!(
            found.found,
            "3.0 GiB of 8.0 GiB are left, within the limits of control groups"
        );
        assert_eq!(found.values["total"], 8_u64 << 30);
        assert_eq!(memory(None, None).state, State::Unknown);
        assert_eq!(memory(Some(1), Some("MemTotal: x kB")).found, "1 B are left");
    }

    #[test]
    fn what_is_less_than_it_could_be_says_what_to_do() {
        let states = |findings: [Finding; 3]| findings.map(|finding| (finding.state, finding.to_do.is_some()));
        let pages = ["always [madvise] never\n", "always madvise [never]\n", "nonsense"];
        assert_eq!(
            states(pages.map(|text| huge_pages(Some(text)))),
            [(State::Fine, false), (State::Limited, true), (State::Unknown, false)]
        );
        let limited = [(State::Fine, false), (State::Limited, true), (State::Unknown, false)];
        assert_eq!(states([Some(65_536), Some(65_534), None].map(loopback)), limited);
        assert_eq!(
            states([Some(4 << 20), Some(212_992), None].map(|most| buffers(Some(8 << 20), most))),
            limited
        );
        assert_eq!(
            states([None, Some(1_023), Some(1_024)].map(|now| open_files(now, Some(4_096)))),
            [(State::Fine, false), (State::Limited, true), (State::Fine, false)]
        );
    }
}
