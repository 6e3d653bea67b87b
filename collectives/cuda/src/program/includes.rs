//! What a source reads besides the files that it is given: then it is not seen when its PTX would be another. Must not know where PTX is kept, nor the compiler.
//!
//! A source is not parsed. What looks as if it read a file is taken for that, such as a line that is commented out.

/// Most bytes of a line that are told.
const MOST_TOLD: usize = 100;

/// The first thing in `text` that may read a file besides those of the names in `given`. A path that begins with `/` is read from the disk whatever is said
/// of folders, and what a macro stands for is not known here.
pub(super) fn beyond(text: &str, given: &[&str]) -> Option<String> {
    // Old spellings of `#`, and of what joins two lines.
    if let Some(found) = ["??=", "??/"].into_iter().find(|old| text.contains(old)) {
        return Some(found.to_owned());
    }
    let text = text.replace("\\\r\n", "").replace("\\\n", "");
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut end = 0;
    while let Some(start) = text.as_bytes()[end..].iter().position(|byte| is_inside(*byte)) {
        let start = end + start;
        let length = text.as_bytes()[start..].iter().position(|byte| !is_inside(*byte));
        end = length.map_or(text.len(), |length| start + length);
        let (before, word, after) = (&text[..start], &text[start..end], &text[end..]);
        if word.starts_with("__has_include") || word.starts_with("__has_embed") || reads(before, word, after, given) {
            let line = after.lines().next().unwrap_or_default();
            return Some(word.chars().chain(line.chars()).take(MOST_TOLD).collect());
        }
    }
    None
}

/// Whether a word is that of a directive that reads another file than those that are given.
fn reads(before: &str, word: &str, after: &str, given: &[&str]) -> bool {
    if !["include", "include_next", "import", "embed"].contains(&word) {
        return false;
    }
    let before = before.trim_end();
    // What is between `#` and the word may be a comment.
    if !["#", "%:", "*/"].iter().any(|end| before.ends_with(end)) {
        return false;
    }
    let named = named(after.trim_start_matches([' ', '\t']));
    word != "include" || named.is_none_or(|name| name.starts_with('/') || !given.contains(&name))
}

/// The name within the marks that the operand begins with.
fn named(operand: &str) -> Option<&str> {
    let (rest, end) = match (operand.strip_prefix('"'), operand.strip_prefix('<')) {
        (Some(rest), _) => (rest, '"'),
        (None, Some(rest)) => (rest, '>'),
        (None, None) => return None,
    };
    rest.lines().next()?.split_once(end).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_by_its_name_and_words_that_read_nothing_are_all_seen() {
        let given = ["a.cuh", "b/c.cuh", "/abs/x.cuh"];
        for text in [
            "",
            "#include \"a.cuh\"\n#  include\t<b/c.cuh> // all\n%:include \"a.cuh\"",
            "// include \"/abs/x.cuh\"\nint include = 1; int includes, reinclude; #define import 2",
            "#inc\\\nlude \"a.\\\r\ncuh\"",
            "è #include \"a.cuh\" // ü",
        ] {
            assert_eq!(beyond(text, &given), None, "{text}");
        }
    }

    #[test]
    fn other_files_are_told() {
        let given = ["a.cuh", "/abs/x.cuh"];
        for (text, told) in [
            ("#include \"/abs/x.cuh\"\nx", "include \"/abs/x.cuh\""),
            ("int x;\n # include </abs/y.cuh>", "include </abs/y.cuh>"),
            ("#include <b.cuh>", "include <b.cuh>"),
            ("#include \"./a.cuh\"", "include \"./a.cuh\""),
            ("#define X \"/abs\"\n#include X", "include X"),
            ("#include\\\n X", "include X"),
            ("#/**/include \"/abs\"", "include \"/abs\""),
            ("#include/**/\"a.cuh\"", "include/**/\"a.cuh\""),
            ("#include \"a.cuh", "include \"a.cuh"),
            ("#include", "include"),
            ("#inc\\\nlude \"/abs\"", "include \"/abs\""),
            ("%:include \"/abs\"", "include \"/abs\""),
            ("??=include \"/abs\"", "??="),
            ("#include??/\n\"/abs\"", "??/"),
            ("#include_next \"a.cuh\"", "include_next \"a.cuh\""),
            ("#import \"a.cuh\"", "import \"a.cuh\""),
            ("#embed \"a.cuh\"", "embed \"a.cuh\""),
            ("#if __has_include(\"/abs\")", "__has_include(\"/abs\")"),
        ] {
            assert_eq!(beyond(text, &given).as_deref(), Some(told), "{text}");
        }
        assert_eq!(
            beyond(&format!("#include {}", "ü".repeat(200)), &given)
                .unwrap()
                .chars()
                .count(),
            100
        );
    }
}
