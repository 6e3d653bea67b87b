//! Another means than links by which the ranks of a generation sum the tensors of their gradients, where those lie: such as NCCL between GPUs. Knows neither what
//! that is, nor what goes over links.
//!
//! A [`Summation`] serves a worker for its life, a [`Communicator`] one generation. Nothing here waits: what is asked for is answered by other threads. In which
//! order a sum is added is theirs to choose, so that exact order has no use for it; but all ranks must get the same bits.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use sardana_protocol::words::Rank;
use tokio::sync::oneshot;

use crate::gradient::Resident;
use crate::layout::Layout;

/// Bytes of the name of what a rank sums on.
pub const DEVICE_BYTES: usize = 16;

/// Bytes that say where the ranks of a generation meet: as many as NCCL's ids have.
pub const MEETING_BYTES: usize = 128;

/// A means of summing. It must not change the gradients: where a sum does not come to its end they are summed again.
pub trait Summation: fmt::Debug + Send + Sync {
    /// What it is called in logs, and in what workers must have in common.
    fn name(&self) -> &'static str;

    /// Names what this rank sums on, of which two ranks cannot be. May take a while, as [`Self::meet`] may: called where that holds up no other work.
    ///
    /// # Errors
    /// Why it cannot take part: then no rank does, and links sum.
    fn device(&self, layout: &Layout) -> Result<[u8; DEVICE_BYTES], SummationError>;

    /// Where all ranks are to meet: asked of rank 0 alone, once all can take part.
    ///
    /// # Errors
    /// Why there is no such place: then links sum.
    fn meet(&self) -> Result<[u8; MEETING_BYTES], SummationError>;

    /// Begins to look for the other ranks, and returns at once.
    fn begin(&self, gathering: Gathering) -> Box<dyn Communicator>;
}

/// The means of one generation. One that is dropped is aborted at once, whatever it waits for.
pub trait Communicator: fmt::Debug + Send {
    /// Asks for the sum over all ranks, once the last one is answered, and returns at once.
    fn sum(&mut self, summand: Summand);
}

/// The ranks of a generation, which have agreed to meet.
#[derive(Debug)]
pub struct Gathering {
    /// The bytes of a gradient.
    pub layout: Arc<Layout>,
    /// This rank.
    pub rank: Rank,
    /// How many there are.
    pub ranks: u32,
    /// Where they meet, as rank 0 has said.
    pub meeting: [u8; MEETING_BYTES],
    /// Whether all are there, as soon as that is known.
    pub all_there: Answer<()>,
}

/// What one rank brings to one sum.
#[derive(Debug)]
pub struct Summand {
    /// Gradients whose tensors lie elsewhere. They are only read.
    pub elsewhere: Vec<Arc<dyn Resident>>,
    /// The sum of those that lie here: the bytes of all tensors. None if there are none.
    pub here: Option<Vec<u8>>,
    /// Memory elsewhere in which the finished sum is to be, too.
    pub stays: Option<Arc<dyn Resident>>,
    /// Room for the bytes of all tensors. What it holds is overwritten.
    pub room: Vec<u8>,
    /// The room with the sum over all ranks in it.
    pub summed: Answer<Vec<u8>>,
}

/// Why a rank cannot sum in this way. Its clones are the same.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SummationError(Arc<dyn Error + Send + Sync>);

impl SummationError {
    /// For this reason: what was expected, what was found, what to do.
    pub fn new(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(reason.into().into())
    }
}

/// Takes an answer. One that is dropped without is a failure.
#[derive(Debug)]
pub struct Answer<T>(oneshot::Sender<Result<T, SummationError>>);

/// Where the answer comes.
#[derive(Debug)]
pub(crate) struct Answered<T>(oneshot::Receiver<Result<T, SummationError>>);

impl<T> Answer<T> {
    pub(crate) fn new() -> (Self, Answered<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), Answered(receiver))
    }

    /// Gives it.
    pub fn give(self, answer: Result<T, SummationError>) {
        // A generation that was given up does not want it any more.
        let _ = self.0.send(answer);
    }
}

impl<T> Answered<T> {
    pub(crate) async fn get(self) -> Result<T, SummationError> {
        let gone = || SummationError::new("expected an answer of what sums, found that it has ended without one");
        self.0.await.unwrap_or_else(|_| Err(gone()))
    }
}
