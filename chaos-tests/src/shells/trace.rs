//! Every datagram of a run: when, from where, to where, how long, and what became of it. Two runs of one seed have equal ones.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::dice::mix;

/// One datagram. What it says is encrypted, with keys that differ each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// When it was sent, since the run began.
    pub at: Duration,
    /// The sender's address.
    pub from: SocketAddr,
    /// The receiver's address.
    pub to: SocketAddr,
    /// Its UDP payload.
    pub bytes: usize,
    /// What became of it.
    pub fate: Fate,
}

/// What becomes of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It arrives after this time, unless no socket is there or the queue there is full.
    Arrives(Duration),
    /// It arrives twice.
    Twice(Duration, Duration),
    /// The network loses it.
    Lost,
    /// A partition is in its way.
    CutOff,
    /// It is larger than the network carries.
    TooLarge,
    /// Its sender is dead.
    FromTheDead,
}

impl fmt::Display for Datagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            from,
            to,
            bytes,
            fate,
        } = self;
        write!(f, "{:.6} s {from} -> {to} {bytes} bytes {fate:?}", at.as_secs_f64())
    }
}

/// How many datagrams had which fate.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Sent at all.
    pub sent: u64,
    /// Their UDP payloads.
    pub bytes: u64,
    /// Lost by the network.
    pub lost: u64,
    /// Doubled.
    pub doubled: u64,
    /// Stopped by a partition.
    pub cut_off: u64,
    /// Larger than the network carries.
    pub too_large: u64,
    /// Dropped because the receiver's queue was full.
    pub overflowed: u64,
    /// For an address where no socket is.
    pub nobody: u64,
}

/// The datagrams of a run, in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) datagrams: Vec<Datagram>,
    pub(super) traffic: Traffic,
    digest: u64,
}

impl Trace {
    pub(super) fn note(&mut self, datagram: Datagram) {
        let traffic = &mut self.traffic;
        traffic.sent += 1;
        traffic.bytes += datagram.bytes as u64;
        match datagram.fate {
            Fate::Arrives(_) => {}
            Fate::Twice(..) => traffic.doubled += 1,
            Fate::Lost => traffic.lost += 1,
            Fate::CutOff => traffic.cut_off += 1,
            Fate::TooLarge => traffic.too_large += 1,
            // The dead say nothing: it is not counted, but it is part of the trace.
            Fate::FromTheDead => (traffic.sent, traffic.bytes) = (traffic.sent - 1, traffic.bytes - datagram.bytes as u64),
        }
        for byte in datagram.to_string().bytes() {
            self.digest = mix(self.digest ^ u64::from(byte));
        }
        self.datagrams.push(datagram);
    }

    /// The whole trace as one number.
    pub(super) const fn digest(&self) -> u64 {
        self.digest
    }
}
