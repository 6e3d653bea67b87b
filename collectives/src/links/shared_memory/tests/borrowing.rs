//! Sums that a receiver borrows where the sender has them.

use super::in_place::{gradient, layout, turn, write};
use super::*;
use crate::borrowed::Borrowed;
use crate::coming::Coming;
use crate::gradient::{Filling, GradientBuffer, Sum};
use crate::layout::Layout;

/// Sends chunk `index` of a finished sum in place.
async fn lend(sender: &mut SharedMemorySender, buffer: &mut GradientBuffer, index: u32) {
    let view = buffer.complete();
    let chunk = view.chunk_in_place(index).await.unwrap().lent();
    let header = header_of(FrameKind::Sum, index, chunk.bytes().len());
    assert!(sender.send_in_place(&header, chunk, || ()).await.unwrap(), "it is in place");
}

async fn borrow(receiver: &mut SharedMemoryReceiver, layout: &Layout, index: u32) -> Borrowed {
    let expected = header_of(FrameKind::Sum, index, layout.chunk(index).len());
    match receiver.borrow(&expected).await.unwrap() {
        Received::Borrowed(borrowed) => borrowed,
        Received::Slot(slot) => panic!("it was copied: {slot:?}"),
    }
}

fn holds(bytes: &[u8], value: f32) -> bool {
    bytes.chunks(4).all(|four| four == value.to_le_bytes())
}

/// Whether what is written next to `buffer` is written where it is.
fn is_written_there(layout: &Layout, buffer: &mut GradientBuffer) -> bool {
    let before = buffer.bytes().as_ptr();
    write(layout, buffer, 9.0);
    buffer.bytes().as_ptr() == before
}

#[tokio::test]
async fn what_is_borrowed_is_its_owners_again_once_all_of_it_is_returned() {
    let (_turn, layout) = (turn().await, layout());
    let (mut sender, mut receiver) = link();
    let mut sum = gradient(&layout, 1.0);
    for index in [1, 0] {
        lend(&mut sender, &mut sum, index).await;
    }
    let borrowed = [
        borrow(&mut receiver, &layout, 1).await,
        borrow(&mut receiver, &layout, 0).await,
    ];
    // Frames of other kinds come between, and are read.
    send(&mut sender, 3).await.unwrap();
    assert_eq!(receive(&mut receiver, 3).await.unwrap(), payload(3));
    assert!(!is_written_there(&layout, &mut sum), "the other end has it");
    assert!(borrowed.iter().all(|chunk| holds(chunk, 1.0)));
    let [one, other] = borrowed;
    // Two more, of the memory to which it has moved: what was borrowed last is returned first.
    for index in [1, 0] {
        lend(&mut sender, &mut sum, index).await;
    }
    let before = borrow(&mut receiver, &layout, 1).await;
    let last = borrow(&mut receiver, &layout, 0).await;
    assert!(holds(&last, 9.0));
    drop(last);
    drop(before);
    assert!(is_written_there(&layout, &mut sum), "all of this memory is returned");
    drop(one);
    assert!(holds(&other, 1.0), "and some of the other is not");
}

#[tokio::test]
async fn what_is_lent_and_not_kept_is_returned_once_it_is_read() {
    let (_turn, layout) = (turn().await, layout());
    let (mut sender, mut receiver) = link();
    let mut sum = gradient(&layout, 1.0);
    lend(&mut sender, &mut sum, 1).await;
    let expected = header_of(FrameKind::Sum, 1, layout.chunk(1).len());
    let mut payload = receiver.receive(&expected).await.unwrap();
    assert!(payload.is_in_place() && holds(&payload.to_vec(), 1.0));
    assert!(!is_written_there(&layout, &mut sum), "the other end may look again");
    lend(&mut sender, &mut sum, 1).await;
    drop(payload);
    drop(receiver.receive(&expected).await.unwrap());
    assert!(is_written_there(&layout, &mut sum));
}

#[tokio::test]
async fn what_is_borrowed_first_and_kept_longer_is_not_returned_by_what_came_later() {
    let (_turn, layout) = (turn().await, layout());
    let (mut sender, mut receiver) = link();
    let mut sum = gradient(&layout, 1.0);
    for index in [1, 0] {
        lend(&mut sender, &mut sum, index).await;
    }
    let first = borrow(&mut receiver, &layout, 1).await;
    drop(borrow(&mut receiver, &layout, 0).await);
    assert!(!is_written_there(&layout, &mut sum));
    assert!(holds(&first, 1.0));
}

#[tokio::test]
async fn what_is_borrowed_outlives_the_link_and_the_owner() {
    let (_turn, layout) = (turn().await, layout());
    let (mut sender, mut receiver) = link();
    let mut sum = gradient(&layout, 1.0);
    lend(&mut sender, &mut sum, 1).await;
    let borrowed = borrow(&mut receiver, &layout, 1).await;
    drop((sender, receiver));
    assert!(!is_written_there(&layout, &mut sum), "links end with their generation");
    drop(sum);
    assert!(holds(&borrowed, 1.0));
}

#[tokio::test]
async fn what_a_process_that_has_ended_had_borrowed_is_its_owners_again() {
    let (_turn, layout) = (turn().await, layout());
    let (mut sender, mut receiver) = link();
    let mut sum = gradient(&layout, 1.0);
    lend(&mut sender, &mut sum, 1).await;
    lend(&mut sender, &mut sum, 0).await;
    let borrowed = borrow(&mut receiver, &layout, 1).await;
    // The second one is never received.
    drop(receiver);
    assert!(!is_written_there(&layout, &mut sum));
    lend_nothing_more(&mut sender, &mut sum).await;
    drop(borrowed);
    // Nothing keeps the socket open now, as in a process that has ended.
    write(&layout, &mut sum, 2.0);
    assert!(is_written_there(&layout, &mut sum));
}

/// A link whose receiver is gone takes no frame.
async fn lend_nothing_more(sender: &mut SharedMemorySender, sum: &mut GradientBuffer) {
    let view = sum.complete();
    let chunk = view.chunk_in_place(1).await.unwrap();
    let header = header_of(FrameKind::Sum, 1, chunk.bytes().len());
    let refused = sender.send_in_place(&header, chunk, || ()).await;
    assert!(matches!(refused, Err(LinkError::Refused)), "{refused:?}");
}

#[tokio::test]
async fn nothing_is_borrowed_at_a_place_that_cannot_be() {
    let (_turn, layout) = (turn().await, layout());
    let (mut sender, mut receiver) = link();
    let mut sum = gradient(&layout, 1.0);
    lend(&mut sender, &mut sum, 1).await;
    drop(borrow(&mut receiver, &layout, 1).await);
    for at in [sum.length() as u64 - 299, u64::MAX] {
        let place = super::super::in_place::Place {
            pages: 1,
            at,
            lent: true,
        };
        sender.writer.refer(&header_of(FrameKind::Sum, 0, 300).encode(), place);
        sender.writer.count(&*sender.bell);
        let found = receiver.borrow(&header_of(FrameKind::Sum, 0, 300)).await;
        let found = found.unwrap_err().to_string();
        assert!(found.contains("beyond the"), "{found}");
        // A link that has failed is not used again.
        (sender, receiver) = link();
        lend(&mut sender, &mut sum, 1).await;
        drop(borrow(&mut receiver, &layout, 1).await);
    }
}

#[tokio::test]
async fn a_sum_of_which_all_is_borrowed_is_read_and_takes_no_memory() {
    let (_turn, layout) = (turn().await, layout());
    let (mut sender, mut receiver) = link();
    let mut sum = gradient(&layout, 1.0);
    let coming = Coming::default();
    let mut filling = Filling::new(&layout, GradientBuffer::in_pages(&layout), &coming);
    for index in layout.travel() {
        lend(&mut sender, &mut sum, index).await;
        filling.borrow(index, borrow(&mut receiver, &layout, index).await);
    }
    let borrowed = Sum::from_buffer(Step::ZERO, filling.finish());
    assert_eq!(borrowed.samples(&layout), 1);
    assert!(borrowed.runs(0..layout.tensors_end()).all(|run| holds(run, 1.0)));
    assert!(!borrowed.into_buffer().is_touched());
}

/// In which pages it lies.
async fn pages_of(buffer: &mut GradientBuffer) -> u64 {
    let view = buffer.complete();
    let chunk = view.chunk_in_place(0).await.unwrap();
    chunk.place().expect("it lies in pages").0.number()
}

#[tokio::test]
async fn room_for_a_sum_is_written_where_it_is_if_that_is_returned_before_there_is_something_to_write() {
    let (_turn, layout) = (turn().await, layout());
    let (mut sender, mut receiver) = link();
    for returned in [true, false] {
        let mut sum = gradient(&layout, 1.0);
        lend(&mut sender, &mut sum, 1).await;
        let mut borrowed = Some(borrow(&mut receiver, &layout, 1).await);
        let (pages, coming) = (pages_of(&mut sum).await, Coming::default());
        let mut filling = Filling::new(&layout, sum, &coming);
        if returned {
            borrowed = None;
        }
        for chunk in layout.travel() {
            filling.fill(chunk, |chunk| chunk.put(&vec![7; chunk.left()]));
        }
        coming.expect();
        let mut sum = filling.finish();
        assert_eq!(pages_of(&mut sum).await == pages, returned);
        assert!(sum.bytes().iter().all(|byte| *byte == 7));
        assert!(borrowed.is_none_or(|chunk| holds(&chunk, 1.0)));
    }
}
