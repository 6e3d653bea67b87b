//! How much memory this host has left, and how much this process uses. Linux tells; elsewhere nothing is known.
//!
//! What a host has left is not what a process may take: a container's limit may be far below. So each control group on the way from the
//! process's own up to the root is asked as well, of either version. Must not know what the memory is for.

use std::fs;
use std::path::{Path, PathBuf};

/// What a process uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Bytes now.
    pub now: u64,
    /// The most that it ever was.
    pub peak: u64,
}

/// Bytes that new processes may still take before something has to make way: of the host, or of the tightest limit. None if not known.
#[must_use]
pub fn available() -> Option<u64> {
    let host = kilobytes(&read("/proc/meminfo")?, "MemAvailable");
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = groups_of(&groups).into_iter().filter_map(|group| group.left(read));
    host.into_iter().chain(limits).min()
}

/// What this process uses. None if not known.
#[must_use]
pub fn used() -> Option<Used> {
    let status = read("/proc/self/status")?;
    Some(Used {
        now: kilobytes(&status, "VmRSS")?,
        peak: kilobytes(&status, "VmHWM")?,
    })
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// `Name:   123 kB`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// A control group that may bound the memory of its processes, in one of the two versions.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    folder: PathBuf,
    names: Names,
}

/// What a version calls its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Names {
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Memory that is given back when it is wanted, a line of `memory.stat`.
    cache: &'static str,
}

const FIRST: Names = Names {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: "total_inactive_file",
};

const SECOND: Names = Names {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    cache: "inactive_file",
};

/// The groups of a process and all above them, by its `/proc/…/cgroup`. Within a container some are not there.
fn groups_of(text: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let names = match controllers {
            "" => SECOND,
            controllers if controllers.split(',').any(|name| name == "memory") => FIRST,
            _ => continue,
        };
        let above = Path::new(path.trim_start_matches('/')).ancestors();
        groups.extend(above.map(|path| Group {
            folder: Path::new(names.root).join(path),
            names,
        }));
    }
    groups
}

impl Group {
    /// How far its processes are from its limit. None if it has no limit.
    fn left(&self, read: impl Fn(PathBuf) -> Option<String>) -> Option<u64> {
        let number = |name: &str| read(self.folder.join(name))?.trim().parse::<u64>().ok();
        let limit = number(self.names.limit)?;
        let used = number(self.names.used).unwrap_or(0);
        let stat = read(self.folder.join("memory.stat")).unwrap_or_default();
        let cache = stat.lines().find_map(|line| {
            let value = line.strip_prefix(self.names.cache)?.strip_prefix(' ')?;
            value.trim().parse::<u64>().ok()
        });
        Some(limit.saturating_sub(used.saturating_sub(cache.unwrap_or(0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_kilobytes_are_read_and_others_are_not() {
        let text =
            "MemTotal:       100 kB\nMemAvailable:   24105196 kB\nVmRSS:\nVmHWM: x kB\nHuge: 18446744073709551615 kB\n";
        assert_eq!(kilobytes(text, "MemAvailable"), Some(24_105_196 << 10));
        for name in ["Mem", "VmRSS", "VmHWM", "Huge", "Absent"] {
            assert_eq!(kilobytes(text, name), None, "{name}");
        }
    }

    #[test]
    fn all_groups_up_to_the_root_are_asked() {
        let folders = |text| -> Vec<String> {
            let groups = groups_of(text).into_iter();
            groups.map(|group| group.folder.display().to_string()).collect()
        };
        assert_eq!(
            folders("0::/user.slice/job.scope\n"),
            [
                "/sys/fs/cgroup/user.slice/job.scope",
                "/sys/fs/cgroup/user.slice",
                "/sys/fs/cgroup/"
            ]
        );
        assert_eq!(
            folders("7:cpu,memory:/docker\n3:cpuset:/other\nnonsense\n:\n"),
            ["/sys/fs/cgroup/memory/docker", "/sys/fs/cgroup/memory/"]
        );
    }

    #[test]
    fn a_limit_leaves_what_is_not_used_or_can_be_given_back() {
        let of = |limit: &'static str, used: &'static str| {
            let group = Group {
                folder: PathBuf::from("/group"),
                names: SECOND,
            };
            group.left(|path| match path.to_str() {
                Some("/group/memory.max") => Some(limit.to_owned()),
                Some("/group/memory.current") => Some(used.to_owned()),
                Some("/group/memory.stat") => Some("anon 3\ninactive_file 100\n".to_owned()),
                _ => None,
            })
        };
        assert_eq!(of("1000\n", "600\n"), Some(500));
        assert_eq!(of("1000\n", "50\n"), Some(1_000));
        assert_eq!(of("1000\n", "2000\n"), Some(0));
        assert_eq!(of("max\n", "600\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_system_tells() {
        let used = used().unwrap();
        assert!(0 < used.now && used.now <= used.peak, "{used:?}");
        assert!(available().unwrap() > 0);
    }
}
