//! AWS: tokens, interruptions, recommendations.

use std::time::Duration;

use serde_json::json;

use super::cloud::{ACTION, FakeCloud, Kind, REBALANCE};
use super::{Watched, config};
use sardana_actors::agent::notices::{NoticesConfig, Service};
use sardana_protocol::notices::{Cloud, Heeded};

const TWO_MINUTES: Duration = Duration::from_secs(120);

#[tokio::test]
async fn an_interruption_drains_within_the_time_left_and_its_withdrawal_takes_it_back() {
    let cloud = FakeCloud::start(Kind::Aws);
    let mut watched = Watched::start(&cloud, Kind::Aws).await;
    cloud.interrupt("terminate", TWO_MINUTES);
    let said = watched.said().await;
    assert!(
        said.starts_with("AWS spot: terminate at ") && said.ends_with("s left: the workers leave"),
        "{said}"
    );
    let (reason, within, _drained) = watched.drain().await;
    assert!(said.starts_with(&reason), "{reason}");
    let within = within.unwrap();
    assert!(
        within <= TWO_MINUTES - Duration::from_secs(2) && within > Duration::from_secs(60),
        "{within:?}"
    );
    cloud.set(|told| told.resources.remove(ACTION));
    assert_eq!(watched.said().await, "withdrawn or over: AWS spot: terminate");
    assert_eq!(watched.back().await, "withdrawn or over: AWS spot: terminate");
}

#[tokio::test]
async fn all_actions_have_their_words() {
    let cases = [
        ("stop", "stop at"),
        ("hibernate", "hibernate at"),
        ("re\u{1b}tire", "re_tire at"),
    ];
    for (action, words) in cases {
        let cloud = FakeCloud::start(Kind::Aws);
        cloud.interrupt(action, TWO_MINUTES);
        let mut watched = Watched::start(&cloud, Kind::Aws).await;
        let said = watched.said().await;
        assert!(said.starts_with(&format!("AWS spot: {words}")), "{said}");
        watched.drain().await;
    }
    // A notice without a time that can be read is a notice.
    let cloud = FakeCloud::start(Kind::Aws);
    cloud.set(|told| {
        told.resources
            .insert(ACTION, json!({ "action": "terminate", "time": "soon" }))
    });
    let mut watched = Watched::start(&cloud, Kind::Aws).await;
    assert_eq!(watched.said().await, "AWS spot: terminate: the workers leave");
    assert_eq!(watched.drain().await.1, None);
}

#[tokio::test]
async fn a_recommendation_is_heeded_only_if_all_is() {
    let cloud = FakeCloud::start(Kind::Aws);
    cloud.set(|told| {
        told.resources
            .insert(REBALANCE, json!({ "noticeTime": "2020-10-27T08:22:00Z" }))
    });
    let mut watched = Watched::start(&cloud, Kind::Aws).await;
    let said = watched.said().await;
    assert_eq!(said, "AWS spot: rebalance recommendation: only a warning, the workers stay");
    let all = NoticesConfig {
        heeded: Heeded::All,
        ..config(&cloud, Service::Of(Cloud::Aws))
    };
    let mut watched = Watched::of(all);
    watched.said().await;
    assert_eq!(watched.said().await, "AWS spot: rebalance recommendation: the workers leave");
    watched.drain().await;
}

#[tokio::test]
async fn one_token_serves_many_looks_and_one_that_ran_out_is_replaced() {
    let cloud = FakeCloud::start(Kind::Aws);
    let mut watched = Watched::start(&cloud, Kind::Aws).await;
    let looks = |asked: &[String]| asked.iter().filter(|asked| asked.ends_with(ACTION)).count();
    cloud.until(|told| looks(&told.asked) >= 5).await;
    assert_eq!(cloud.set(|told| told.tokens.len()), 1);
    cloud.set(|told| told.tokens.clear());
    cloud.until(|told| told.tokens.len() == 1).await;
    cloud.interrupt("stop", TWO_MINUTES);
    let said = watched.said().await;
    assert!(said.starts_with("AWS spot: stop"), "nothing was said of the token: {said}");
}
