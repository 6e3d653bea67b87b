//! What was found in a file, short enough for a message and without what a terminal would obey.

/// How many characters are shown.
const MAX_CHARS: usize = 60;

/// The beginning of `text`.
pub(super) fn excerpt(text: &[u8]) -> String {
    // A character has at most four bytes.
    let beginning = String::from_utf8_lossy(&text[..text.len().min(4 * MAX_CHARS)]);
    let mut shown = String::new();
    for character in beginning.chars().take(MAX_CHARS) {
        match character {
            '\'' | '"' => shown.push(character),
            other => shown.extend(other.escape_debug()),
        }
    }
    let cut = beginning.chars().nth(MAX_CHARS).is_some() || text.len() > 4 * MAX_CHARS;
    if cut { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_short_and_tame() {
        assert_eq!(excerpt("'né'".as_bytes()), "'né'");
        assert_eq!(excerpt(b"\x1b[2J\n\xff"), "\\u{1b}[2J\\n\u{fffd}");
        assert_eq!(excerpt("é".repeat(1_000).as_bytes()), format!("{}…", "é".repeat(60)));
        assert_eq!(excerpt(&[b'x'; 61]), format!("{}…", "x".repeat(60)));
        assert_eq!(excerpt(&[b'x'; 60]), "x".repeat(60));
    }
}
