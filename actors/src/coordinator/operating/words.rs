//! What came over a network, as text for an operator's terminal.

/// `text` without control characters, and cut after `most` bytes: it came over a network, and goes to an operator's terminal.
pub(in crate::coordinator) fn plain(text: &str, most: usize) -> String {
    let mut plain = String::with_capacity(text.len().min(most));
    for char in text.chars() {
        let char = if char.is_control() { ' ' } else { char };
        if plain.len() + char.len_utf8() > most {
            break;
        }
        plain.push(char);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_but_text() {
        assert_eq!(plain("a\x1b[2Jb\nc", 100), "a [2Jb c");
        assert_eq!(plain("äöü", 3), "ä", "cut between two letters");
        assert_eq!(plain("", 0), "");
    }
}
