//! The PTX that devices load, read as text: it rounds as the references do, and takes what the table of kernels says. This needs no GPU and no
//! compiler; whether it is the kernels' own is for `.ci/ptx` to say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use sardana_cuda::kernels::{ALL, Kernel, Module, Parameter};
use sha2::{Digest, Sha256};

/// A kernel in PTX: the bytes of its parameters, its instructions, and all of its text.
#[derive(Default)]
struct Entry<'a> {
    parameters: Vec<usize>,
    instructions: Vec<&'a str>,
    body: &'a str,
}

/// The instruction of a line, without its predicate and operands. None where there is none.
fn instruction(line: &str) -> Option<&str> {
    let line = line.trim();
    let bare = line
        .strip_prefix('@')
        .map_or(Some(line), |rest| rest.split_once(char::is_whitespace).map(|(_, rest)| rest));
    let word = bare?.split_whitespace().next()?.trim_end_matches(';');
    word.starts_with(|letter: char| letter.is_ascii_lowercase()).then_some(word)
}

/// The bytes of a parameter, as `.param .u64 name` or `.param .align 8 .b8 name[256]` says it.
fn parameter_bytes(line: &str) -> usize {
    let words: Vec<&str> = line.trim().trim_end_matches(',').split_whitespace().collect();
    match words.as_slice() {
        [".param", kind, _] => {
            kind.trim_start_matches(['.', 'u', 'b', 'f', 's'])
                .parse::<usize>()
                .expect("a width is a number")
                / 8
        }
        [".param", ".align", _, ".b8", name] => name
            .split(['[', ']'])
            .nth(1)
            .and_then(|bytes| bytes.parse().ok())
            .expect("a size is a number"),
        other => panic!("no parameter is written so: {other:?}"),
    }
}

fn entries(ptx: &str) -> BTreeMap<&str, Entry<'_>> {
    let mut entries = BTreeMap::new();
    for text in ptx.split(".visible .entry ").skip(1) {
        let (name, rest) = text.split_once('(').expect("an entry has parameters");
        let (parameters, body) = rest.split_once(')').expect("parameters end");
        let entry = Entry {
            parameters: parameters
                .lines()
                .filter(|line| line.contains(".param"))
                .map(parameter_bytes)
                .collect(),
            instructions: body.lines().filter_map(instruction).collect(),
            body,
        };
        entries.insert(name, entry);
    }
    entries
}

fn modules() -> impl Iterator<Item = (Module, BTreeMap<&'static str, Entry<'static>>)> {
    Module::ALL.into_iter().map(|module| (module, entries(module.ptx())))
}

/// Arithmetic on floating-point numbers: what rounds, and how.
const ROUNDED: &[&str] = &["add.rn.", "sub.rn.", "mul.rn.", "div.rn.", "sqrt.rn.", "fma.rn.", "cvt.rn."];

/// What does not round at all: a number in more bits, comparisons, choices, and bits as they are.
const EXACT: &[&str] = &["cvt.f64.f32", "setp.", "selp.", "ld.", "st.", "mov."];

fn is_floating(instruction: &str) -> bool {
    instruction.contains(".f32")
        || instruction.contains(".f64")
        || instruction.contains(".f16")
        || instruction.contains(".bf16")
}

/// Kernels in whose source a fused multiply-add is written.
const FUSED: &[&str] = &["dense_forward", "dense_backward_inputs", "dense_backward_weights"];

/// What is wrong with a kernel's instructions.
fn faults(name: &str, entry: &Entry<'_>) -> BTreeSet<String> {
    let fused = FUSED.contains(&name);
    let wrong = |instruction: &&&str| {
        let known = ROUNDED.iter().chain(EXACT).any(|start| instruction.starts_with(start));
        let flushed = ["ftz", "approx", "full"]
            .iter()
            .any(|word| instruction.split('.').any(|part| part == *word));
        let contracted = instruction.starts_with("fma.") && !fused;
        flushed
            || contracted
            || is_floating(instruction) && !known
            || instruction.starts_with("atom")
            || instruction.starts_with("red.")
    };
    entry
        .instructions
        .iter()
        .filter(wrong)
        .map(|one| format!("{name}: {one}"))
        .collect()
}

#[test]
fn arithmetic_is_rounded_to_the_nearest_and_contracted_only_where_it_is_written() {
    let mut seen = BTreeSet::new();
    for (module, entries) in modules() {
        for (name, entry) in &entries {
            let faults = faults(name, entry);
            assert!(faults.is_empty(), "{module:?}: {faults:?}: compile the kernels by .ci/ptx");
            seen.extend(entry.instructions.iter().copied().filter(|one| is_floating(one)));
        }
    }
    // All that the kernels use is seen, so that nothing else looks like nothing.
    for used in [
        "add.rn.f32",
        "add.rn.f64",
        "mul.rn.f32",
        "div.rn.f32",
        "div.rn.f64",
        "sqrt.rn.f32",
        "fma.rn.f32",
    ] {
        assert!(seen.contains(used), "{used} is not among {seen:?}");
    }
}

#[test]
fn layers_are_fused_and_nothing_else() {
    let mut fused = Vec::new();
    for (_, entries) in modules() {
        let all = entries
            .iter()
            .filter(|(_, entry)| entry.instructions.iter().any(|one| one.starts_with("fma.")));
        fused.extend(all.map(|(name, _)| *name));
    }
    fused.sort_unstable();
    let mut expected = FUSED.to_vec();
    expected.sort_unstable();
    assert_eq!(fused, expected);
}

#[test]
fn what_a_careless_compiler_makes_is_seen() {
    let found = |name: &str, line: &'static str| {
        let instructions = vec![instruction(line).unwrap()];
        !faults(
            name,
            &Entry {
                instructions,
                ..Entry::default()
            },
        )
        .is_empty()
    };
    for line in [
        "\tfma.rn.f32 \t%f1, %f2, %f3, %f4;",
        "@%p1 add.ftz.f32 %f1, %f2, %f3;",
        "div.approx.f32 %f1, %f2, %f3;",
        "div.full.f32 %f1, %f2, %f3;",
        "sqrt.approx.ftz.f32 %f1, %f2;",
        "rsqrt.approx.f32 %f1, %f2;",
        "ex2.approx.ftz.f32 %f1, %f2;",
        "add.rz.f32 %f1, %f2, %f3;",
        "add.f32 %f1, %f2, %f3;",
        "cvt.rzi.s32.f32 %r1, %f2;",
        "atom.global.add.f32 %f1, [%rd1], %f2;",
        "red.global.add.u32 [%rd1], %r2;",
        "min.f32 %f1, %f2, %f3;",
    ] {
        assert!(found("sgd", line), "{line}");
    }
    for line in [
        "add.rn.f32 %f1, %f2, %f3;",
        "@!%p2 st.global.f32 [%rd1], %f2;",
        "mad.lo.s32 %r1, %r2, %r3, %r4;",
    ] {
        assert!(!found("sgd", line), "{line}");
    }
    assert!(!found("dense_forward", "fma.rn.f32 %f1, %f2, %f3, %f4;"));
}

#[test]
fn what_is_computed_has_one_nan() {
    for (module, entries) in modules() {
        for (name, entry) in entries {
            let rounds = |of: &str| {
                entry
                    .instructions
                    .iter()
                    .any(|one| ROUNDED.iter().any(|start| one.starts_with(start)) && one.ends_with(of))
            };
            for (of, bits) in [(".f32", "0f7FC00000"), (".f64", "0d7FF8000000000000")] {
                // Quotients that are squared in f64; a number that is no NaN, rounded as a half.
                let is_no_result = matches!((name, of), ("squares" | "narrow_f16", ".f32"));
                let chosen = entry.body.lines().any(|line| line.contains("selp") && line.contains(bits));
                assert!(
                    chosen || is_no_result || !rounds(of),
                    "{module:?}: {name} chooses no NaN in {of}"
                );
            }
        }
    }
}

#[test]
fn parameters_are_those_of_the_table() {
    for (module, entries) in modules() {
        let known: BTreeMap<&str, Vec<usize>> = module.kernels().map(|kernel| (kernel.name, sizes(kernel))).collect();
        let found: BTreeMap<&str, Vec<usize>> = entries.into_iter().map(|(name, entry)| (name, entry.parameters)).collect();
        assert_eq!(found, known, "{module:?}");
    }
    assert_eq!(
        ALL.len(),
        Module::ALL.into_iter().map(|module| module.kernels().count()).sum::<usize>()
    );
}

fn sizes(kernel: &Kernel) -> Vec<usize> {
    kernel
        .parameters
        .iter()
        .map(|(_, parameter)| Parameter::bytes(*parameter))
        .collect()
}

/// Which sources the PTX was compiled from: the compiler that tells whether it is theirs is not on every machine.
#[test]
fn it_was_compiled_from_these_sources() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let told = fs::read_to_string(folder.join("ptx/sources.sha256")).expect("`.ci/ptx --write` makes it");
    let mut names: Vec<String> = fs::read_dir(folder.join("kernels"))
        .expect("kernels have a folder")
        .map(|file| {
            file.expect("it can be listed")
                .file_name()
                .into_string()
                .expect("names are text")
        })
        .collect();
    names.sort_unstable();
    let line = |name: &String| {
        let source = fs::read(folder.join("kernels").join(name)).expect("it is there");
        format!("{:x}  kernels/{name}\n", Sha256::digest(source))
    };
    let expected: String = names.iter().map(line).collect();
    assert_eq!(
        told, expected,
        "a kernel has changed, and its PTX has not: run `.ci/ptx --write`"
    );
}

#[test]
fn any_device_of_the_oldest_kind_takes_it() {
    for (module, _) in modules() {
        let line = |start: &str| module.ptx().lines().find_map(|line| line.strip_prefix(start)).unwrap();
        assert_eq!(
            (line(".target ").trim(), line(".address_size ").trim()),
            ("sm_80", "64"),
            "{module:?}"
        );
    }
}
