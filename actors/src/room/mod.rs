//! Memory for a whole state, or for shares of one. The system takes longer to find new pages than a copy into them takes: so such memory is used
//! again, and lies in reserve meanwhile.

mod pages;
mod reserve;

pub use pages::zeros;
pub use reserve::{Reserve, Room};
