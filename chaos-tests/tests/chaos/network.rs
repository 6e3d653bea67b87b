//! Hosts of our own: network namespaces around one bridge. Any of them can be cut off from any other, also in one direction only.
//!
//! Needs root and `ip`. A direction is cut by making the sender believe in a hardware address that nobody has: what it sends is lost
//! on the way, and it is not told. Must not know what the hosts do.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use rustix::process::geteuid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How many networks this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// One host, counted from 0.
pub(crate) type Host = u8;

/// Some hosts that reach each other and nobody else. Gone when it is dropped; whatever runs there is not.
#[derive(Debug)]
pub(crate) struct Network {
    name: String,
    hosts: Host,
}

impl Network {
    /// So many hosts. What is missing for it, if this machine has none of it.
    pub(crate) fn new(hosts: Host) -> Result<Self, String> {
        if !geteuid().is_root() {
            return Err("network namespaces need root".to_owned());
        }
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        // Whatever fails, what is there by then is removed.
        let network = Self {
            name: format!("sardana-{}-{made}", std::process::id()),
            hosts,
        };
        let switch = network.switch();
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "switch", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "switch", "up"])?;
        for host in network.all() {
            network.plug_in(host)?;
        }
        network.heal().map_err(|error| error.to_string())?;
        Ok(network)
    }

    fn plug_in(&self, host: Host) -> Result<(), String> {
        let (switch, place, port) = (self.switch(), self.place(host), format!("port{host}"));
        let address = format!("{}/24", address(host));
        ip(&["netns", "add", &place])?;
        let veth = ["type", "veth", "peer", "name", "eth0", "netns", &place];
        ip(&[&["-n", &switch, "link", "add", &port][..], &veth].concat())?;
        ip(&["-n", &switch, "link", "set", &port, "master", "switch", "up"])?;
        ip(&["-n", &place, "link", "set", "lo", "up"])?;
        ip(&["-n", &place, "link", "set", "eth0", "address", &hardware(host), "up"])?;
        ip(&["-n", &place, "address", "add", &address, "dev", "eth0"])
    }

    /// From now on nothing that `from` sends reaches `to`.
    pub(crate) fn cut(&self, from: Host, to: Host) -> Result<()> {
        self.lead(from, to, NOBODY)
    }

    /// From now on everything reaches whom it is for.
    pub(crate) fn heal(&self) -> Result<()> {
        for (from, to) in self.all().flat_map(|from| self.all().map(move |to| (from, to))) {
            if from != to {
                self.lead(from, to, &hardware(to))?;
            }
        }
        Ok(())
    }

    fn lead(&self, from: Host, to: Host, hardware: &str) -> Result<()> {
        let (place, to) = (self.place(from), address(to).to_string());
        let at = ["lladdr", hardware, "dev", "eth0", "nud", "permanent"];
        ip(&[&["-n", &place, "neighbour", "replace", &to][..], &at].concat()).map_err(anyhow::Error::msg)
    }

    /// Does `work` on a thread of that host. The threads and processes that it starts are there as well.
    pub(crate) fn on<T: Send + 'static>(
        &self,
        host: Host,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        let path = format!("/run/netns/{}", self.place(host));
        let place = File::open(&path).with_context(|| path)?;
        Ok(thread::spawn(move || {
            move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        }))
    }

    pub(crate) fn all(&self) -> std::ops::Range<Host> {
        0..self.hosts
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.name)
    }

    fn place(&self, host: Host) -> String {
        format!("{}-{host}", self.name)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for place in self.all().map(|host| self.place(host)).chain([self.switch()]) {
            // It was never made if the machine cannot.
            let _ = ip(&["netns", "delete", &place]);
        }
    }
}

/// Of a card that is nowhere.
const NOBODY: &str = "02:00:00:00:ff:ff";

/// Where a host is reached. The same in every network; they do not know of each other.
pub(crate) const fn address(host: Host) -> Ipv4Addr {
    Ipv4Addr::new(10, 86, 0, host + 1)
}

fn hardware(host: Host) -> String {
    format!("02:00:00:00:00:{:02x}", host + 1)
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    match Command::new("ip").args(arguments).stdin(Stdio::null()).output() {
        Err(error) => Err(format!("ip: {error}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "ip {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}
