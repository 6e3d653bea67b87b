//! A generation's sums by a [`Summation`], beside its links: all ranks agree on it before the first step, and when one cannot go on all give it up alike, within
//! the step under way, which the links then sum. Knows not how it sums.
//!
//! ```text
//! all tell what they sum on ──> rank 0 tells where they meet ──> begin ──> all tell whether they have found the others
//!                                                                            │ one of them has not: links sum
//! a step:  all tell that their gradients are there ──> Communicator::sum ──> all tell whether they have the sum, and their auxiliary sums and samples
//!                                                                                    │ one of them has not: links sum, in this step too
//! ```
//! No rank is asked for a sum before all can follow: what it enqueues waits for the others, and everything else on its device may wait for that, a state for instance that
//! another rank needs before it has a gradient. So a sum takes as long as its bytes do, and one that takes far longer is given up.
//!
//! What a rank tells goes over the links. A rank that cannot go on says so at once, and the others wait no longer. The gradients are not changed, whatever happens.
//! When the ring is given up, its communicator goes with it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sardana_protocol::words::Rank;
use tokio::sync::watch;
use tokio::time::timeout;

use super::RingError;
use super::inbox::Piece;
use super::means::{NotElsewhere, SummationConfig, SummationNote};
use super::passage::{Passage, own_terms};
use super::telling::{Around, tell_all};
use crate::gradient::GradientBuffer;
use crate::limits::LEAST_RATE;
use crate::reduce;
use crate::summation::{
    Answer, Answered, Communicator, DEVICE_BYTES, Gathering, MEETING_BYTES, Summand, Summation, SummationError,
};

/// The means of one generation, as long as all ranks have it.
pub(super) struct Elsewhere {
    config: SummationConfig,
    communicator: Option<Box<dyn Communicator>>,
    /// For the next sum.
    room: Vec<u8>,
}

/// The first byte of what a rank tells: whether it can go on, or whether it has heard that another cannot.
const CANNOT: u8 = 0;
const CAN: u8 = 1;
const HAS_HEARD: u8 = 2;

impl Elsewhere {
    /// Agrees with all other ranks.
    pub(super) async fn begin(passage: Passage<'_>, config: SummationConfig, links: &mut Around) -> Result<Self, RingError> {
        let name = config.summation.name();
        let (communicator, note) = match gather(passage, &config, links).await? {
            Ok(communicator) => (Some(communicator), SummationNote::Begun(name)),
            Err(why) => (None, SummationNote::NotBegun { name, why }),
        };
        (config.note)(&note);
        Ok(Self {
            config,
            communicator,
            room: Vec::new(),
        })
    }

    /// Sums one step into `into`. False if the links must: then nothing has happened.
    pub(super) async fn sum(
        &mut self,
        passage: Passage<'_>,
        links: &mut Around,
        into: &mut GradientBuffer,
        own: &[Piece],
    ) -> Result<bool, RingError> {
        let Some(communicator) = &mut self.communicator else {
            return Ok(false);
        };
        let layout = passage.layout();
        let (tensors, tail) = (0..layout.tensors_end(), layout.tensors_end()..layout.bytes());
        let (mut sum, mut own_words) = (std::mem::take(&mut self.room), Vec::new());
        let mut asked = None;
        let being_there = async {
            own_words = own_tail(passage, own).await;
            asked = Some(summand(passage, own, std::mem::take(&mut sum)).await?);
            Ok(Ok(Vec::new()))
        };
        let all_there = all_can(passage, links, 0, being_there).await?;
        if let Err(why) = all_there {
            return Ok(self.give_up(passage, why));
        }
        let (mut summand, summed) = asked.expect("a rank that can sum has what it sums");
        let stays = summand.elsewhere.first().and_then(|first| into.room_beside(first));
        summand.stays.clone_from(&stays);
        communicator.sum(summand);
        let patience = self.config.patience + Duration::from_secs((tensors.len() / LEAST_RATE) as u64);
        let summing = async {
            let found = timeout(patience, summed.get()).await.unwrap_or_else(|_| {
                self.config.setbacks.waited_in_vain(patience);
                Err(too_slow(patience))
            });
            Ok(found.map(|found| {
                sum = found;
                own_words
            }))
        };
        match all_can(passage, links, tail.len(), summing).await? {
            Ok(tails) => {
                self.config.setbacks.came();
                let mut tails: Vec<&[u8]> = tails.iter().map(Vec::as_slice).collect();
                let bytes = into.bytes_mut();
                bytes[tensors].copy_from_slice(&sum);
                reduce::sum_into(layout, tail.clone(), &mut bytes[tail], &mut tails);
                if let Some(stays) = &stays {
                    into.keep_as_well(layout, stays);
                }
                self.room = sum;
                Ok(true)
            }
            Err(why) => {
                if stays.is_some() {
                    // What was given up may still write there.
                    into.part_from_elsewhere();
                }
                Ok(self.give_up(passage, why))
            }
        }
    }

    /// For the rest of the generation.
    fn give_up(&mut self, passage: Passage<'_>, why: NotElsewhere) -> bool {
        self.communicator = None;
        (self.config.note)(&SummationNote::GivenUp {
            name: self.config.summation.name(),
            step: passage.step,
            why,
        });
        false
    }
}

fn too_slow(patience: Duration) -> SummationError {
    SummationError::new(format!(
        "expected the sum within {patience:?} of when all ranks were there, found none; see whether its network has failed"
    ))
}

/// Begins where all can.
async fn gather(
    passage: Passage<'_>,
    config: &SummationConfig,
    links: &mut Around,
) -> Result<Result<Box<dyn Communicator>, NotElsewhere>, RingError> {
    let rank = passage.config.rank;
    let own = match config.left_alone() {
        Some(reason) => Err(reason),
        None => {
            let layout = Arc::clone(&passage.config.layout);
            aside(config, move |summation| summation.device(&layout)).await
        }
    };
    let mut all = BTreeMap::from([(rank, own.as_ref().ok().copied())]);
    let words = encode(own.as_ref().ok());
    tell_all(passage, links, 1 + DEVICE_BYTES, async { Ok(words) }, |rank, words| {
        all.insert(rank, decode(&words));
    })
    .await?;
    if let Err(error) = own {
        return Ok(Err(NotElsewhere::Own(error)));
    }
    if let Err(why) = are_apart(&all) {
        return Ok(Err(why));
    }
    let meeting = async {
        let is_first = rank.get() == 0;
        let place = if is_first {
            aside(config, |summation| summation.meet()).await
        } else {
            Ok([0; MEETING_BYTES])
        };
        Ok(place.map(|place| place.to_vec()))
    };
    let places = match all_can(passage, links, MEETING_BYTES, meeting).await? {
        Ok(places) => places,
        Err(why) => return Ok(Err(why)),
    };
    let meeting = places.first().and_then(|place| place.first_chunk());
    begin(passage, config, links, *meeting.expect("each rank has told as many bytes")).await
}

/// Has the ranks look for each other there.
async fn begin(
    passage: Passage<'_>,
    config: &SummationConfig,
    links: &mut Around,
    meeting: [u8; MEETING_BYTES],
) -> Result<Result<Box<dyn Communicator>, NotElsewhere>, RingError> {
    let (all_there, gathered) = Answer::new();
    let communicator = config.summation.begin(Gathering {
        layout: Arc::clone(&passage.config.layout),
        rank: passage.config.rank,
        ranks: passage.config.world_size,
        meeting,
        all_there,
    });
    let late = || {
        config.setbacks.waited_in_vain(config.patience);
        SummationError::new(format!(
            "expected all ranks within {:?}, found some missing; see that its network lets them reach each other",
            config.patience
        ))
    };
    let gathering = async {
        let gathered = timeout(config.patience, gathered.get()).await;
        Ok(gathered.unwrap_or_else(|_| Err(late())).map(|()| Vec::new()))
    };
    Ok(all_can(passage, links, 0, gathering).await?.map(|_| communicator))
}

/// Asks the means on a thread that may be held up.
async fn aside<T: Send + 'static>(
    config: &SummationConfig,
    ask: impl FnOnce(&dyn Summation) -> Result<T, SummationError> + Send + 'static,
) -> Result<T, SummationError> {
    let summation = Arc::clone(&config.summation);
    let asking = tokio::task::spawn_blocking(move || ask(&*summation));
    asking.await.unwrap_or_else(|error| Err(SummationError::new(error)))
}

/// Tells all others whether `own` has come to a good end, with so many bytes of it, and hears theirs: all of them in the order of ranks. When one has not, `own` is
/// not waited for.
async fn all_can(
    passage: Passage<'_>,
    links: &mut Around,
    bytes: usize,
    own: impl Future<Output = Result<Result<Vec<u8>, SummationError>, RingError>>,
) -> Result<Result<Vec<Vec<u8>>, NotElsewhere>, RingError> {
    let rank = passage.config.rank;
    // The rank that cannot, or as long as that is not known one that has heard of it; this one, as long as nothing is heard.
    let (no, mut said_no) = watch::channel(rank);
    let (mut all, mut found) = (BTreeMap::new(), None);
    let telling = async {
        let own = tokio::select! {
            own = own => found.insert(own?).as_ref().map_err(|_| CANNOT),
            _ = said_no.wait_for(|said| *said != rank) => Err(HAS_HEARD),
        };
        let nothing = vec![0; bytes];
        let (word, words) = own.map_or_else(|word| (word, &nothing), |words| (CAN, words));
        Ok([&[word], &words[..]].concat())
    };
    tell_all(passage, links, 1 + bytes, telling, |teller, mut words| {
        match words.remove(0) {
            CAN => {
                all.insert(teller, words);
            }
            CANNOT => {
                no.send_replace(teller);
            }
            _ => {
                let is_first = |said: &mut Rank| *said == rank && std::mem::replace(said, teller) != teller;
                no.send_if_modified(is_first);
            }
        }
    })
    .await?;
    let refused = *no.borrow();
    Ok(match found {
        Some(Err(error)) => Err(NotElsewhere::Own(error)),
        Some(Ok(words)) if refused == rank => {
            all.insert(rank, words);
            Ok(all.into_values().collect())
        }
        Some(Ok(_)) | None => Err(NotElsewhere::Other(refused)),
    })
}

/// The sum of what lies behind the tensors of this rank's gradients, once all of them count.
async fn own_tail(passage: Passage<'_>, own: &[Piece]) -> Vec<u8> {
    let layout = passage.layout();
    let range = layout.tensors_end()..layout.bytes();
    let mut sum = vec![0; range.len()];
    let mut terms = Vec::with_capacity(own.len());
    for piece in own {
        terms.push(piece.gradient.tail(range.clone()).await);
    }
    if !terms.is_empty() {
        reduce::sum_into(layout, range, &mut sum, &mut terms);
    }
    sum
}

/// This rank's gradients: where they lie, and the sum of those that lie here.
async fn summand(passage: Passage<'_>, own: &[Piece], mut room: Vec<u8>) -> Result<(Summand, Answered<Vec<u8>>), RingError> {
    let layout = passage.layout();
    let end = layout.tensors_end();
    let (mut elsewhere, mut here) = (Vec::new(), Vec::new());
    for piece in own {
        match piece.gradient.lies(layout).await {
            Some(resident) => elsewhere.push(resident),
            None => here.push(piece.clone()),
        }
    }
    let here = if here.is_empty() {
        None
    } else {
        let mut sum = vec![0; end];
        for index in 0..layout.chunks() {
            let range = layout.chunk(index).start..layout.chunk(index).end.min(end);
            let mut terms = own_terms(passage, &here, index).await?;
            if !range.is_empty() {
                terms.iter_mut().for_each(|term| *term = &term[..range.len()]);
                reduce::sum_into(layout, range.clone(), &mut sum[range], &mut terms);
            }
        }
        Some(sum)
    };
    room.resize(end, 0);
    let (summed, answered) = Answer::new();
    let summand = Summand {
        elsewhere,
        here,
        stays: None,
        room,
        summed,
    };
    Ok((summand, answered))
}

fn encode(device: Option<&[u8; DEVICE_BYTES]>) -> Vec<u8> {
    match device {
        Some(device) => [&[CAN], &device[..]].concat(),
        None => vec![CANNOT; 1 + DEVICE_BYTES],
    }
}

/// None if the rank has said that it cannot.
fn decode(words: &[u8]) -> Option<[u8; DEVICE_BYTES]> {
    let (&can, device) = words.split_first()?;
    device.first_chunk().copied().filter(|_| can == CAN)
}

/// Whether all can, and each is on a device of its own. The same on all ranks, since all know the same.
fn are_apart(all: &BTreeMap<Rank, Option<[u8; DEVICE_BYTES]>>) -> Result<(), NotElsewhere> {
    let mut devices = BTreeMap::new();
    for (&rank, device) in all {
        let device = device.ok_or(NotElsewhere::Other(rank))?;
        if let Some(first) = devices.insert(device, rank) {
            return Err(NotElsewhere::Shared { first, second: rank });
        }
    }
    Ok(())
}
