//! What a lost connection means in plain words, and what to do.

use quinn::{ConnectionError, TransportErrorCode};

use super::connect::REFUSED;
use super::limits::REASON_CHARS;
use crate::trust::Moment;

/// Says why a connection ended and what to do about it.
///
/// A dialled connection counts as made before the other end has looked at this end's certificate, so a refusal of it comes as an
/// error of the first stream; this finds the words for it.
#[must_use]
pub fn explain(error: &ConnectionError) -> String {
    match error {
        ConnectionError::VersionMismatch => {
            "the peer speaks no QUIC version that this release knows; run the same release of sardana in every process"
                .to_owned()
        }
        ConnectionError::TransportError(error) => match Alert::of(error.code) {
            Some(alert) => format!(
                "this end refused the peer: {} ({})",
                alert.about_peer(&error.reason),
                clean(error.reason.as_bytes())
            ),
            None => format!("the peer broke the QUIC protocol ({})", clean(error.to_string().as_bytes())),
        },
        ConnectionError::ConnectionClosed(close) => match Alert::of(close.error_code) {
            Some(alert) => {
                let told = String::from_utf8_lossy(&close.reason);
                format!("the peer refused this end: {}", alert.about_us(&told))
            }
            None if close.error_code == TransportErrorCode::CONNECTION_REFUSED => {
                "the peer takes no more connections at the moment; try again later".to_owned()
            }
            None => format!("the peer closed the connection ({})", clean(close.to_string().as_bytes())),
        },
        ConnectionError::ApplicationClosed(close) if close.reason.is_empty() => {
            "the peer ended the connection and gave no reason; its log may say more".to_owned()
        }
        ConnectionError::ApplicationClosed(close) => format!("the peer ended the connection: {}", clean(&close.reason)),
        ConnectionError::Reset => "the peer was restarted and knows nothing of this connection; connect anew".to_owned(),
        ConnectionError::TimedOut => {
            "nothing was heard from the peer for too long; see whether its process runs and the network carries UDP"
                .to_owned()
        }
        ConnectionError::LocallyClosed => "this end closed the connection".to_owned(),
        ConnectionError::CidsExhausted => "this end has no room for another connection; close some".to_owned(),
    }
}

/// Whether the peer has refused this end for what it is or says: trying again would end in the same way. A connection that it only closed
/// while it was made, because what it waited for did not come in time, is no refusal, and neither is a certificate that has run out: see
/// [`is_run_out`].
#[must_use]
pub fn is_refusal(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::ConnectionClosed(close) => Alert::of(close.error_code).is_some_and(|alert| alert != Alert::Expired),
        ConnectionError::ApplicationClosed(close) => close.error_code == REFUSED,
        ConnectionError::VersionMismatch
        | ConnectionError::TransportError(_)
        | ConnectionError::Reset
        | ConnectionError::TimedOut
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted => false,
    }
}

/// Whether the peer does not take this end's certificate, since it is not valid at this time by the peer's clock.
#[must_use]
pub fn is_run_out(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::ConnectionClosed(close) if Alert::of(close.error_code) == Some(Alert::Expired))
}

/// The TLS alerts (RFC 8446, section 6) that tell the user what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alert {
    /// The certificate is for another name, or unreadable.
    BadCertificate,
    /// It has run out, or is not valid yet.
    Expired,
    /// It is of another authority.
    OtherAuthority,
    /// It is not for this use.
    WrongUse,
    /// There was none.
    NoCertificate,
    /// The two ends have no protocol in common.
    OtherProtocol,
    /// Any other.
    Other(u8),
}

impl Alert {
    /// The alert in a transport error, if it is one.
    pub(super) fn of(code: TransportErrorCode) -> Option<Self> {
        let number = u8::try_from(u64::from(code).checked_sub(u64::from(TransportErrorCode::crypto(0)))?).ok()?;
        Some(match number {
            42 => Self::BadCertificate,
            45 => Self::Expired,
            // 51: the authority has the expected name, but the certificate is not signed with its key.
            48 | 51 => Self::OtherAuthority,
            43 => Self::WrongUse,
            116 => Self::NoCertificate,
            120 => Self::OtherProtocol,
            other => Self::Other(other),
        })
    }

    /// When this end raised it; `said` is what its TLS said.
    fn about_peer(self, said: &str) -> String {
        match self {
            Self::BadCertificate => {
                "its certificate is for another process; see whether the address is the right one".to_owned()
            }
            Self::Expired => format!("its certificate is not valid now{}", Clocks::words(said, "this host")),
            Self::OtherAuthority => "its certificate is of another job; see whether the address is the right one".to_owned(),
            Self::WrongUse => "its certificate is not for this use; it is not of a sardana job".to_owned(),
            Self::NoCertificate => "it showed no certificate; it must be started with credentials of this job".to_owned(),
            Self::OtherProtocol => Self::other_protocol(),
            Self::Other(number) => format!("TLS alert {number}"),
        }
    }

    /// When the peer raised it; `told` is what it says of the reason.
    fn about_us(self, told: &str) -> String {
        match self {
            Self::BadCertificate => {
                "it cannot use this process's certificate; restart with credentials of its job".to_owned()
            }
            Self::Expired => {
                format!(
                    "this process's certificate is not valid now{}",
                    Clocks::words(told, "the peer's host")
                )
            }
            Self::OtherAuthority => {
                "to it this process's certificate is of another job; start it with credentials of the peer's job, or see \
                 whether the address is the right one"
                    .to_owned()
            }
            Self::WrongUse => {
                "this process's certificate is not for this use; restart with credentials of its job".to_owned()
            }
            Self::NoCertificate => {
                "this process showed no certificate; start it with credentials of the peer's job".to_owned()
            }
            Self::OtherProtocol => Self::other_protocol(),
            Self::Other(number) => format!("TLS alert {number}"),
        }
    }

    fn other_protocol() -> String {
        "the two speak other protocols or protocol versions; run the same release of sardana in every process, and see whether \
         the address is the right one"
            .to_owned()
    }
}

/// What is wrong with the times of a certificate, by the clock of the end that refused it. Only for a message: nothing depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clocks {
    /// The certificate begins later.
    Behind { begins: Moment, now: Moment },
    /// The certificate has run out.
    Over { ended: Moment, now: Moment },
}

impl Clocks {
    /// What TLS says in `reason`, if it does. Of text from the other end only numbers are taken.
    fn parse(reason: &str) -> Option<Self> {
        let after = |words: &str| {
            let rest = reason.split_once(words)?.1;
            let digits = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
            rest[..digits].parse().ok().map(Moment::new)
        };
        let now = after("verification time ")?;
        let begins = after("not valid before ").map(|begins| Self::Behind { begins, now });
        begins.or_else(|| after("not valid after ").map(|ended| Self::Over { ended, now }))
    }

    /// The rest of a sentence that says that a certificate is not valid now, when it is not by the clock of `host`.
    fn words(reason: &str, host: &str) -> String {
        match Self::parse(reason) {
            Some(Self::Behind { begins, now }) => format!(
                ": it begins at {begins}, and by the clock of {host} it is {now}; set the clock of {host}, or that of the \
                 coordinator's host if that one is ahead"
            ),
            Some(Self::Over { ended, now }) => format!(
                ": it ran out at {ended}, and by the clock of {host} it is {now}; restart the process, or set the clock of {host} \
                 if that is ahead"
            ),
            None => "; restart the process, and see whether the clocks of the two hosts agree".to_owned(),
        }
    }
}

/// Text from the other end, bounded and without anything that would move a terminal.
fn clean(text: &[u8]) -> String {
    String::from_utf8_lossy(text)
        .chars()
        .take(REASON_CHARS)
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect()
}

#[cfg(test)]
mod tests {
    use quinn::{ApplicationClose, ConnectionClose, VarInt};

    use super::*;

    fn closed(code: TransportErrorCode) -> String {
        explain(&ConnectionError::ConnectionClosed(ConnectionClose {
            error_code: code,
            frame_type: None,
            reason: Default::default(),
        }))
    }

    #[test]
    fn a_handshake_that_took_too_long_is_no_refusal() {
        let closed = |error_code| {
            is_refusal(&ConnectionError::ConnectionClosed(ConnectionClose {
                error_code,
                frame_type: None,
                reason: Default::default(),
            }))
        };
        assert!(!closed(TransportErrorCode::APPLICATION_ERROR), "its deadline has passed");
        assert!(!closed(TransportErrorCode::CONNECTION_REFUSED));
        assert!(closed(TransportErrorCode::crypto(48)));
        assert!(!closed(TransportErrorCode::crypto(45)), "it is renewed");
        let said = |error_code| {
            let reason = Default::default();
            is_refusal(&ConnectionError::ApplicationClosed(ApplicationClose { error_code, reason }))
        };
        assert!(said(REFUSED));
        assert!(!said(VarInt::from_u32(0)));
        assert!(!is_refusal(&ConnectionError::TimedOut));
    }

    #[test]
    fn alerts_have_words() {
        for (alert, word) in [
            (42, "cannot use"),
            (43, "not for this use"),
            (45, "clocks"),
            (48, "another job"),
            (51, "another job"),
            (116, "no certificate"),
            (120, "protocol versions"),
            (80, "TLS alert 80"),
        ] {
            let text = closed(TransportErrorCode::crypto(alert));
            assert!(text.contains(word), "{alert}: {text}");
        }
        assert!(closed(TransportErrorCode::CONNECTION_REFUSED).contains("later"));
        assert!(closed(TransportErrorCode::NO_ERROR).contains("closed the connection"));
    }

    #[test]
    fn clocks_that_disagree_are_named_with_both_times() {
        let time = |seconds| rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let said = |error| rustls::Error::InvalidCertificate(error).to_string();
        let (early, late) = (1_000_000_000, 1_000_007_200);
        let behind = said(rustls::CertificateError::NotValidYetContext {
            time: time(early),
            not_before: time(late),
        });
        let words = Alert::Expired.about_peer(&behind);
        for expected in [
            "begins at Sep  9 03:46:40 2001",
            "of this host it is Sep  9 01:46:40 2001",
            "set the clock",
        ] {
            assert!(words.contains(expected), "{words}");
        }
        let over = said(rustls::CertificateError::ExpiredContext {
            time: time(late),
            not_after: time(early),
        });
        let words = Alert::Expired.about_us(&over);
        for expected in [
            "ran out at Sep  9 01:46:40 2001",
            "peer's host it is Sep  9 03:46:40 2001",
            "restart",
        ] {
            assert!(words.contains(expected), "{words}");
        }
        // What the other end says may be anything.
        for told in [
            "",
            "verification time ",
            "verification time 99999999999999999999999 not valid before 1",
        ] {
            assert!(Alert::Expired.about_us(told).contains("see whether the clocks"), "{told}");
        }
        let far = "verification time 18446744073709551615 not valid before 18446744073709551615";
        assert!(
            Alert::Expired
                .about_us(far)
                .contains("second 18446744073709551615 since 1970")
        );
    }

    #[test]
    fn a_reason_is_bounded_and_harmless() {
        let mut reason = b"\x1b[2Jno\n".to_vec();
        reason.extend([b'x'; 60_000]);
        let text = explain(&ConnectionError::ApplicationClosed(ApplicationClose {
            error_code: VarInt::from_u32(1),
            reason: reason.into(),
        }));
        assert!(text.chars().count() < REASON_CHARS + 64);
        assert!(!text.contains(char::is_control), "{text}");
    }
}
