//! How much memory a process had at most, by the kernel's own account.

use anyhow::{Context, Result};

/// MiB that a process has now, and that it had at most since [`begin_anew`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) now: f64,
    pub(crate) most: f64,
}

impl Memory {
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| -> Result<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
            let kib: f64 = kib.with_context(|| format!("process {pid} has no {name}"))?.parse()?;
            Ok(kib / 1024.0)
        };
        Ok(Self {
            now: field("VmRSS")?,
            most: field("VmHWM")?,
        })
    }
}

/// From now on the most is counted anew.
pub(crate) fn begin_anew(pid: u32) -> Result<()> {
    Ok(std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?)
}
