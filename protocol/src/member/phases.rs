//! Where the machine stands, for observers outside: by the names of the drawing. Changes nothing.

use super::Member;
use super::seat::{Links, Seat};
use super::update::Update;
use crate::messages::CatchUp;

/// Where each part of a worker's machine stands. A simulator counts which transitions it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phases {
    /// Its seat in a generation.
    pub seat: &'static str,
    /// Its seat in the generation to come.
    pub next: &'static str,
    /// The change of its state.
    pub update: &'static str,
    /// What it copies and follows.
    pub joining: &'static str,
}

impl Member {
    /// Where each part stands.
    #[must_use]
    pub fn phases(&self) -> Phases {
        Phases {
            seat: match &self.seat {
                None if self.promise.owed.is_some() => "halting",
                None => "none",
                Some(seat) if seat.catching_up != CatchUp::None => "catching up",
                Some(seat) => linked(seat),
            },
            next: self.next.as_ref().map_or("none", linked),
            update: match self.update {
                Update::None => "none",
                Update::Summed(_) => "summed",
                Update::Applying(_) => "applying",
                Update::Fetched(_) => "fetched",
                Update::Loading(_) => "loading",
            },
            joining: self.joining.follow.as_ref().map_or("none", |follow| follow.phase()),
        }
    }
}

fn linked(seat: &Seat) -> &'static str {
    match seat.links {
        Links::Pending => "linking",
        Links::Ready => "linked",
        Links::Broken(_) => "broken",
    }
}
