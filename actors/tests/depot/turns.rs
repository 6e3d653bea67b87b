//! More streams than a depot serves at a time: each waits for its turn as long as the others move, and none keeps its turn for good.

use std::time::Duration;

use sardana_actors::depot::Patience;
use sardana_actors::depot::limits::{MAX_PUTS, MOST_WAITS};

use crate::disk::place;
use crate::raw::{Answer, Raw, Request, offers, put};
use crate::site::{WORKER, authority, client, gets, pieces};

/// A depot whose turns are short.
const QUICK: Patience = Patience {
    silent: Duration::from_secs(60),
    disk: Duration::from_secs(60),
    wait_every: Duration::from_millis(1),
};

/// The same where a busy disk, of which a depot waits no more than some times either, has time to be done.
const UNHURRIED: Patience = Patience {
    wait_every: Duration::from_millis(20),
    ..QUICK
};

/// As many streams as there are turns, which hold theirs and send nothing, beside `first`.
async fn holders(first: &Raw, many: usize) -> Vec<Raw> {
    let mut holders = Vec::new();
    for _ in 0..many {
        let mut raw = first.beside(&put(1, None)).await;
        raw.say(&offers(&pieces(1, 1))).await;
        assert!(matches!(raw.heard().await, Answer::Wanted { .. }));
        holders.push(raw);
    }
    holders
}

#[tokio::test]
async fn a_writer_that_waits_for_its_turn_is_not_refused_however_often_it_is_told_to_wait() {
    let authority = authority();
    let (place, _) = place(&authority, 1, QUICK);
    let first = Raw::dial(&authority, &place, &Request::Get { pieces: 0 }).await;
    let before = holders(&first, MAX_PUTS).await;
    let mut last = first.beside(&put(1, None)).await;
    last.say(&offers(&pieces(2, 1))).await;
    for _ in 0..2 * MOST_WAITS {
        assert_eq!(last.hear().await, Answer::Wait);
    }
    drop(before);
    assert!(matches!(last.heard().await, Answer::Wanted { .. }));
}

#[tokio::test]
async fn a_writer_of_much_lets_others_in_between_and_goes_on() {
    let authority = authority();
    let (place, _) = place(&authority, 1, UNHURRIED);
    let first = Raw::dial(&authority, &place, &Request::Get { pieces: 0 }).await;
    let _others = holders(&first, MAX_PUTS - 1).await;
    let all = pieces(2, 100);
    let (now, then) = all.split_at(50);
    let mut long = first.beside(&put(all.len() as u32, None)).await;
    long.say(&offers(now)).await;
    assert!(matches!(long.heard().await, Answer::Wanted { .. }));
    let mut short = first.beside(&put(1, None)).await;
    let one = pieces(3, 1);
    short.say(&offers(&one)).await;
    assert_eq!(short.hear().await, Answer::Wait, "all have their turns");
    for (_, bytes) in now {
        long.send.write_all(bytes).await.unwrap();
    }
    assert!(matches!(short.heard().await, Answer::Wanted { .. }));
    long.say(&offers(then)).await;
    assert_eq!(long.hear().await, Answer::Wait, "it is behind the other");
    short.send.write_all(&one[0].1).await.unwrap();
    assert_eq!(short.heard().await, Answer::Durable);
    assert!(matches!(long.heard().await, Answer::Wanted { .. }));
    for (_, bytes) in then {
        long.send.write_all(bytes).await.unwrap();
    }
    assert_eq!(long.heard().await, Answer::Durable);
    gets(&client(&authority, WORKER), place.at, &all).await;
}
