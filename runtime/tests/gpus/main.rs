//! `sardana doctor` and `sardana bench` of a program that asks for GPUs: without a driver, and with one that is none.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod bench;
mod doctor;
