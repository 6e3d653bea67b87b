//! Processes that stand still without their parents' knowledge: in a control group of their own that is frozen, as a container is that is
//! paused. Needs root and the second version of control groups.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the groups' file system may be: beside those of the first version, or alone.
const PLACES: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// A process that is frozen. Thawed when it is dropped.
#[derive(Debug)]
pub(crate) struct Frozen(PathBuf);

impl Frozen {
    /// Freezes a process. What is missing for it, if this machine has none of it.
    pub(crate) fn new(pid: u32) -> Result<Self, String> {
        let has_groups = |place: &&&str| Path::new(place).join("cgroup.controllers").exists();
        let place = PLACES
            .iter()
            .find(has_groups)
            .ok_or("there are no control groups of the second version")?;
        let group = Path::new(place).join(format!("sardana-frozen-{pid}"));
        fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        let frozen = Self(group);
        frozen.write("cgroup.procs", &pid.to_string())?;
        frozen.write("cgroup.freeze", "1")?;
        Ok(frozen)
    }

    pub(crate) fn thaw(&self) -> Result<(), String> {
        self.write("cgroup.freeze", "0")
    }

    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.0.join(file);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // It may have ended, and a group that has a process in it stays.
        let _ = self.thaw();
        let _ = fs::remove_dir(&self.0);
    }
}

/// Whether this machine can freeze processes; says why not.
pub(crate) fn can_freeze() -> bool {
    let tried = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .map_err(|error| error.to_string());
    let frozen = tried.and_then(|mut sleeping| {
        let frozen = Frozen::new(sleeping.id());
        let ended = sleeping.kill().and_then(|()| sleeping.wait());
        frozen.and(ended.map(|_| ()).map_err(|error| error.to_string()))
    });
    frozen.inspect_err(|reason| println!("skipped: {reason}")).is_ok()
}
