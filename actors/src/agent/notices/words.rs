//! Words and times as clouds write them.

use sardana_protocol::notices::UtcTime;
use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};

/// Longest word that is passed on.
const WORD_BYTES: usize = 40;

/// A word that is not known, fit for logs and reasons: it came over a network.
pub(super) fn word(text: &str) -> String {
    let plain = |char: char| if char.is_ascii_alphanumeric() { char } else { '_' };
    text.chars().take(WORD_BYTES).map(plain).collect()
}

/// `2017-09-18T08:22:00Z`, as AWS writes times. A notice counts without its time as well, so what is none is no error.
pub(super) fn iso_time(text: &str) -> Option<UtcTime> {
    moment(OffsetDateTime::parse(text.trim(), &Rfc3339).ok()?)
}

/// `Mon, 19 Sep 2016 18:29:47 GMT`, as Azure writes them.
pub(super) fn http_time(text: &str) -> Option<UtcTime> {
    moment(OffsetDateTime::parse(text.trim(), &Rfc2822).ok()?)
}

fn moment(time: OffsetDateTime) -> Option<UtcTime> {
    u64::try_from(time.unix_timestamp()).ok().map(UtcTime::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        assert_eq!(iso_time("2017-09-18T08:22:00Z"), Some(UtcTime::from_secs(1_505_722_920)));
        assert_eq!(
            http_time("Mon, 19 Sep 2016 18:29:47 GMT"),
            Some(UtcTime::from_secs(1_474_309_787))
        );
        for wrong in [
            "",
            "soon",
            "1969-01-01T00:00:00Z",
            "Mon, 19 Sep 2016",
            "9999999999-01-01T00:00:00Z",
        ] {
            assert_eq!((iso_time(wrong), http_time(wrong)), (None, None), "{wrong}");
        }
    }

    #[test]
    fn a_word_from_outside_is_short_and_plain() {
        assert_eq!(word("a b\x1b[2Jc"), "a_b__2Jc");
        assert_eq!(word(&"ä".repeat(1_000)), "_".repeat(40));
    }
}
