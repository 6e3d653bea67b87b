//! Programs that NVIDIA's compiler makes: what it is told, what it says, and what is kept of it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sardana_cuda::device::{Device, Stream};
use sardana_cuda::program::{CompileError, CompilerAbsent, Options, Origin, Program, ProgramError};

use tempfile::TempDir;

use super::numbers::Numbers;
use super::swish::{HEADER, SOURCE, device, driver, gives_its_bits, line};

/// Runs a check on a twin of a device; a line that says why not, where there is no compiler for it, or no NVRTC. That one is named and not found is no reason.
fn compiled(check: impl FnOnce(&Device)) {
    let Some(driver) = driver() else { return };
    let session = driver.begin(1);
    let device = device();
    let probe = Program::compile(
        &device,
        "probe.cu",
        "extern \"C\" __global__ void probe() {}",
        &Options::new().not_kept(),
    );
    match probe {
        Err(ProgramError::Absent(CompilerAbsent::Library { .. })) if !is_named() => {
            println!("skipped: NVRTC is not found");
        }
        Err(error) => panic!("{error}"),
        Ok(probe) => {
            drop(probe);
            check(&device);
        }
    }
    drop(device);
    session.ends_well();
}

fn is_named() -> bool {
    std::env::var_os("SARDANA_NVRTC").is_some_and(|name| !name.is_empty())
}

fn options(folder: &Path) -> Options {
    Options::new().header(HEADER.0, HEADER.1).kept_in(folder)
}

/// A folder in which PTX may be kept.
fn private() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    folder
}

fn kept(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn what_is_compiled_gives_the_bits_of_its_reference_and_is_kept() {
    compiled(|device| {
        let folder = private();
        let compile = || Program::compile(device, "swish.cu", SOURCE, &options(folder.path())).unwrap();
        let all = [(); 2].map(|()| Numbers::new(1).near(300));
        for origin in [Origin::Compiled, Origin::Kept, Origin::Kept] {
            let program = compile();
            assert_eq!(program.origin(), &origin);
            gives_its_bits(&program, Stream::Compute, line(2, 64), all.each_ref().map(Vec::as_slice));
        }
        let [file] = kept(folder.path()).try_into().unwrap();
        let ptx = fs::read_to_string(&file).unwrap();
        assert!(
            ptx.contains(".target sm_90") && ptx.contains("mul.rn.f32") && !ptx.contains("fma.rn.f32"),
            "{ptx}"
        );
        // Another architecture, flag or source is another file.
        let others = [
            options(folder.path()).flag("--gpu-architecture=compute_80"),
            options(folder.path()).contracting(),
        ];
        for other in others {
            let program = Program::compile(device, "swish.cu", SOURCE, &other).unwrap();
            assert_eq!(program.origin(), &Origin::Compiled);
        }
        assert_eq!(kept(folder.path()).len(), 3);
        // What a person has changed, or a crash has cut, is made again.
        for broken in [
            ptx.replace("mul.rn.f32", "add.rn.f32"),
            ptx[..ptx.len() / 2].to_owned(),
            String::new(),
        ] {
            fs::write(&file, broken).unwrap();
            assert_eq!(compile().origin(), &Origin::Compiled);
            assert_eq!(fs::read_to_string(&file).unwrap(), ptx);
        }
    });
}

#[test]
fn products_and_sums_are_contracted_only_where_it_is_said() {
    compiled(|device| {
        let has_fused = |options: Options| {
            let folder = private();
            let program = Program::compile(device, "swish.cu", SOURCE, &options.kept_in(folder.path())).unwrap();
            assert_eq!(program.kernels().count(), 4);
            fs::read_to_string(&kept(folder.path())[0]).unwrap().contains("fma.rn.f32")
        };
        let options = || Options::new().header(HEADER.0, HEADER.1);
        assert!(!has_fused(options()));
        assert!(has_fused(options().contracting()));
    });
}

#[test]
fn an_error_of_the_compilers_is_told_with_its_line() {
    compiled(|device| {
        let folder = private();
        let error = |source: &str, options: &Options| {
            let Err(ProgramError::Compile(error)) = Program::compile(device, "swish.cu", source, options) else {
                panic!("the compiler takes it, or is not asked: {source}")
            };
            error
        };
        let CompileError {
            file,
            line,
            message,
            log,
        } = error(&SOURCE.replace("x * gate(x)", "x * door(x)"), &options(folder.path()));
        assert_eq!((file.as_deref(), line), (Some("swish.cu"), Some(7)));
        assert_eq!(message, "identifier \"door\" is undefined");
        assert!(log.contains("1 error detected"), "{log}");
        // In a file that it includes.
        let header = Options::new()
            .header(HEADER.0, &HEADER.1.replace("blockDim.x;", "blockDim.x"))
            .not_kept();
        let words = error(SOURCE, &header).to_string();
        assert!(
            words.starts_with("expected kernels that NVRTC compiles, found in numbers.cuh, line 12: expected a \";\""),
            "{words}"
        );
        // None is read from the disk, wherever the program runs.
        let missing = error("#include \"Cargo.toml\"\n", &options(folder.path()));
        assert_eq!((missing.file.as_deref(), missing.line), (Some("swish.cu"), Some(1)));
        assert!(
            missing.message.starts_with("could not open source file \"Cargo.toml\""),
            "{missing}"
        );
        let flag = error(SOURCE, &options(folder.path()).flag("--no-such-flag"));
        assert_eq!((flag.file, flag.line), (None, None));
        assert!(
            flag.message.contains("unrecognized option --no-such-flag"),
            "{}",
            flag.message
        );
        assert!(kept(folder.path()).is_empty(), "nothing is kept of what is wrong");
    });
}

#[test]
fn where_nothing_can_be_kept_it_is_compiled_and_said() {
    compiled(|device| {
        let folder = private();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let program = Program::compile(device, "swish.cu", SOURCE, &options(&file)).unwrap();
        assert!(
            matches!(program.origin(), Origin::CompiledOnly(Some(reason)) if !reason.is_empty()),
            "{program:?}"
        );
        let program = Program::compile(device, "swish.cu", SOURCE, &options(&file).not_kept()).unwrap();
        assert_eq!(program.origin(), &Origin::CompiledOnly(None));
        gives_its_bits(&program, Stream::Copies, line(1, 32), [&[0.5; 7], &[1.5; 7]]);
    });
}

#[test]
fn nothing_is_kept_of_a_source_that_reads_a_file_by_its_whole_path() {
    compiled(|device| {
        let folder = private();
        let header = folder.path().join("by.cuh");
        let inner = folder.path().join("kernels");
        for include in [
            format!("#include \"{}\"\n", header.display()),
            format!("#define BY <{}>\n#include BY\n", header.display()),
        ] {
            let source = format!("{include}extern \"C\" __global__ void probe(float* a) {{ *a = BY_SO_MUCH; }}\n");
            let compile = || Program::compile(device, "probe.cu", &source, &options(&inner));
            for by in ["1.0f", "2.0f"] {
                fs::write(&header, format!("#define BY_SO_MUCH {by}\n")).unwrap();
                let program = compile().unwrap();
                assert!(
                    matches!(program.origin(), Origin::CompiledOnly(Some(reason)) if reason.contains("changes are not seen")),
                    "{program:?}"
                );
            }
            fs::write(&header, "what is not compiled\n").unwrap();
            compile().unwrap_err();
        }
        assert!(!inner.exists(), "nothing is kept");
    });
}

#[test]
fn where_others_could_put_something_nothing_is_read_or_kept() {
    compiled(|device| {
        let folder = private();
        let inner = folder.path().join("kernels");
        let compile = || Program::compile(device, "swish.cu", SOURCE, &options(&inner)).unwrap();
        assert_eq!(compile().origin(), &Origin::Compiled);
        fs::set_permissions(&inner, Permissions::from_mode(0o777)).unwrap();
        let program = compile();
        assert!(
            matches!(program.origin(), Origin::CompiledOnly(Some(reason)) if reason.contains("expected mode 0700")),
            "{program:?}"
        );
        fs::set_permissions(&inner, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(compile().origin(), &Origin::Kept);
    });
}

#[test]
fn what_is_no_ptx_is_told_with_the_flags_and_what_does_not_load_is_not_kept() {
    compiled(|device| {
        let folder = private();
        let error = Program::compile(device, "swish.cu", SOURCE, &options(folder.path()).flag("-dlto")).unwrap_err();
        let words = error.to_string();
        assert!(
            words.contains("expected flags with which NVRTC makes PTX of `swish.cu`") && words.contains("-dlto"),
            "{words}"
        );
        // A source without kernels compiles, and is none that loads.
        let source = "__device__ int number;\n";
        Program::compile(device, "number.cu", source, &options(folder.path())).unwrap_err();
        assert!(kept(folder.path()).is_empty());
    });
}

#[test]
fn several_threads_compile_at_once() {
    compiled(|device| {
        let folder = private();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let program = Program::compile(device, "swish.cu", SOURCE, &options(folder.path())).unwrap();
                    assert_eq!(program.kernels().count(), 4);
                });
            }
        });
        assert_eq!(kept(folder.path()).len(), 1);
    });
}
