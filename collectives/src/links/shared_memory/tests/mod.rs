//! Both ends in one process, each with a mapping of its own.

mod borrowing;
mod in_place;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::FutureExt;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use sardana_protocol::words::{Generation, Incarnation, Step};
use tokio::task::yield_now;

use super::*;
use crate::limits::{CHUNK_BYTES, SHARED_FRAMES, SHARED_SLOTS};
use crate::links::frame::{FrameKind, HeaderField, PlanSlot};
use crate::runs::Runs;

fn link() -> (SharedMemorySender, SharedMemoryReceiver) {
    pair().unwrap()
}

fn header(chunk: u32, payload_bytes: usize) -> FrameHeader {
    header_of(FrameKind::Running, chunk, payload_bytes)
}

fn header_of(kind: FrameKind, chunk: u32, payload_bytes: usize) -> FrameHeader {
    FrameHeader {
        generation: Generation::new(Incarnation::new(1), 2),
        step: Step::new(3),
        plan: PlanSlot::Steady,
        hop: 4,
        kind,
        chunk,
        payload_bytes: u32::try_from(payload_bytes).unwrap(),
    }
}

/// The payload of frame `chunk`: its bytes and its length tell it.
fn payload(chunk: u32) -> Vec<u8> {
    let bytes = [0, 1, 300, CHUNK_BYTES][chunk as usize % 4];
    (0..bytes).map(|at| (at as u32 * 7 + chunk) as u8).collect()
}

async fn send(sender: &mut SharedMemorySender, chunk: u32) -> Result<(), LinkError> {
    let payload = payload(chunk);
    let fill = |room: &mut [u8]| room.copy_from_slice(&payload);
    sender.send(&header(chunk, payload.len()), fill, || ()).await
}

async fn receive(receiver: &mut SharedMemoryReceiver, chunk: u32) -> Result<Vec<u8>, LinkError> {
    let bytes = payload(chunk).len();
    Ok(receiver.receive(&header(chunk, bytes)).await?.to_vec())
}

/// Notes that it was called.
struct Called(AtomicBool);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn an_end_that_looks_again_can_go_on_as_soon_as_its_turn_has_ended() {
    // A thread that comes then carries on with it, and does not leave it to the task, see `helped`. What the runtime brings only when it has looked at its
    // sockets would come too late.
    let goes_on = || {
        let (_sender, mut receiver) = link();
        let called = Arc::new(Called(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&called));
        let mut receiving = std::pin::pin!(receive(&mut receiver, 0));
        assert!(receiving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        called.0.load(Ordering::SeqCst)
    };
    // One whose thread does not run for as long as it would look again has looked for long enough.
    assert!((0..1_000).any(|_| goes_on()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_frames_pass_in_order_whichever_end_is_the_slower() {
    for pause in [(1, 7), (7, 1), (1_000, 1_000)] {
        let (mut sender, mut receiver) = link();
        let sending = tokio::spawn(async move {
            for chunk in 0..2_000 {
                if chunk % pause.0 == 0 {
                    yield_now().await;
                }
                send(&mut sender, chunk).await.unwrap();
            }
            sender.finish();
        });
        for chunk in 0..2_000 {
            if chunk % pause.1 == 0 {
                yield_now().await;
            }
            assert!(
                receive(&mut receiver, chunk).await.unwrap() == payload(chunk),
                "frame {chunk}"
            );
        }
        assert!(matches!(receive(&mut receiver, 2_000).await, Err(LinkError::Ended(_))));
        sending.await.unwrap();
    }
}

#[tokio::test]
async fn a_full_link_holds_its_sender_back_and_a_receiver_that_is_gone_refuses() {
    let (mut sender, mut receiver) = link();
    for chunk in 0..SHARED_SLOTS as u32 {
        send(&mut sender, chunk).now_or_never().unwrap().unwrap();
    }
    {
        let more = send(&mut sender, SHARED_SLOTS as u32);
        tokio::pin!(more);
        assert!(more.as_mut().now_or_never().is_none());
        let slot = receiver.receive(&header(0, 0)).await.unwrap();
        assert!(more.as_mut().now_or_never().is_none(), "the slot is being read");
        drop(slot);
        receive(&mut receiver, 1).await.unwrap();
        more.await.unwrap();
    }
    drop(receiver);
    assert!(matches!(send(&mut sender, 9).await, Err(LinkError::Refused)));
}

#[tokio::test]
async fn an_end_that_sleeps_is_woken_by_a_frame_an_end_and_a_death() {
    for good in [true, false] {
        let (mut sender, mut receiver) = link();
        let receiving = tokio::spawn(async move {
            let first = receive(&mut receiver, 2).await.unwrap();
            (first, receive(&mut receiver, 3).await.unwrap_err())
        });
        asleep(&sender).await;
        send(&mut sender, 2).await.unwrap();
        asleep(&sender).await;
        sender.end(if good { State::Finished } else { State::Reset });
        let (first, error) = receiving.await.unwrap();
        assert!(first == payload(2));
        assert_eq!(matches!(error, LinkError::Ended(_)), good, "{error}");
        assert_eq!(matches!(error, LinkError::Reset), !good, "{error}");
    }
    // A process that is killed says nothing: its socket does.
    let (sender, mut receiver) = link();
    let receiving = tokio::spawn(async move { receive(&mut receiver, 0).await.unwrap_err() });
    asleep(&sender).await;
    killed(sender);
    assert!(matches!(receiving.await.unwrap(), LinkError::Reset));
}

/// Waits until the receiving end sleeps.
async fn asleep(sender: &SharedMemorySender) {
    while !sender.writer.other_sleeps() {
        yield_now().await;
    }
}

/// What is left of an end whose process is killed: its socket is closed, and nothing is said.
fn killed(mut sender: SharedMemorySender) {
    sender.finished = true;
}

#[tokio::test]
async fn what_was_written_before_the_writer_was_killed_is_read() {
    let (mut sender, mut receiver) = link();
    send(&mut sender, 2).await.unwrap();
    killed(sender);
    assert_eq!(receive(&mut receiver, 2).await.unwrap(), payload(2));
    assert!(matches!(receive(&mut receiver, 3).await, Err(LinkError::Reset)));
}

#[tokio::test]
async fn another_frame_than_the_expected_one_is_refused_by_name() {
    let (mut sender, mut receiver) = link();
    send(&mut sender, 2).await.unwrap();
    let error = receiver.receive(&header(3, 300)).await.unwrap_err();
    assert!(matches!(
        error,
        LinkError::Unexpected {
            field: HeaderField::Chunk,
            expected: 3,
            found: 2
        }
    ));
}

#[tokio::test]
async fn counts_that_cannot_be_are_an_error_and_nothing_is_read() {
    let (sender, mut receiver) = link();
    sender.writer.claim(SHARED_FRAMES as u64 + 1);
    assert!(matches!(receive(&mut receiver, 0).await, Err(LinkError::Counts)));
    // More is read than was written.
    let (own, memory) = SharedMemory::create().unwrap();
    let other = Reader::new(SharedMemory::open(&memory).unwrap().0);
    let (one, _two) = UnixStream::pair().unwrap();
    other.claim(3);
    let mut sender = SharedMemorySender::new(own, one);
    assert!(matches!(send(&mut sender, 0).await, Err(LinkError::Counts)));
}

#[test]
fn memory_that_could_be_taken_away_or_is_of_another_length_is_not_mapped() {
    let unsealed = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&unsealed, 4 << 20).unwrap();
    let refused = |memory: &OwnedFd| SharedMemory::open(memory).unwrap_err().to_string();
    assert!(refused(&unsealed).contains("not sealed"));
    rustix::fs::fcntl_add_seals(&unsealed, region::SEALS).unwrap();
    assert!(refused(&unsealed).contains("found 4194304"), "{}", refused(&unsealed));
    let file = OwnedFd::from(tempfile::tempfile().unwrap());
    SharedMemory::open(&file).unwrap_err();
}
