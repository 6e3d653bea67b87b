//! Announced leaves: a cloud tells a machine that it will be taken away, and its workers leave in time, at a boundary.
//!
//! An agent heeds notices with [`crate::hosts::AgentHost::watch`]; a program that runs something else on the machine starts a
//! [`Watch`] and does as it sees fit.

pub use sardana_actors::agent::notices::{
    MetadataAddress, MetadataAddressError, NoticeOrder, NoticesConfig, Service, Watch,
};
pub use sardana_protocol::notices::{Cloud, Heed, Heeded, Pace, Said};
