//! What a log says is for people: words and numbers, and no value as it is written in Rust.

use std::process::Command;

use super::site::Site;

/// What only a value as Rust shows it to its programmer has: braces of a struct, a wrapped value, a list.
const SHAPES: [&str; 6] = [" { ", "Some(", "Ok(", "Err(", "None", "[\""];

/// Whether this text is a value as Rust shows it to its programmer. A single word with a capital is the name of a variant: what is said in words
/// begins small, or goes on.
fn is_of_rust(text: &str) -> bool {
    let variant = text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.chars().all(char::is_alphanumeric)
        && text.chars().any(char::is_lowercase);
    variant || SHAPES.iter().any(|shape| text.contains(shape))
}

/// The texts of a line's fields, and of those of its spans. What a span is called is no value: it may be a type.
fn texts(line: &serde_json::Value) -> impl Iterator<Item = (&String, &str)> {
    let spans = line["spans"].as_array().into_iter().flatten();
    let parts = [&line["fields"], &line["span"]].into_iter().chain(spans);
    let fields = parts.filter_map(|part| part.as_object()).flatten();
    let texts = fields.filter_map(|(name, value)| Some((name, value.as_str()?)));
    texts.filter(|(name, _)| *name != "name")
}

#[test]
fn values_of_rust_are_told_from_words() {
    for value in ["Stopped", "Some(7)", "Report { step: 7 }", "[\"a\"]"] {
        assert!(is_of_rust(value), "{value}");
    }
    for words in [
        "stands still",
        "A worker is lost",
        "g1.1",
        "12.5ms",
        "127.0.0.1:80 [::1]",
        "AWS",
    ] {
        assert!(!is_of_rust(words), "{words}");
    }
}

/// Of a job that forms, has a worker that stands still, is killed and replaced, keeps checkpoints, and is stopped.
#[test]
fn no_line_at_level_info_has_a_value_as_it_is_written_in_rust() {
    let site = Site::new();
    let running = site.run("-n 2 --restarts 1 --checkpoint-dir checkpoints --checkpoint-every 1000");
    let pids = running.pids(2);
    running.event("sardana::event::formed");
    let stopped = Command::new("kill").args(["-s", "STOP", &pids[0].to_string()]).status();
    assert!(stopped.unwrap().success());
    running.events(["sardana::event::motion", "sardana::event::lost", "sardana::event::started"]);
    running.signal("TERM");
    let (status, said) = running.ends_having_said();
    assert_eq!(status.code(), Some(0), "{said:#?}");
    let is_there = |target: &str| said.iter().any(|line| line["target"] == target);
    for target in ["motion", "lost", "started", "joined", "formed", "saved", "done"] {
        assert!(is_there(&format!("sardana::event::{target}")), "{target}: {said:#?}");
    }
    for line in &said {
        let of_rust: Vec<_> = texts(line).filter(|(_, text)| is_of_rust(text)).collect();
        assert!(of_rust.is_empty(), "{of_rust:?} in {line}");
    }
}
