//! What the compiler's log says first. Pure: must not know the compiler.

use super::error::CompileError;

/// How an error begins, behind the place that it is at.
const KINDS: [&str; 3] = ["error", "catastrophic error", "fatal error"];

/// The first error of a log, with the log. A log without one is an error all the same: its first line is told then.
pub(super) fn first_error(log: String) -> CompileError {
    let found = log.lines().find_map(error);
    let (place, message) = found.unwrap_or_else(|| {
        let first = log.lines().find(|line| !line.trim().is_empty());
        ("", first.unwrap_or("nothing that the compiler says").trim())
    });
    let (file, line) = split(place);
    let (file, message) = (file.map(str::to_owned), message.to_owned());
    CompileError {
        file,
        line,
        message,
        log,
    }
}

/// The place and the message of a line such as `gelu.cu(3): error: expected a ";"` or `nvrtc: error: …`; later compilers number errors, as in
/// `error #20-D:`.
fn error(line: &str) -> Option<(&str, &str)> {
    for (at, _) in line.match_indices(": ") {
        let rest = &line[at + 2..];
        let behind = KINDS.iter().find_map(|kind| rest.strip_prefix(kind));
        let message = behind.and_then(|behind| {
            let (number, message) = behind.split_once(':')?;
            (number.is_empty() || number.starts_with(" #")).then_some(message)
        });
        if let Some(message) = message {
            return Some((&line[..at], message.trim()));
        }
    }
    None
}

/// The file and the line of `gelu.cu(3)`. What names no line is the compiler itself.
fn split(place: &str) -> (Option<&str>, Option<u32>) {
    let inside = place.strip_suffix(')').and_then(|place| place.rsplit_once('('));
    match inside.map(|(file, line)| (file, line.parse())) {
        Some((file, Ok(line))) => (Some(file), Some(line)),
        Some((_, Err(_))) | None => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(log: &str) -> (Option<String>, Option<u32>, String) {
        let error = first_error(log.to_owned());
        assert_eq!(error.log, log);
        (error.file, error.line, error.message)
    }

    fn at(file: &str, line: u32, message: &str) -> (Option<String>, Option<u32>, String) {
        (Some(file.to_owned()), Some(line), message.to_owned())
    }

    #[test]
    fn the_first_error_is_found_with_its_place() {
        let log = "gelu.cu(2): warning #177-D: variable \"x\" was declared but never referenced\n  float x;\n        ^\n\n\
                   gelu.cu(14): error: identifier \"y\" is undefined\n  y = 1;\n  ^\n\ngelu.cu(15): error: expected a \";\"\n";
        assert_eq!(found(log), at("gelu.cu", 14, "identifier \"y\" is undefined"));
        let missing =
            "a (b): c.cu(1): catastrophic error: could not open source file \"no.h\" (no directories in search list)\n";
        let message = "could not open source file \"no.h\" (no directories in search list)";
        assert_eq!(found(missing), at("a (b): c.cu", 1, message));
        assert_eq!(
            found("k.cu(9): error #20: identifier \"a: error: b\" is undefined"),
            at("k.cu", 9, "identifier \"a: error: b\" is undefined")
        );
    }

    #[test]
    fn an_error_that_is_at_no_line_is_told_without_one() {
        let none = |message: &str| (None, None, message.to_owned());
        let flag = "nvrtc: error: unrecognized option --bogus found\n";
        assert_eq!(found(flag), none("unrecognized option --bogus found"));
        assert_eq!(found("\n  something else\n"), none("something else"));
        assert_eq!(found(""), none("nothing that the compiler says"));
        assert_eq!(found("k.cu(99999999999): error: far"), none("far"));
        assert_eq!(found(": error: é(: error"), none("é(: error"));
    }
}
