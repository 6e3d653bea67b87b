//! What a program of kernels is made of, how it is compiled, and where the PTX is kept. Must not know the compiler, nor the device.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use super::error::ProgramError;
use super::{cache, includes};
use crate::raw::nvrtc::Input;

/// Most bytes of a source with its headers.
const MOST_SOURCE_BYTES: usize = 16 << 20;

/// Most headers, and most flags.
const MOST_PARTS: usize = 256;

/// Most bytes of a name and of a flag.
const MOST_NAME_BYTES: usize = 4_096;

/// How a program of kernels is compiled. By default without contraction, and kept in the user's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    headers: Vec<(String, String)>,
    flags: Vec<String>,
    contracts: bool,
    kept: Kept,
}

/// Where PTX is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kept {
    Usual,
    Folder(PathBuf),
    Nowhere,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// The default.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            headers: Vec::new(),
            flags: Vec::new(),
            contracts: false,
            kept: Kept::Usual,
        }
    }

    /// With a file that the source may include by this name. No file of the disk is included but by a path that begins with `/`, or with a flag that names a folder.
    /// Nothing is kept of a source that includes anything but what it is given here, or looks as if it did, since it is not seen when that changes.
    #[must_use]
    pub fn header(mut self, name: &str, text: &str) -> Self {
        self.headers.push((name.to_owned(), text.to_owned()));
        self
    }

    /// With a flag of NVRTC's, such as `--std=c++20` or `--define-macro=TILE=64`. `--gpu-architecture` replaces the device's own. With one that
    /// has files of the disk read (`--include-path`, `-I`, `--pre-include`, those of precompiled headers) nothing is kept either.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// The compiler may make one operation of a product and a sum (`--fmad=true`, which is its own default): faster, and rounded once where the
    /// source rounds twice. Then the bits are no longer those of the same arithmetic on a processor, and another version of the compiler may choose
    /// other operations. Without this a fused operation is written as one: `fmaf`, which is `mul_add` in Rust.
    #[must_use]
    pub const fn contracting(mut self) -> Self {
        self.contracts = true;
        self
    }

    /// PTX is kept in this folder, which is made if it is not there. Where others than its user can enter it nothing is read or kept, since its code is run. The
    /// default is `$XDG_CACHE_HOME/sardana/kernels`, or else `~/.cache/sardana/kernels`.
    #[must_use]
    pub fn kept_in(mut self, folder: &Path) -> Self {
        self.kept = Kept::Folder(folder.to_owned());
        self
    }

    /// PTX is not kept: each process compiles for itself.
    #[must_use]
    pub fn not_kept(mut self) -> Self {
        self.kept = Kept::Nowhere;
        self
    }

    /// The folder in which the PTX of a source is kept, or why it is not kept. No reason where that was said, or no folder is known.
    pub(super) fn folder(&self, source: &str) -> Result<PathBuf, Option<String>> {
        let folder = match &self.kept {
            Kept::Usual => cache::usual_folder().ok_or(None)?,
            Kept::Folder(folder) => folder.clone(),
            Kept::Nowhere => return Err(None),
        };
        let reads_files = |flag: &&String| {
            let flag = flag.trim_start_matches('-');
            let starts = ["I", "include", "pre-include"].iter().any(|start| flag.starts_with(start));
            starts || flag.contains("pch")
        };
        let given: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        let mut texts = self.headers.iter().map(|(_, text)| text.as_str()).chain([source]);
        let flag = self.flags.iter().find(reads_files).cloned();
        match flag.or_else(|| texts.find_map(|text| includes::beyond(text, &given))) {
            None => Ok(folder),
            Some(found) => Err(Some(format!("`{found}` may read files whose changes are not seen"))),
        }
    }

    /// What the compiler is given, for an architecture such as 90.
    pub(super) fn input(&self, name: &str, source: &str, architecture: u32) -> Result<Input, ProgramError> {
        let all = self.headers.iter().map(|(_, text)| text.len()).chain([source.len()]);
        let bytes = all.fold(0, usize::saturating_add);
        require(
            bytes <= MOST_SOURCE_BYTES,
            || format!("a source of at most {MOST_SOURCE_BYTES} bytes with its headers"),
            || format!("{bytes}"),
        )?;
        require(
            !source.trim().is_empty(),
            || "a source with kernels".into(),
            || "an empty one".into(),
        )?;
        let parts = self.headers.len().max(self.flags.len());
        require(
            parts <= MOST_PARTS,
            || format!("at most {MOST_PARTS} headers, and as many flags"),
            || format!("{parts}"),
        )?;
        let header = |(name, text): &(String, String)| Ok((short("a header's name", name)?, text_of(name, text)?));
        let mut flags = self.own_flags(architecture);
        flags.extend(self.flags.iter().cloned());
        Ok(Input {
            name: short("a name", name)?,
            source: text_of(name, source)?,
            headers: self.headers.iter().map(header).collect::<Result<_, ProgramError>>()?,
            flags: flags
                .iter()
                .map(|flag| short("a flag", flag))
                .collect::<Result<_, ProgramError>>()?,
        })
    }

    /// What is said besides the flags that were given, and not against them: the compiler takes each once.
    fn own_flags(&self, architecture: u32) -> Vec<String> {
        let names = |long: &str, short: &str| {
            let is = |flag: &String| {
                [long, short]
                    .iter()
                    .any(|name| flag.trim_start_matches('-').starts_with(name))
            };
            self.flags.iter().any(is)
        };
        let mut own = vec!["--no-source-include".to_owned()];
        if !names("gpu-architecture", "arch") {
            own.push(format!("--gpu-architecture=compute_{architecture}"));
        }
        if !names("fmad", "fmad") {
            own.push(format!("--fmad={}", self.contracts));
        }
        own
    }
}

/// All that PTX depends on, as a hash: what is compiled, with what, by which build of the compiler.
pub(super) fn key(input: &Input, compiler: &str) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_derive_key("sardana programs of kernels v2");
    let mut add = |bytes: &[u8]| {
        // With its length, so that no two inputs are the same bytes.
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    add(compiler.as_bytes());
    add(input.name.as_bytes());
    add(input.source.as_bytes());
    add(&(input.headers.len() as u64).to_le_bytes());
    for (name, text) in &input.headers {
        add(name.as_bytes());
        add(text.as_bytes());
    }
    for flag in &input.flags {
        add(flag.as_bytes());
    }
    hasher.finalize()
}

fn short(what: &str, text: &str) -> Result<CString, ProgramError> {
    let bytes = text.len();
    let fits = (1..=MOST_NAME_BYTES).contains(&bytes);
    require(
        fits,
        || format!("{what} of 1 to {MOST_NAME_BYTES} bytes"),
        || format!("{bytes}"),
    )?;
    text_of(what, text)
}

fn text_of(what: &str, text: &str) -> Result<CString, ProgramError> {
    CString::new(text).map_err(|error| ProgramError::Input {
        expected: format!("text without a zero byte in {what:?}"),
        found: format!("one at byte {}", error.nul_position()),
    })
}

pub(super) fn require(
    holds: bool,
    expected: impl FnOnce() -> String,
    found: impl FnOnce() -> String,
) -> Result<(), ProgramError> {
    if holds {
        return Ok(());
    }
    Err(ProgramError::Input {
        expected: expected(),
        found: found(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "extern \"C\" __global__ void k() {}";

    fn flags(options: &Options) -> Vec<String> {
        let input = options.input("k.cu", SOURCE, 90).unwrap();
        input.flags.iter().map(|flag| flag.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn nothing_is_contracted_unless_it_is_said_and_each_flag_is_said_once() {
        let own = ["--no-source-include", "--gpu-architecture=compute_90", "--fmad=false"];
        assert_eq!(flags(&Options::new()), own);
        assert_eq!(flags(&Options::new().contracting())[2], "--fmad=true");
        assert_eq!(flags(&Options::new().flag("-arch=sm_80")), [own[0], own[2], "-arch=sm_80"]);
        assert_eq!(flags(&Options::new().flag("-fmad=true")), [own[0], own[1], "-fmad=true"]);
    }

    #[test]
    fn a_key_is_of_all_that_is_compiled() {
        let key = |options: &Options, name: &str, source: &str, architecture, version: &str| {
            key(&options.input(name, source, architecture).unwrap(), version)
        };
        let plain = Options::new();
        let other = format!("{SOURCE} ");
        let keys = [
            key(&plain, "k.cu", SOURCE, 90, "12.8"),
            key(&plain, "l.cu", SOURCE, 90, "12.8"),
            key(&plain, "k.cu", &other, 90, "12.8"),
            key(&plain, "k.cu", SOURCE, 80, "12.8"),
            key(&plain, "k.cu", SOURCE, 90, "12.9"),
            key(&Options::new().contracting(), "k.cu", SOURCE, 90, "12.8"),
            key(&Options::new().flag("--a"), "k.cu", SOURCE, 90, "12.8"),
            key(&Options::new().header("a", "b"), "k.cu", SOURCE, 90, "12.8"),
            key(&Options::new().header("ab", ""), "k.cu", SOURCE, 90, "12.8"),
            key(&Options::new().header("c", "").header("a", "b"), "k.cu", SOURCE, 90, "12.8"),
        ];
        for (at, one) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(one), "{at}");
        }
        // Where it is kept changes nothing of it.
        let elsewhere = Options::new().kept_in(Path::new("elsewhere"));
        assert_eq!(key(&elsewhere, "k.cu", SOURCE, 90, "12.8"), keys[0]);
    }

    #[test]
    fn what_cannot_be_compiled_is_refused_before_the_compiler_is_asked() {
        let long = "x".repeat(MOST_SOURCE_BYTES + 1);
        let many = (0..=MOST_PARTS).fold(Options::new(), |options, _| options.flag("--a"));
        let refused = |options: &Options, name: &str, source: &str| options.input(name, source, 90).unwrap_err().to_string();
        let plain = Options::new();
        for (words, told) in [
            (refused(&plain, "k.cu", ""), "a source with kernels, found an empty one"),
            (refused(&plain, "k.cu", " \n"), "a source with kernels, found an empty one"),
            (
                refused(&plain, "k.cu", &long),
                "at most 16777216 bytes with its headers, found 16777217",
            ),
            (
                refused(&plain, "k.cu", "a\0b"),
                "text without a zero byte in \"k.cu\", found one at byte 1",
            ),
            (refused(&plain, "", SOURCE), "a name of 1 to 4096 bytes, found 0"),
            (refused(&plain, "k\0", SOURCE), "without a zero byte in \"a name\""),
            (
                refused(&plain.clone().header("h", &long), "k.cu", SOURCE),
                "at most 16777216 bytes",
            ),
            (
                refused(&plain.clone().header("h", "\0"), "k.cu", SOURCE),
                "in \"h\", found one at byte 0",
            ),
            (
                refused(&plain.clone().flag(""), "k.cu", SOURCE),
                "a flag of 1 to 4096 bytes, found 0",
            ),
            (
                refused(&many, "k.cu", SOURCE),
                "at most 256 headers, and as many flags, found 257",
            ),
        ] {
            assert!(words.contains(told), "{words}");
        }
    }

    #[test]
    fn nothing_is_kept_of_what_reads_other_files() {
        let kept = || Options::new().kept_in(Path::new("kept")).header("a.cuh", "");
        let folder = |options: Options| options.folder("#include \"a.cuh\"");
        let expected = Ok(PathBuf::from("kept"));
        assert_eq!(folder(kept()), expected);
        assert_eq!(folder(kept().flag("--std=c++20")), expected);
        assert_eq!(folder(kept().not_kept()), Err(None));
        for flag in [
            "-Iinclude",
            "--include-path=include",
            "-I",
            "--pre-include=a.h",
            "-include=a.h",
            "--use-pch=a.pch",
            "-pch",
        ] {
            let reason = folder(kept().flag(flag)).unwrap_err().unwrap();
            assert!(reason.starts_with(&format!("`{flag}` may read files")), "{reason}");
        }
        for text in ["#include \"/abs/x.cuh\"", "#include X"] {
            let reason = folder(kept().header("b.cuh", text)).unwrap_err().unwrap();
            assert!(reason.contains(&text[1..]), "{reason}");
            assert!(kept().folder(text).is_err());
        }
    }
}
