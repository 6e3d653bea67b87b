//! A coordinator over real QUIC, and peers that say what they should not, say nothing, or come at the wrong time.

mod agents;
mod hellos;
mod raw;
mod workers;
