//! Payloads that are read where the sender has them.

use std::iter;

use rustix::fs::{SealFlags, fcntl_add_seals};
use sardana_protocol::state::{Dtype, TensorSpec};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::unconstrained;

use super::super::descriptors::send_with_memory;
use super::super::in_place::Place;
use super::*;
use crate::gradient::{GradientBuffer, WriteMode};
use crate::layout::Layout;
use crate::limits::{MOST_PAGES, RESERVED_AT_ONCE, SEEN_PAGES, SHARED_FRAMES, SHARED_SLOTS};
use crate::pages::{Pages, SeenPages};

/// A process has few pages: these tests take turns.
static TURN: Mutex<()> = Mutex::const_new(());

pub(super) async fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().await
}

/// Passes the other end memory.
type Pass<'a> = &'a dyn Fn(&Bell);

/// Two chunks and a little.
pub(super) fn layout() -> Layout {
    Layout::new(vec![TensorSpec::new("all", Dtype::F32, &[CHUNK_BYTES / 2])], 0).unwrap()
}

/// A gradient of one value, where another process could read it.
pub(super) fn gradient(layout: &Layout, value: f32) -> GradientBuffer {
    let mut buffer = GradientBuffer::in_pages(layout);
    write(layout, &mut buffer, value);
    assert!(buffer.is_in_pages(), "the system has pages");
    buffer
}

/// Zeros, where another process could read them if there are pages.
fn touched(layout: &Layout) -> GradientBuffer {
    let buffer = GradientBuffer::in_pages(layout);
    assert!(!buffer.is_touched(), "it is handed on before there is memory for it");
    assert!(buffer.bytes().iter().all(|byte| *byte == 0) && buffer.is_touched());
    buffer
}

pub(super) fn write(layout: &Layout, buffer: &mut GradientBuffer, value: f32) {
    let mut writer = buffer.writer(layout, WriteMode::Store);
    writer.write_f32(0, &vec![value; CHUNK_BYTES / 2]).unwrap();
    writer.samples(1).unwrap();
    writer.finish().unwrap();
}

/// Sends chunk `index` in place.
async fn show(sender: &mut SharedMemorySender, buffer: &mut GradientBuffer, index: u32) {
    let view = buffer.complete();
    let chunk = view.chunk_in_place(index).await.unwrap();
    let header = header(index, chunk.bytes().len());
    sender.send_in_place(&header, chunk, || ()).await.unwrap();
}

/// Whether chunk `index` comes with this value throughout, read where the sender has it.
async fn comes(receiver: &mut SharedMemoryReceiver, layout: &Layout, index: u32, value: f32) -> bool {
    received(receiver, layout, index, value).await == (true, true)
}

/// The same, copied.
async fn comes_copied(receiver: &mut SharedMemoryReceiver, layout: &Layout, index: u32, value: f32) -> bool {
    received(receiver, layout, index, value).await == (false, true)
}

/// Whether it is read where the sender has it, and whether it has this value.
async fn received(receiver: &mut SharedMemoryReceiver, layout: &Layout, index: u32, value: f32) -> (bool, bool) {
    let bytes = layout.chunk(index).len();
    let mut payload = receiver.receive(&header(index, bytes)).await.unwrap();
    let in_place = payload.is_in_place();
    (in_place, payload.to_vec().chunks(4).all(|four| four == value.to_le_bytes()))
}

#[tokio::test]
async fn a_gradient_is_read_where_it_lies_and_its_memory_passes_once() {
    let (_turn, layout) = (turn().await, layout());
    let (mut sender, mut receiver) = link();
    for step in 0..5_u8 {
        let value = f32::from(step);
        let mut buffer = gradient(&layout, value);
        for index in [1, 0] {
            show(&mut sender, &mut buffer, index).await;
            assert!(comes(&mut receiver, &layout, index, value).await, "{step} {index}");
        }
        assert_eq!(sender.passed.count(), u64::from(step) + 1, "once for each buffer");
        // A frame that is copied may come between.
        send(&mut sender, 3).await.unwrap();
        assert_eq!(receive(&mut receiver, 3).await.unwrap(), payload(3));
    }
}

#[tokio::test]
async fn what_the_other_end_has_not_read_is_not_written_again() {
    let (_turn, layout) = (turn().await, layout());
    let (mut sender, mut receiver) = link();
    let mut buffer = gradient(&layout, 1.0);
    show(&mut sender, &mut buffer, 1).await;
    let shown = buffer.bytes().as_ptr();
    assert!(buffer.is_read_elsewhere());
    write(&layout, &mut buffer, 2.0);
    assert!(!buffer.is_read_elsewhere(), "it lies elsewhere now");
    assert_ne!(buffer.bytes().as_ptr(), shown, "the other end has that");
    show(&mut sender, &mut buffer, 1).await;
    // Not even an end that is given up lets go of what the other may be reading.
    drop(sender);
    let after = buffer.bytes().as_ptr();
    write(&layout, &mut buffer, 3.0);
    assert_ne!(buffer.bytes().as_ptr(), after);
    drop(buffer);
    assert!(comes(&mut receiver, &layout, 1, 1.0).await);
    assert!(comes(&mut receiver, &layout, 1, 2.0).await);
}

#[tokio::test]
async fn what_is_added_to_moves_with_what_it_holds() {
    let (_turn, layout) = (turn().await, layout());
    let (mut sender, mut receiver) = link();
    let mut buffer = gradient(&layout, 1.0);
    show(&mut sender, &mut buffer, 1).await;
    let mut writer = buffer.writer(&layout, WriteMode::Add);
    writer.write_f32(0, &vec![0.5; CHUNK_BYTES / 2]).unwrap();
    writer.samples(1).unwrap();
    writer.finish().unwrap();
    assert!(
        buffer.bytes()[..CHUNK_BYTES]
            .chunks(4)
            .all(|four| four == 1.5_f32.to_le_bytes())
    );
    assert!(comes(&mut receiver, &layout, 1, 1.0).await);
}

#[tokio::test]
async fn what_is_read_or_never_will_be_is_written_again_where_it_is() {
    let (_turn, layout) = (turn().await, layout());
    for ends in ["read", "dropped", "killed"] {
        let (own, memory) = SharedMemory::create().unwrap();
        let (one, two) = UnixStream::pair().unwrap();
        let mut sender = SharedMemorySender::new(own, one);
        let mut buffer = gradient(&layout, 1.0);
        show(&mut sender, &mut buffer, 1).await;
        if ends == "killed" {
            // Nothing is said: the socket is closed.
            drop(two);
        } else {
            let mut receiver = SharedMemoryReceiver::new(SharedMemory::open(&memory).unwrap(), two);
            let was_read = ends == "read" && comes(&mut receiver, &layout, 1, 1.0).await;
            assert_eq!(was_read, ends == "read");
        }
        let before = buffer.bytes().as_ptr();
        write(&layout, &mut buffer, 2.0);
        assert_eq!(buffer.bytes().as_ptr(), before, "{ends}");
    }
}

#[tokio::test]
async fn a_place_that_cannot_be_is_an_error_and_nothing_is_read() {
    let _turn = turn().await;
    let pages = || Pages::create(2 * CHUNK_BYTES).unwrap();
    let refused = async |pass: Pass<'_>, place: Place| {
        let (mut sender, mut receiver) = link();
        pass(&sender.bell);
        sender.writer.refer(&header(0, 300).encode(), place);
        sender.writer.count(&*sender.bell);
        receiver.receive(&header(0, 300)).await.unwrap_err().to_string()
    };
    let nothing = |_: &Bell| ();
    let one = |bell: &Bell| bell.pass(pages().file()).unwrap();
    let made = |bell: &Bell, bytes: u64, seals: SealFlags| {
        let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&memory, bytes).unwrap();
        fcntl_add_seals(&memory, seals).unwrap();
        bell.pass(&memory.into()).unwrap();
    };
    let unsealed = |bell: &Bell| made(bell, 4 << 20, SealFlags::SHRINK | SealFlags::GROW);
    let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
    let sparse = |bell: &Bell| made(bell, 4 << 20, sealed);
    let endless = |bell: &Bell| made(bell, 1 << 52, sealed);
    let place = |pages, at| Place { pages, at, lent: false };
    let bytes = 2 * CHUNK_BYTES as u64;
    let cases: [(Pass<'_>, Place, &str); 8] = [
        (&nothing, place(1, 0), "no descriptor came"),
        (&one, place(2, 0), "has not passed"),
        (&one, place(u64::MAX, 0), "has not passed"),
        (&one, place(1, bytes - 299), "beyond the 262144 bytes"),
        (&one, place(1, u64::MAX), "beyond the 262144 bytes"),
        (&unsealed, place(1, 0), "not sealed"),
        (&endless, place(1, 0), "found 4503599627370496"),
        (&sparse, place(1, 0), "not reserved"),
    ];
    for (pass, place, reason) in cases {
        let found = refused(pass, place).await;
        assert!(found.contains(reason), "{place:?}: {found}");
    }
    let (mut sender, mut receiver) = link();
    for pages in 1..=SEEN_PAGES as u64 + 1 {
        one(&sender.bell);
        sender.writer.refer(&header(0, 300).encode(), place(pages, 0));
        sender.writer.count(&*sender.bell);
        assert!(receiver.receive(&header(0, 300)).await.is_ok(), "the newest");
    }
    sender.writer.refer(&header(0, 300).encode(), place(1, 0));
    sender.writer.count(&*sender.bell);
    let found = receiver.receive(&header(0, 300)).await.unwrap_err().to_string();
    assert!(found.contains("or long ago"), "{found}");
}

#[tokio::test]
async fn memory_that_has_passed_long_ago_passes_again() {
    let (_turn, layout) = (turn().await, layout());
    let (mut sender, mut receiver) = link();
    let mut first = gradient(&layout, 0.5);
    show(&mut sender, &mut first, 1).await;
    assert!(comes(&mut receiver, &layout, 1, 0.5).await);
    for number in 0..SEEN_PAGES {
        let mut other = gradient(&layout, number as f32);
        show(&mut sender, &mut other, 1).await;
        assert!(comes(&mut receiver, &layout, 1, number as f32).await);
    }
    show(&mut sender, &mut first, 0).await;
    assert!(comes(&mut receiver, &layout, 0, 0.5).await);
    assert_eq!(sender.passed.count(), SEEN_PAGES as u64 + 2);
}

#[tokio::test]
async fn an_end_that_cannot_see_pages_gets_copies() {
    let (_turn, layout) = (turn().await, layout());
    let (own, memory) = SharedMemory::create().unwrap();
    let other = SharedMemory::open(&memory).unwrap();
    other.0.ask_for_copies();
    let (one, two) = UnixStream::pair().unwrap();
    let (mut sender, mut receiver) = (SharedMemorySender::new(own, one), SharedMemoryReceiver::new(other, two));
    let mut buffer = gradient(&layout, 7.0);
    show(&mut sender, &mut buffer, 1).await;
    assert!(comes_copied(&mut receiver, &layout, 1, 7.0).await);
}

#[tokio::test]
async fn a_process_has_so_many_pages_and_then_copies() {
    let (_turn, layout) = (turn().await, layout());
    let mut buffers: Vec<_> = (0..=MOST_PAGES).map(|_| touched(&layout)).collect();
    let in_pages = |buffers: &[GradientBuffer]| buffers.iter().filter(|buffer| buffer.is_in_pages()).count();
    assert_eq!(in_pages(&buffers), MOST_PAGES);
    let (mut sender, mut receiver) = link();
    let mut last = buffers.pop().unwrap();
    write(&layout, &mut last, 7.0);
    show(&mut sender, &mut last, 1).await;
    assert!(comes_copied(&mut receiver, &layout, 1, 7.0).await);
    buffers.pop();
    assert!(touched(&layout).is_in_pages(), "there is room again");
}

/// Whether there is room for one more frame, which is sent in place then.
fn is_shown(sender: &mut SharedMemorySender, buffer: &mut GradientBuffer, is_in_turn: bool) -> bool {
    let view = buffer.complete();
    let chunk = unconstrained(view.chunk_in_place(1)).now_or_never().unwrap().unwrap();
    let chunk = if is_in_turn { chunk.in_turn() } else { chunk };
    let header = header(1, chunk.bytes().len());
    let sent = unconstrained(sender.send_in_place(&header, chunk, || ())).now_or_never();
    sent.is_some_and(|sent| sent.unwrap())
}

#[tokio::test]
async fn many_frames_are_under_way_but_few_of_memory_that_is_new_or_wanted_back() {
    let (_turn, layout) = (turn().await, layout());
    for is_in_turn in [false, true] {
        let (mut sender, mut receiver) = link();
        let (mut known, mut other) = (gradient(&layout, 7.0), gradient(&layout, 8.0));
        show(&mut sender, &mut known, 1).await;
        if is_in_turn {
            show(&mut sender, &mut other, 1).await;
        }
        let unread = 1 + usize::from(is_in_turn);
        assert!((unread..SHARED_FRAMES).all(|_| is_shown(&mut sender, &mut known, false)));
        assert!(!is_shown(&mut sender, &mut known, false), "as many as there is room for");
        let mut values = [7.0, if is_in_turn { 8.0 } else { 7.0 }].into_iter().chain(iter::repeat(7.0));
        for _ in SHARED_SLOTS..=SHARED_FRAMES {
            assert!(!is_shown(&mut sender, &mut other, is_in_turn));
            assert!(comes(&mut receiver, &layout, 1, values.next().unwrap()).await);
        }
        assert!(is_shown(&mut sender, &mut other, is_in_turn));
        for value in values.take(SHARED_SLOTS - 1).chain([8.0]) {
            assert!(comes(&mut receiver, &layout, 1, value).await);
        }
    }
}

#[tokio::test]
async fn a_task_that_makes_pages_lets_others_go_on_and_may_be_given_up() {
    let (_turn, bytes) = (turn().await, RESERVED_AT_ONCE + 1);
    for _ in 0..=MOST_PAGES {
        assert!(
            Pages::create_beside_others(bytes).now_or_never().is_none(),
            "it has reserved a part"
        );
    }
    let pages = Pages::create_beside_others(bytes).await.unwrap();
    assert_eq!(pages.bytes(), bytes);
    SeenPages::open(pages.file()).expect("all of it is reserved");
}

#[tokio::test]
async fn descriptors_that_nobody_asked_for_are_not_kept() {
    let _turn = turn().await;
    let pages = Pages::create(CHUNK_BYTES).unwrap();
    for (of, most) in [(Bell::with_descriptors as fn(_) -> _, SEEN_PAGES), (Bell::new, 0)] {
        let (one, two) = UnixStream::pair().unwrap();
        let bell = of(two);
        for _ in 0..3 * SEEN_PAGES {
            send_with_memory(&one, &[1], pages.file()).unwrap();
            counters::Doorbell::heard(&bell).await.unwrap();
        }
        assert_eq!(std::iter::from_fn(|| bell.descriptor()).count(), most);
    }
}
