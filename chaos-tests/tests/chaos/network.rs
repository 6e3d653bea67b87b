//! Hosts of our own: network namespaces around one bridge. Any of them can be cut off from any other, also in one direction only.
//!
//! Needs root and `ip`. A direction is cut by making the sender believe in a hardware address that no host has: what it sends is lost
//! on the way, and it is not told. Must not know what the hosts do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use rustix::process::geteuid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How many networks this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// One host, counted from 0.
pub(crate) type Host = u8;

/// Some hosts that reach only each other. Gone when it is dropped; whatever runs there is not.
#[derive(Debug)]
pub(crate) struct Network {
    name: String,
    hosts: Host,
    /// From which host to which nothing passes any more.
    cuts: Mutex<BTreeSet<(Host, Host)>>,
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
            cuts: Mutex::default(),
        };
        let switch = network.switch();
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "switch", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "switch", "up"])?;
        for host in network.all() {
            network.plug_in(host)?;
        }
        let all = network.all().flat_map(|from| network.all().map(move |to| (from, to)));
        network.lead(all.filter(|(from, to)| from != to), hardware)?;
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

    /// From now on the hosts say that they carry packets of `said` bytes, and the network between them carries those of `carried` and drops
    /// longer ones without a word. Packets leave each host one by one, so that none passes as a part of several.
    pub(crate) fn carry(&self, said: u32, carried: u32) -> Result<(), String> {
        let (said, carried) = (said.to_string(), carried.to_string());
        for host in self.all() {
            ip(&["-n", &self.switch(), "link", "set", &format!("port{host}"), "mtu", &carried])?;
            ip(&[
                "-n",
                &self.place(host),
                "link",
                "set",
                "eth0",
                "mtu",
                &said,
                "gso_max_segs",
                "1",
            ])?;
        }
        Ok(())
    }

    /// Gives a host one more address.
    pub(crate) fn address(&self, host: Host, address: Ipv4Addr) -> Result<(), String> {
        let address = format!("{address}/32");
        ip(&["-n", &self.place(host), "address", "add", &address, "dev", "eth0"])
    }

    /// From now on a host finds the second addresses of others on the same network.
    pub(crate) fn route_to_second(&self, host: Host) -> Result<(), String> {
        ip(&["-n", &self.place(host), "route", "add", "10.86.1.0/24", "dev", "eth0"])
    }

    /// From now on nothing that `from` sends reaches `to`, for each of these ways.
    pub(crate) fn cut(&self, ways: impl IntoIterator<Item = (Host, Host)>) -> Result<()> {
        let ways: Vec<_> = ways.into_iter().collect();
        self.cuts().extend(&ways);
        self.lead(ways, |_| NOBODY.to_owned()).map_err(anyhow::Error::msg)
    }

    /// From now on every host is reached again. Does only what is needed: on a busy host each command takes a while, and a partition
    /// is to last as long as its test says.
    pub(crate) fn heal(&self) -> Result<()> {
        let cuts = std::mem::take(&mut *self.cuts());
        self.lead(cuts, hardware).map_err(anyhow::Error::msg)
    }

    /// Makes each `(from, to)` believe in the hardware address that `at` says of `to`, with one command for each host.
    fn lead(&self, ways: impl IntoIterator<Item = (Host, Host)>, at: impl Fn(Host) -> String) -> Result<(), String> {
        let mut commands: BTreeMap<Host, String> = BTreeMap::new();
        for (from, to) in ways {
            let way = format!("neighbour replace {} lladdr {} dev eth0 nud permanent\n", address(to), at(to));
            commands.entry(from).or_default().push_str(&way);
        }
        commands
            .into_iter()
            .try_for_each(|(from, commands)| ip_batch(&self.place(from), &commands))
    }

    fn cuts(&self) -> MutexGuard<'_, BTreeSet<(Host, Host)>> {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The hardware address that no card has.
const NOBODY: &str = "02:00:00:00:ff:ff";

/// Where a host is reached. The same in every network; they do not know of each other.
pub(crate) const fn address(host: Host) -> Ipv4Addr {
    Ipv4Addr::new(10, 86, 0, host + 1)
}

fn hardware(host: Host) -> String {
    format!("02:00:00:00:00:{:02x}", host + 1)
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    run("ip", arguments)
}

/// Runs a program to its end. What it has said, if it fails.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    succeeded(&format!("{program} {arguments:?}"), output)
}

/// Does all of `commands`, one a line, in the network namespace `place`.
fn ip_batch(place: &str, commands: &str) -> Result<(), String> {
    let output = (|| {
        let mut child = Command::new("ip")
            .args(["-n", place, "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(commands.as_bytes())?;
        }
        child.wait_with_output()
    })();
    succeeded(&format!("ip -n {place} -batch: {commands}"), output)
}

fn succeeded(what: &str, output: io::Result<Output>) -> Result<(), String> {
    match output {
        Err(error) => Err(format!("{what}: {error}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{what}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
