//! Hosts whose clocks disagree: certificates that are not valid yet, or not any more, by the clock of the end that looks at them.

use std::time::Duration;

use super::{JOB, authority, meet};
use crate::quic::{ConnectError, Whose, explain};
use crate::trust::{Clock, Credentials, Moment, PeerIdentity, Role};

const HOURS: Duration = Duration::from_secs(2 * 60 * 60);

/// When the certificate begins, as another parser reads it.
fn begins(credentials: &Credentials) -> String {
    let certificate = credentials.certificate();
    let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).unwrap();
    let seconds = parsed.validity().not_before.timestamp();
    Moment::new(u64::try_from(seconds).unwrap()).to_string()
}

fn check(found: &str, who: &str, begins: &str, whose: &str) {
    let clock = format!("by the clock of {whose} it is ");
    for expected in [who, "is not valid now: it begins at", begins, &clock, "set the clock of"] {
        assert!(found.contains(expected), "{expected} is missing from: {found}");
    }
}

#[tokio::test]
async fn who_dials_with_a_clock_behind_says_both_times_and_so_does_who_was_dialled() {
    let authority = authority(JOB).with_clock(Clock::ahead(HOURS));
    let coordinator = authority.issue(Role::Coordinator, 0).unwrap();
    let worker = authority.issue(Role::Worker, 1).unwrap();
    let begins = begins(&coordinator);
    let (dialled, accepted, _endpoints) = meet(&coordinator, &worker, PeerIdentity::coordinator(JOB)).await;
    let error = dialled.unwrap_err();
    assert!(
        matches!(
            error,
            ConnectError::NotValidNow {
                whose: Whose::Theirs,
                ..
            }
        ),
        "{error}"
    );
    check(&error.to_string(), "this end refused the peer", &begins, "this host");
    let error = accepted.unwrap_err().to_string();
    check(&error, "the peer refused this end", &begins, "the peer's host");
}

#[tokio::test]
async fn who_is_dialled_and_has_a_clock_behind_does_so_too() {
    let authority = authority(JOB);
    let coordinator = authority.issue(Role::Coordinator, 0).unwrap();
    let worker = authority.with_clock(Clock::ahead(HOURS)).issue(Role::Worker, 1).unwrap();
    let begins = begins(&worker);
    let (dialled, accepted, _endpoints) = meet(&coordinator, &worker, PeerIdentity::coordinator(JOB)).await;
    let error = accepted.unwrap_err().to_string();
    check(&error, "this end refused the peer", &begins, "this host");
    let told = explain(&dialled.unwrap().closed().await);
    check(&told, "the peer refused this end", &begins, "the peer's host");
}

#[tokio::test]
async fn a_clock_that_is_a_little_behind_is_no_matter() {
    let authority = authority(JOB).with_clock(Clock::ahead(Duration::from_secs(15 * 60)));
    let coordinator = authority.issue(Role::Coordinator, 0).unwrap();
    let worker = authority.issue(Role::Worker, 1).unwrap();
    let (dialled, accepted, _endpoints) = meet(&coordinator, &worker, PeerIdentity::coordinator(JOB)).await;
    dialled.unwrap();
    accepted.unwrap();
}
