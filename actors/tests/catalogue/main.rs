//! The catalogue, hurt: killed, injured, without power, without room. What was acknowledged is there, or an error says what is not.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod child;
mod disk;
mod failing;
mod history;
mod injuries;
mod injury;
mod killed;
mod model;
mod power;
mod random;
