//! Fast rings whose ranks sum by another means than links: all of them do, or none; and nothing that fails changes a gradient.

mod hall;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sardana_collectives::gradient::GradientBuffer;
use sardana_collectives::links::frame::{HEADER_BYTES, TRAILER_BYTES};
use sardana_collectives::links::{self, Meter};
use sardana_collectives::ring::{RingConfig, RingError, RingLinks, SummationConfig};
use sardana_collectives::summation::{DEVICE_BYTES, MEETING_BYTES};
use sardana_protocol::job::Order;
use sardana_protocol::plan::Plan;
use sardana_protocol::words::{ShardRange, Step};
use tokio::time::Instant;

use crate::dance::{Dance, Dancer, FIRST_STEP, Gradient, config, in_process_links, layout, patiently, start, steady};
use crate::far::Far;
use crate::fast;
use hall::{Fault, Hall, Notes};

const STEPS: u64 = 3;

/// So many ranks in a hall, with these faults.
fn means(hall: &Arc<Hall>, faults: &[Fault]) -> (Vec<SummationConfig>, Vec<Notes>) {
    faults.iter().map(|&fault| hall.means(fault)).unzip()
}

fn said(notes: &Notes) -> Vec<String> {
    notes.lock().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_ranks_get_the_sum_and_no_tensor_goes_over_links() {
    for (world, shards) in [(2, 5), (3, 8), (5, 16), (8, 5)] {
        let hall = Arc::new(Hall::default());
        let (summations, notes) = means(&hall, &vec![Fault::None; world as usize]);
        let far = Far::new(|shard| shard % 3 != 1);
        let dance = Dance {
            far: Some(far.clone()),
            summations,
            ..Dance::new(Order::Fast, world, shards)
        };
        let links = RingLinks::of_all(&dance.first, &dance.steady, links::in_process);
        let senders = |links: &RingLinks| -> Vec<Meter> {
            let senders = links.first.outgoing.values().chain(links.steady.outgoing.values());
            senders.map(|sender| sender.meter().clone()).collect()
        };
        let meters: Vec<Meter> = links.iter().flat_map(senders).collect();
        let sums = dance.run(links, STEPS, true).await;
        for (ranks, step) in sums.iter().zip(FIRST_STEP.get()..) {
            assert!(ranks.iter().all(|other| other == &ranks[0]), "every rank has the same");
            fast::compare(&dance, Step::new(step), shards, &ranks[0].0);
        }
        assert_eq!(hall.sums.load(Ordering::Relaxed), STEPS);
        assert!(notes.iter().all(|notes| said(notes) == ["all ranks sum by a hall"]));
        assert_eq!(*hall.aborted.borrow(), u64::from(world));
        assert!(
            far.crossed.stays.load(Ordering::Relaxed) > 0,
            "a sum stays where the gradients lie"
        );
        // Each rank's words pass all others; of a step the auxiliary sums and the count alone.
        let (world, header) = (u64::from(world), HEADER_BYTES as u64);
        let told = |bytes: u64| world * (world - 1) * (header + bytes);
        let tail = (dance.layout.bytes() - dance.layout.tensors_end()) as u64;
        let trailers = (world - 1) * (header + u64::from(TRAILER_BYTES));
        let expected = told((1 + DEVICE_BYTES) as u64)
            + told((1 + MEETING_BYTES) as u64)
            + told(1)
            + STEPS * (told(1) + told(1 + tail) + trailers);
        assert_eq!(meters.iter().map(Meter::bytes).sum::<u64>(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_one_rank_cannot_take_part_links_sum_on_all_of_them() {
    const WORLD: u32 = 3;
    const SHARDS: u32 = 8;
    let dance = Dance::new(Order::Fast, WORLD, SHARDS);
    let expected = dance.run(in_process_links(&dance.first, &dance.steady), STEPS, true).await;
    let shared =
        "expected a device of its own for each worker, found r0 and r2 on one; start no more workers than there are GPUs";
    // What the first two ranks say, and whether a place to meet was made.
    let faults = [
        (
            [Fault::None, Fault::Lacks, Fault::None],
            ["r1 cannot take part, and says why in its log", "expected a hall, found none"],
            0,
        ),
        ([Fault::None, Fault::None, Fault::OnTheFirst], [shared, shared], 0),
        (
            [Fault::Homeless, Fault::None, Fault::None],
            [
                "expected room for a meeting, found none",
                "r0 cannot take part, and says why in its log",
            ],
            0,
        ),
        // The first looks for the others no longer when it hears of the second.
        (
            [Fault::Looks, Fault::DoesNotBegin, Fault::None],
            ["r1 cannot take part, and says why in its log", "expected a door, found none"],
            1,
        ),
    ];
    for (faults, whys, meetings) in faults {
        let hall = Arc::new(Hall::default());
        let (summations, notes) = means(&hall, &faults);
        let asked = Dance {
            summations,
            ..Dance::new(Order::Fast, WORLD, SHARDS)
        };
        let sums = asked.run(in_process_links(&asked.first, &asked.steady), STEPS, true).await;
        assert!(sums == expected, "{faults:?}: the bits are those of links");
        assert_eq!((hall.sums.load(Ordering::Relaxed), *hall.brought.borrow()), (0, 0));
        assert_eq!(hall.meetings.load(Ordering::Relaxed), meetings, "{faults:?}");
        for (notes, why) in notes.iter().zip(whys) {
            assert_eq!(said(notes), [format!("links sum, and not a hall: {why}")], "{faults:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_fails_in_a_step_has_the_links_sum_it_on_all_ranks_and_those_that_follow() {
    const WORLD: u32 = 4;
    const SHARDS: u32 = 9;
    let plain = Dance::new(Order::Fast, WORLD, SHARDS);
    let expected = plain.run(in_process_links(&plain.first, &plain.steady), STEPS, true).await;
    for failing in 0..WORLD {
        let hall = Arc::new(Hall::default());
        let mut faults = vec![Fault::None; WORLD as usize];
        faults[failing as usize] = Fault::FailsIn(1);
        let (summations, notes) = means(&hall, &faults);
        let dance = Dance {
            far: Some(Far::new(|shard| shard % 2 == 0)),
            summations,
            ..Dance::new(Order::Fast, WORLD, SHARDS)
        };
        let sums = dance.run(in_process_links(&dance.first, &dance.steady), STEPS, true).await;
        assert!(sums[0].iter().all(|other| other == &sums[0][0]));
        fast::compare(&dance, FIRST_STEP, SHARDS, &sums[0][0].0);
        assert!(sums[1..] == expected[1..], "the gradients were as before");
        assert_eq!(hall.sums.load(Ordering::Relaxed), 1);
        assert_eq!(*hall.aborted.borrow(), u64::from(WORLD));
        for (rank, notes) in (0..).zip(&notes) {
            let why = if rank == failing {
                "expected a sum, found fire".to_owned()
            } else {
                format!("r{failing} cannot take part, and says why in its log")
            };
            let step = FIRST_STEP.next();
            let given_up = format!("links sum from {step} on, and not a hall any more: {why}");
            assert_eq!(said(notes), ["all ranks sum by a hall".to_owned(), given_up]);
        }
    }
}

#[tokio::test]
async fn ranks_that_never_find_each_other_are_not_waited_for_without_end() {
    let hall = Arc::new(Hall::default());
    let (mut summations, notes) = means(&hall, &[Fault::Looks; 2]);
    // The other hears of it, and waits no longer either.
    summations[0] = summations[0].clone().with_patience(Duration::from_millis(1));
    let dance = Dance {
        summations,
        ..Dance::new(Order::Fast, 2, 4)
    };
    let sums = dance.run(in_process_links(&dance.first, &dance.steady), 1, true).await;
    fast::compare(&dance, FIRST_STEP, 4, &sums[0][0].0);
    assert!(said(&notes[0])[0].contains("expected all ranks within 1ms, found some missing"));
    assert_eq!(
        said(&notes[1]),
        ["links sum, and not a hall: r0 cannot take part, and says why in its log"]
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_waited_for_in_vain_is_left_alone_for_a_while() {
    let hall = Arc::new(Hall::default());
    let (summations, notes) = means(&hall, &[Fault::Looks; 2]);
    let patience = Duration::from_secs(1);
    let summations: Vec<_> = summations.into_iter().map(|one| one.with_patience(patience)).collect();
    // Generations of the same workers: how long after the one before each begins, and whether ranks look for each other.
    for (number, (pause, looks)) in [(0, true), (0, false), (11, true), (11, false), (10, true)]
        .into_iter()
        .enumerate()
    {
        tokio::time::advance(Duration::from_secs(pause)).await;
        let (began, before) = (Instant::now(), hall.meetings.load(Ordering::Relaxed));
        let dance = Dance {
            summations: summations.clone(),
            ..Dance::new(Order::Fast, 2, 4)
        };
        let sums = dance.run(in_process_links(&dance.first, &dance.steady), 1, true).await;
        fast::compare(&dance, FIRST_STEP, 4, &sums[0][0].0);
        assert_eq!(began.elapsed() >= patience, looks, "generation {number}");
        let meetings = hall.meetings.load(Ordering::Relaxed) - before;
        assert_eq!(meetings, u64::from(looks), "generation {number}");
        let alone = |notes: &Notes| said(notes)[number].contains("it is tried again in");
        assert_eq!(notes.iter().any(alone), !looks, "generation {number}: {notes:?}");
    }
}

#[tokio::test]
async fn no_rank_asks_for_a_sum_before_all_have_their_gradients() {
    let hall = Arc::new(Hall::default());
    let plan = Plan::new(Order::Fast, 2, &steady(2, 2));
    let links = in_process_links(&plan, &plan);
    let ranks = (0..).zip(links).map(|(rank, links)| {
        let summation = Some(hall.means(Fault::None).0);
        let config = RingConfig {
            summation,
            ..config(rank, &plan, &plan, &layout())
        };
        let dancer = start(config, links);
        dancer.begin(FIRST_STEP, GradientBuffer::zeros(&layout()));
        dancer
    });
    let mut dancers: Vec<Dancer> = ranks.collect();
    let mut gradients = [0, 1].map(|shard| Gradient::draw(&layout(), FIRST_STEP, shard).buffer(&layout()));
    let [first, second] = &mut gradients;
    dancers[0].piece(FIRST_STEP, ShardRange::one(0), first);
    // All there is to do is done: the links are within this task's thread.
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*hall.brought.borrow(), 0);
    dancers[1].piece(FIRST_STEP, ShardRange::one(1), second);
    for dancer in &mut dancers {
        patiently(dancer.completed.recv()).await.unwrap();
    }
    assert_eq!((*hall.brought.borrow(), hall.sums.load(Ordering::Relaxed)), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_sum_that_does_not_come_is_given_up() {
    let hall = Arc::new(Hall::default());
    let (summations, notes) = means(&hall, &[Fault::Silent, Fault::None]);
    let patience = Duration::from_secs(1);
    let dance = Dance {
        summations: summations.into_iter().map(|one| one.with_patience(patience)).collect(),
        ..Dance::new(Order::Fast, 2, 4)
    };
    let sums = dance.run(in_process_links(&dance.first, &dance.steady), 1, true).await;
    fast::compare(&dance, FIRST_STEP, 4, &sums[0][0].0);
    let given_up = |notes: &Notes| said(notes)[1].clone();
    assert!(
        notes
            .iter()
            .any(|notes| given_up(notes).contains("expected the sum within 1s of when all ranks were there")),
        "{notes:?}"
    );
}

#[tokio::test]
async fn exact_order_refuses_it_and_says_why() {
    let plan = Plan::new(Order::Exact, 2, &steady(2, 4));
    let mut links = in_process_links(&plan, &plan);
    let (summation, _) = Arc::new(Hall::default()).means(Fault::None);
    let config = RingConfig {
        summation: Some(summation),
        ..config(0, &plan, &plan, &layout())
    };
    let error = patiently(start(config, links.remove(0)).ring).await.unwrap().unwrap_err();
    assert!(matches!(error, RingError::Exact("a hall")));
    let words = error.to_string();
    assert!(
        words.starts_with("expected order fast for sums by a hall, found exact: a hall chooses in which order it adds"),
        "{words}"
    );
}

/// Ranks of one shard each that bring these gradients to the first step; one of them may be silent.
fn begin(hall: &Arc<Hall>, gradients: &mut [GradientBuffer], silent: Option<usize>) -> Vec<Dancer> {
    let world = gradients.len() as u32;
    let plan = Plan::new(Order::Fast, world, &steady(world, world));
    let links = in_process_links(&plan, &plan);
    let ranks = (0..).zip(links).zip(gradients);
    let begin = |((rank, links), gradient): ((u32, RingLinks), &mut GradientBuffer)| {
        let is_silent = silent == Some(rank as usize);
        let config = RingConfig {
            summation: Some(hall.means(if is_silent { Fault::Silent } else { Fault::None }).0),
            ..config(rank, &plan, &plan, &layout())
        };
        let dancer = start(config, links);
        dancer.begin(FIRST_STEP, GradientBuffer::zeros(&layout()));
        dancer.piece(FIRST_STEP, ShardRange::one(rank), gradient);
        dancer
    };
    ranks.map(begin).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_that_ends_within_a_sum_leaves_the_gradients_to_the_next() {
    let hall = Arc::new(Hall::default());
    let layout = layout();
    let far = Far::new(|_| true);
    let memories: Vec<_> = (0..3).map(|_| far.memory(&layout)).collect();
    let drawn: Vec<Gradient> = (0..3).map(|shard| Gradient::draw(&layout, FIRST_STEP, shard)).collect();
    let mut gradients: Vec<GradientBuffer> = drawn.iter().map(|_| GradientBuffer::zeros(&layout)).collect();
    for ((memory, gradient), buffer) in memories.iter().zip(&drawn).zip(&mut gradients) {
        memory.keep(gradient, &layout, buffer, sardana_collectives::gradient::WriteMode::Store);
    }
    // The last rank dies before it asks; the others wait within the sum.
    let dancers = begin(&hall, &mut gradients, Some(2));
    patiently(async { hall.brought.subscribe().wait_for(|brought| *brought == 2).await.map(|_| ()) })
        .await
        .unwrap();
    dancers.iter().for_each(|dancer| dancer.ring.abort());
    for dancer in dancers {
        // Or the links have ended it before.
        assert!(dancer.ring.await.map_or(true, |ended| ended.is_err()));
    }
    assert_eq!(*hall.aborted.borrow(), 3, "with their rings, all communicators have ended");
    gradients.truncate(2);
    assert!(gradients.iter().all(GradientBuffer::is_unread));
    let mut sums = Vec::new();
    for mut dancer in begin(&hall, &mut gradients, None) {
        let done = patiently(dancer.completed.recv()).await.unwrap();
        sums.push(done.sum.bytes().to_vec());
    }
    assert_eq!(hall.sums.load(Ordering::Relaxed), 1);
    let mut expected = drawn[0].clone();
    expected.plus(&drawn[1]);
    let expected = expected.buffer(&layout);
    assert!(sums.iter().all(|sum| sum == expected.bytes()));
}
