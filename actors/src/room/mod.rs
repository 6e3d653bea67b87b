//! Memory for a whole state, or for shares of one. The system takes longer to find new pages than a copy into them takes: so such memory is used
//! again, and lies spare meanwhile.

mod pages;
mod spare;

pub use pages::zeros;
pub use spare::{Room, Spare};
