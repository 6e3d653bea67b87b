//! A file system in a file, whose power can be cut: it is shut down, and forgets all that was not synced.

use std::path::{Path, PathBuf};

use crate::disk::{Mounted, run, text};

pub(crate) struct Disk {
    image: PathBuf,
    pub(crate) at: PathBuf,
}

impl Disk {
    /// A disk of this kind, or what is missing here for it.
    pub(crate) fn new(place: &Path, kind: &str) -> Result<Self, String> {
        let image = place.join("image");
        run("truncate", &["-s", "512M", text(&image)])?;
        let make = format!("mkfs.{kind}");
        let force = if kind == "ext4" { "-F" } else { "-f" };
        run(&make, &["-q", force, text(&image)])?;
        let disk = Self {
            image,
            at: place.join("disk"),
        };
        disk.probe()?;
        Ok(disk)
    }

    pub(crate) fn mount(&self) -> Result<Mounted, String> {
        Mounted::new(&self.at, &["-o", "loop", text(&self.image)])
    }

    pub(crate) fn cut_power(&self) -> Result<(), String> {
        run("xfs_io", &["-x", "-c", "shutdown", text(&self.at)])
    }

    fn probe(&self) -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err("mounting needs root".to_owned());
        }
        let mounted = self.mount()?;
        self.cut_power()?;
        mounted.unmount();
        Ok(())
    }
}
