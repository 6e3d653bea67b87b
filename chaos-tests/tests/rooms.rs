//! Imports run one way: between the crates, which the compiler sees to, and between the folders of each crate, which it does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const CRATES: [&str; 10] = [
    "protocol",
    "storage",
    "net",
    "collectives",
    "collectives/cuda",
    "actors",
    "runtime",
    "runtime/data",
    "runtime/candle",
    "chaos-tests/twins",
];

/// Folders and files directly under `src`, and which of them each imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace is around its member")
}

/// What stands before a file's tests, without comments.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a source file is read");
    let before = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = before.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn is_test(file: &Path) -> bool {
    let names = file.iter().filter_map(|name| name.to_str());
    names
        .map(|name| name.trim_end_matches(".rs"))
        .any(|name| name.ends_with("tests") || name == "testing")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder is listed") {
        let path = entry.expect("an entry is read").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Names that follow `prefix`, as in `crate::name`.
fn names_after<'a>(code: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(prefix).map(move |(at, _)| {
        let rest = &code[at + prefix.len()..];
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

fn imports(source: &Path) -> Imports {
    let mut files = Vec::new();
    sources(source, &mut files);
    let mut imports = Imports::new();
    for file in files {
        let inside = file.strip_prefix(source).expect("it was found there");
        let first = inside.iter().next().and_then(|name| name.to_str()).expect("names are text");
        let room = first.trim_end_matches(".rs").to_owned();
        if matches!(room.as_str(), "lib" | "bin") || is_test(inside) {
            continue;
        }
        let code = code(&file);
        // From a room's first file the others are as near as the crate's root.
        let is_first = inside.components().count() == 1 || (inside.components().count() == 2 && inside.ends_with("mod.rs"));
        let near = names_after(&code, "super::").filter(|_| is_first);
        let all = names_after(&code, "crate::").chain(near).map(str::to_owned);
        imports.entry(room).or_default().extend(all);
    }
    let rooms: BTreeSet<String> = imports.keys().cloned().collect();
    for (room, imported) in &mut imports {
        imported.retain(|name| name != room && rooms.contains(name));
    }
    imports
}

/// A way through `imports` from a room back to itself.
fn circle(imports: &Imports) -> Option<Vec<String>> {
    imports.keys().find_map(|start| {
        let mut ways = vec![vec![start.clone()]];
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop() {
            for next in way.last().and_then(|last| imports.get(last)).into_iter().flatten() {
                let longer: Vec<String> = way.iter().chain([next]).cloned().collect();
                if next == start {
                    return Some(longer);
                }
                if seen.insert(next.clone()) {
                    ways.push(longer);
                }
            }
        }
        None
    })
}

#[test]
fn no_folder_imports_another_that_imports_it() {
    for name in CRATES {
        let imports = imports(&workspace().join(name).join("src"));
        let all: usize = imports.values().map(BTreeSet::len).sum();
        assert!(
            imports.len() > 3 && all > imports.len() / 2,
            "{name}: imports are found: {imports:?}"
        );
        if let Some(circle) = circle(&imports) {
            panic!("{name}: imports go round in a circle: {}", circle.join(" -> "));
        }
    }
}

#[test]
fn a_circle_is_seen() {
    let of = |all: &[(&str, &[&str])]| -> Imports {
        let owned = |names: &&[&str]| names.iter().map(|&name| name.to_owned()).collect();
        all.iter().map(|(room, names)| ((*room).to_owned(), owned(names))).collect()
    };
    assert_eq!(circle(&of(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), None);
    let round = circle(&of(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]));
    assert_eq!(round.unwrap().join(" "), "b c b");
}
