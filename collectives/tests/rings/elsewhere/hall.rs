//! A means of summing that is not links: the ranks of one process leave what they bring in a hall, and the last one adds it up. It can be told to fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sardana_collectives::layout::Layout;
use sardana_collectives::reduce;
use sardana_collectives::ring::{SummationConfig, SummationNote};
use sardana_collectives::summation::{
    Answer, Communicator, DEVICE_BYTES, Gathering, MEETING_BYTES, Summand, Summation, SummationError,
};
use sardana_protocol::words::Rank;
use tokio::sync::watch;

use crate::far;

/// What is wrong with a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It has no such means.
    Lacks,
    /// It is on the device of rank 0.
    OnTheFirst,
    /// It has no place to meet.
    Homeless,
    /// It finds out that it cannot when it is to begin.
    DoesNotBegin,
    /// It looks for the others without end.
    Looks,
    /// It fails in the sum of this number.
    FailsIn(u64),
    /// It brings nothing to any sum, and does not say so.
    Silent,
}

/// Where ranks meet.
#[derive(Debug, Default)]
pub(crate) struct Hall {
    /// How often rank 0 has said where.
    pub(crate) meetings: AtomicU64,
    /// How many ranks have means of it.
    ranks: AtomicU64,
    left: Mutex<BTreeMap<(u64, u64), Vec<Left>>>,
    /// How many ranks have left something so far.
    pub(crate) brought: watch::Sender<u64>,
    /// How many sums were added up.
    pub(crate) sums: AtomicU64,
    /// How many communicators have ended.
    pub(crate) aborted: watch::Sender<u64>,
}

/// What one rank has left.
#[derive(Debug)]
struct Left {
    rank: Rank,
    own: Vec<u8>,
    summand: Summand,
}

#[derive(Debug)]
struct Means {
    hall: Arc<Hall>,
    fault: Fault,
    /// Of the rank, where all have theirs in their order.
    number: u64,
}

#[derive(Debug)]
struct Seat {
    hall: Arc<Hall>,
    fault: Fault,
    layout: Arc<Layout>,
    rank: Rank,
    ranks: u32,
    meeting: u64,
    sums: u64,
    /// Of one that looks without end.
    _looks: Option<Answer<()>>,
    /// Of one that is silent.
    kept: Vec<Summand>,
}

/// What a rank was told of.
pub(crate) type Notes = Arc<Mutex<Vec<String>>>;

impl Hall {
    /// A rank's means, and what it will be told of.
    pub(crate) fn means(self: &Arc<Self>, fault: Fault) -> (SummationConfig, Notes) {
        let notes = Notes::default();
        let hall = Arc::clone(self);
        let noted = Arc::clone(&notes);
        let note = move |note: &SummationNote| noted.lock().unwrap().push(note.to_string());
        let number = self.ranks.fetch_add(1, Ordering::Relaxed);
        (SummationConfig::new(Arc::new(Means { hall, fault, number }), note), notes)
    }

    /// Takes out what has been left for a sum.
    fn take(&self, sum: (u64, u64), of: impl Fn(&Left) -> bool) -> Vec<Left> {
        let mut all = self.left.lock().unwrap();
        let left = all.remove(&sum).unwrap_or_default();
        let (taken, kept) = left.into_iter().partition(of);
        all.insert(sum, kept);
        taken
    }
}

impl Summation for Means {
    fn name(&self) -> &'static str {
        "a hall"
    }

    fn device(&self, _: &Layout) -> Result<[u8; DEVICE_BYTES], SummationError> {
        match self.fault {
            Fault::Lacks => Err(SummationError::new("expected a hall, found none")),
            Fault::OnTheFirst => Ok([0; DEVICE_BYTES]),
            Fault::None | Fault::DoesNotBegin | Fault::Looks | Fault::FailsIn(_) | Fault::Silent | Fault::Homeless => {
                Ok([self.number as u8; DEVICE_BYTES])
            }
        }
    }

    fn meet(&self) -> Result<[u8; MEETING_BYTES], SummationError> {
        if self.fault == Fault::Homeless {
            return Err(SummationError::new("expected room for a meeting, found none"));
        }
        let number = self.hall.meetings.fetch_add(1, Ordering::Relaxed);
        let mut meeting = [0; MEETING_BYTES];
        meeting[..8].copy_from_slice(&number.to_le_bytes());
        Ok(meeting)
    }

    fn begin(&self, gathering: Gathering) -> Box<dyn Communicator> {
        let Gathering {
            layout,
            rank,
            ranks,
            meeting,
            all_there,
        } = gathering;
        let looks = match self.fault {
            Fault::Looks => Some(all_there),
            Fault::DoesNotBegin => {
                all_there.give(Err(SummationError::new("expected a door, found none")));
                None
            }
            Fault::None | Fault::Lacks | Fault::OnTheFirst | Fault::Homeless | Fault::FailsIn(_) | Fault::Silent => {
                all_there.give(Ok(()));
                None
            }
        };
        Box::new(Seat {
            hall: Arc::clone(&self.hall),
            fault: self.fault,
            layout,
            rank,
            ranks,
            meeting: u64::from_le_bytes(*meeting.first_chunk().unwrap()),
            sums: 0,
            _looks: looks,
            kept: Vec::new(),
        })
    }
}

impl Communicator for Seat {
    fn sum(&mut self, summand: Summand) {
        if self.fault == Fault::FailsIn(self.sums) {
            return summand.summed.give(Err(SummationError::new("expected a sum, found fire")));
        }
        if self.fault == Fault::Silent {
            return self.kept.push(summand);
        }
        let tensors = 0..self.layout.tensors_end();
        let there = summand.elsewhere.iter().map(|there| far::tensors(there, &self.layout));
        let mut own = vec![0; tensors.len()];
        let terms: Vec<Vec<u8>> = there.chain(summand.here.clone()).collect();
        let mut terms: Vec<&[u8]> = terms.iter().map(Vec::as_slice).collect();
        if !terms.is_empty() {
            reduce::sum_into(&self.layout, tensors.clone(), &mut own, &mut terms);
        }
        let sum = (self.meeting, self.sums);
        let left = Left {
            rank: self.rank,
            own,
            summand,
        };
        let count = {
            let mut all = self.hall.left.lock().unwrap();
            let here = all.entry(sum).or_default();
            here.push(left);
            here.len()
        };
        self.sums += 1;
        self.hall.brought.send_modify(|brought| *brought += 1);
        if count < self.ranks as usize {
            return;
        }
        let mut all = self.hall.take(sum, |_| true);
        all.sort_by_key(|left| left.rank);
        let mut total = vec![0; tensors.len()];
        let mut terms: Vec<&[u8]> = all.iter().map(|left| left.own.as_slice()).collect();
        reduce::sum_into(&self.layout, tensors, &mut total, &mut terms);
        self.hall.sums.fetch_add(1, Ordering::Relaxed);
        for Left { summand, .. } in all {
            let Summand {
                mut room, summed, stays, ..
            } = summand;
            room.copy_from_slice(&total);
            if let Some(stays) = &stays {
                far::put(stays, &total);
            }
            summed.give(Ok(room));
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(last) = self.sums.checked_sub(1) {
            drop(self.hall.take((self.meeting, last), |left| left.rank == self.rank));
        }
        self.hall.aborted.send_modify(|aborted| *aborted += 1);
    }
}
