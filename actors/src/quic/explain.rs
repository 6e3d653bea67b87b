//! What a lost connection means in plain words, and what to do.

use quinn::{ConnectionError, TransportErrorCode};

use super::limits::REASON_CHARS;

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
                alert.about_peer(),
                clean(error.reason.as_bytes())
            ),
            None => format!("the peer broke the QUIC protocol ({})", clean(error.to_string().as_bytes())),
        },
        ConnectionError::ConnectionClosed(close) => match Alert::of(close.error_code) {
            Some(alert) => format!("the peer refused this end: {}", alert.about_us()),
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

/// The TLS alerts (RFC 8446, section 6) that tell somebody what to do.
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

    /// When this end raised it.
    fn about_peer(self) -> String {
        match self {
            Self::BadCertificate => {
                "its certificate is for somebody else; see whether the address is the right one".to_owned()
            }
            Self::Expired => "its certificate is not valid now; restart it, and see whether the clocks agree".to_owned(),
            Self::OtherAuthority => "its certificate is of another job; see whether the address is the right one".to_owned(),
            Self::WrongUse => "its certificate is not for this use; it is not of a sardana job".to_owned(),
            Self::NoCertificate => "it showed no certificate; it must be started with credentials of this job".to_owned(),
            Self::OtherProtocol => Self::other_protocol(),
            Self::Other(number) => format!("TLS alert {number}"),
        }
    }

    /// When the peer raised it.
    fn about_us(self) -> String {
        match self {
            Self::BadCertificate => {
                "it cannot use this process's certificate; restart with credentials of its job".to_owned()
            }
            Self::Expired => {
                "this process's certificate is not valid now; restart it, and see whether the clocks agree".to_owned()
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
