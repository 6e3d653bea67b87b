//! Data sets in the formats that people have. Each is a feature of this crate by its own name, so that a program builds what it reads.
//!
//! All of them read by number, believe no length before it is bounded, and say of a damaged file which it is, where, and what was
//! expected there.
