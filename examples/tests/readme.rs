//! The README and ARCHITECTURE.md: what they quote is what is there, and the quoted program does what they say.

use std::path::Path;
use std::process::Command;

const EMBED: &str = include_str!("../src/bin/embed.rs");
const NETWORK: &str = include_str!("../src/bin/network.rs");
const README: &str = include_str!("../../README.md");
const ARCHITECTURE: &str = include_str!("../../ARCHITECTURE.md");

#[test]
fn the_readme_quotes_its_programs_word_for_word() {
    for (name, text) in [("embed", EMBED), ("network", NETWORK)] {
        let (_, code) = text.split_once("\n\n").expect("a head, then the code");
        assert!(
            README.contains(&format!("```rust\n{code}```\n")),
            "README.md does not quote {name}.rs"
        );
    }
}

#[test]
fn the_embedding_finds_the_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_embed")).output().unwrap();
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{words}{}", String::from_utf8_lossy(&output.stderr));
    let value = |name: &str| -> f64 {
        let found = words.lines().find_map(|line| line.strip_prefix(name));
        found.expect("it prints what it found").parse().unwrap()
    };
    let (a, b) = (value("a = "), value("b = "));
    assert!(
        (a - 1.0).abs() < 1e-3 && (b - 2.0).abs() < 1e-3,
        "expected y = 1 + 2 x, found a = {a}, b = {b}"
    );
}

#[test]
fn the_tour_says_what_it_is_and_refuses_what_it_does_not_know() {
    let tour = |argument: &str| Command::new(env!("CARGO_BIN_EXE_tour")).arg(argument).output().unwrap();
    let help = tour("--help");
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("an undisturbed run"));
    let wrong = tour("--wokers");
    let words = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2), "{words}");
    assert!(words.contains("'--wokers'") && wrong.stdout.is_empty(), "{words}");
}

#[test]
fn every_link_within_the_project_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut links = 0;
    for (name, text) in [("README.md", README), ("ARCHITECTURE.md", ARCHITECTURE)] {
        for after in text.split("](").skip(1) {
            let target = after.split_once(')').expect("a link ends").0;
            let path = target.split('#').next().unwrap_or_default();
            assert!(path.is_empty() || root.join(path).exists(), "{name}: nothing at {target}");
            links += 1;
        }
    }
    assert!(links > 20, "expected the two files to link to the code, found {links} links");
}
