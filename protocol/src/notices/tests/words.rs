//! How notices are called.

use super::*;

#[test]
fn a_moment_is_shown_as_the_time_of_day() {
    assert_eq!(UtcTime::from_secs(0).to_string(), "00:00:00");
    assert_eq!(UtcTime::from_secs(86_399).to_string(), "23:59:59");
    assert_eq!(NOW.to_string(), "08:20:02");
    assert_eq!(
        UtcTime::from_secs(u64::MAX).since(NOW).as_secs(),
        u64::MAX / 1_000 - 1_505_722_802
    );
    assert_eq!(NOW.since(NOW.after(seconds(1))), Duration::ZERO);
}

#[test]
fn each_says_its_cloud_and_what_is_left() {
    let at = |what, left| notice(what, Some(NOW.after(seconds(left)))).words(NOW, NOW);
    assert_eq!(at(What::SpotStop, 118), "AWS spot: stop at 08:22:00 UTC, 118 s left");
    assert_eq!(at(What::Redeploy, 1_800), "Azure: Redeploy at 08:50:02 UTC, 30 min left");
    assert_eq!(
        at(What::Freeze(Some(seconds(5))), 60),
        "Azure: Freeze for 5 s at 08:21:02 UTC, 60 s left"
    );
    let without = |what| notice(what, None).words(NOW, NOW.after(seconds(10)));
    assert_eq!(without(What::Preempted), "GCE: preempted, about 20 s left");
    assert_eq!(without(What::HostMigrate), "GCE host maintenance: migrate, about 50 s left");
    assert_eq!(without(What::Rebalance), "AWS spot: rebalance recommendation");
    assert_eq!(without(What::SpotHibernate), "AWS spot: hibernate");
}

#[test]
fn each_cloud_has_its_pace() {
    let every = |cloud| Pace::of(cloud).look_every.as_secs();
    assert_eq!([Cloud::Aws, Cloud::Gce, Cloud::Azure].map(every), [5, 1, 1]);
}
