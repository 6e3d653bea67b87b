//! NVRTC, NVIDIA's compiler of CUDA C as a library: its functions, and one compilation as a call. Must not know what is compiled, nor for which device.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::Path;
use std::ptr;

use super::library::{self, OpenLibrary, functions};

/// The variable that names NVRTC's file, where the loader of programs does not find it by itself.
pub(crate) const VARIABLE: &str = "SARDANA_NVRTC";

/// Its code where the source or an option is wrong: then the log says what.
const INVALID_OPTION: c_int = 5;
const COMPILATION: c_int = 6;

/// Most bytes that are taken of a log, and of PTX.
const MOST_LOG: usize = 16 << 20;
pub(crate) const MOST_PTX: usize = 64 << 20;

/// Architectures that are asked for: far more than there are.
const MOST_ARCHITECTURES: usize = 1_024;

/// A program of its own, which only its functions look into.
type Handle = *mut c_void;

functions! {
    version = "nvrtcVersion"(*mut c_int, *mut c_int) -> c_int;
    words = "nvrtcGetErrorString"(c_int) -> *const c_char;
    count_architectures = "nvrtcGetNumSupportedArchs"(*mut c_int) -> c_int;
    architectures = "nvrtcGetSupportedArchs"(*mut c_int) -> c_int;
    create = "nvrtcCreateProgram"(*mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int;
    destroy = "nvrtcDestroyProgram"(*mut Handle) -> c_int;
    compile = "nvrtcCompileProgram"(Handle, c_int, *const *const c_char) -> c_int;
    log_size = "nvrtcGetProgramLogSize"(Handle, *mut usize) -> c_int;
    log = "nvrtcGetProgramLog"(Handle, *mut c_char) -> c_int;
    ptx_size = "nvrtcGetPTXSize"(Handle, *mut usize) -> c_int;
    ptx = "nvrtcGetPTX"(Handle, *mut c_char) -> c_int;
}

/// A call that failed, and not because of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The function.
    pub(crate) call: &'static str,
    /// What NVRTC says of it, with its code.
    pub(crate) words: String,
}

/// What is compiled: texts without zeros within.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) name: CString,
    pub(crate) source: CString,
    /// Files that it may include, by name.
    pub(crate) headers: Vec<(CString, CString)>,
    pub(crate) flags: Vec<CString>,
}

/// What the compiler makes of it: PTX, or a log that says why not.
pub(crate) type Made = Result<Vec<u8>, Vec<u8>>;

/// NVRTC, open as long as the program runs.
#[derive(Debug)]
pub(crate) struct Calls {
    functions: Functions,
    /// Which the compiler opens by its name, once it compiles.
    _builtins: Vec<OpenLibrary>,
}

/// Opens NVRTC: the file that [`VARIABLE`] names, or else the first that the loader finds. The error is the loader's words.
pub(crate) fn open() -> Result<OpenLibrary, String> {
    match std::env::var(VARIABLE) {
        Ok(file) if !file.is_empty() => library::open([file]),
        Ok(_) | Err(_) => library::open(library::names("nvrtc")),
    }
}

/// The library with the compiler's own declarations, where it lies beside a compiler that was named by its path: the loader would not look there.
fn builtins_beside(file: &str) -> Vec<OpenLibrary> {
    let folder = Path::new(file).parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = folder.and_then(|folder| fs::read_dir(folder).ok());
    let paths = entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let own = paths.filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("libnvrtc-builtins.so"))
    });
    own.filter_map(|path| library::open([path.to_str()?.to_owned()]).ok())
        .collect()
}

impl Calls {
    /// Looks for the functions of an open library. The error is the name of the first that it lacks.
    pub(crate) fn of(library: &OpenLibrary) -> Result<Self, &'static str> {
        let functions = Functions::of(library)?;
        let builtins = builtins_beside(&library.name);
        Ok(Self {
            functions,
            _builtins: builtins,
        })
    }

    /// Where one of its functions lies in this process.
    pub(crate) fn address(&self) -> usize {
        self.functions.version as *const () as usize
    }

    /// Its version, as in 12.8.
    pub(crate) fn version(&self) -> Result<[u32; 2], Failed> {
        let [mut major, mut minor] = [0; 2];
        // SAFETY: both are written to.
        let code = unsafe { (self.functions.version)(&raw mut major, &raw mut minor) };
        self.accept("nvrtcVersion", code)?;
        Ok([major, minor].map(|number| u32::try_from(number).unwrap_or(0)))
    }

    /// The architectures that it compiles for, as in 90 for compute capability 9.0.
    pub(crate) fn architectures(&self) -> Result<Vec<u32>, Failed> {
        let mut count = 0;
        // SAFETY: it is written to.
        let code = unsafe { (self.functions.count_architectures)(&raw mut count) };
        self.accept("nvrtcGetNumSupportedArchs", code)?;
        let count = usize::try_from(count).unwrap_or(0);
        if count > MOST_ARCHITECTURES {
            return Err(too_much("nvrtcGetNumSupportedArchs", count, MOST_ARCHITECTURES));
        }
        let mut found: Vec<c_int> = vec![0; count];
        // SAFETY: it writes as many numbers as it has just counted.
        let code = unsafe { (self.functions.architectures)(found.as_mut_ptr()) };
        self.accept("nvrtcGetSupportedArchs", code)?;
        Ok(found.into_iter().filter_map(|number| u32::try_from(number).ok()).collect())
    }

    /// Compiles. Several threads may, each for itself.
    pub(crate) fn compile(&self, input: &Input) -> Result<Made, Failed> {
        let program = self.create(input)?;
        let flags: Vec<*const c_char> = input.flags.iter().map(|flag| flag.as_ptr()).collect();
        // SAFETY: the program was just made, and the flags end with zeros and outlive the call.
        let code = unsafe { (self.functions.compile)(program.handle, length(flags.len()), flags.as_ptr()) };
        if matches!(code, INVALID_OPTION | COMPILATION) {
            let log = program.text(("nvrtcGetProgramLog", self.functions.log_size, self.functions.log), MOST_LOG)?;
            return Ok(Err(log));
        }
        self.accept("nvrtcCompileProgram", code)?;
        let ptx = program.text(("nvrtcGetPTX", self.functions.ptx_size, self.functions.ptx), MOST_PTX)?;
        Ok(Ok(ptx))
    }

    fn create<'a>(&'a self, input: &'a Input) -> Result<Program<'a>, Failed> {
        let names: Vec<*const c_char> = input.headers.iter().map(|(name, _)| name.as_ptr()).collect();
        let texts: Vec<*const c_char> = input.headers.iter().map(|(_, text)| text.as_ptr()).collect();
        let mut handle = ptr::null_mut();
        // SAFETY: all texts end with zeros, there are as many as is said, and `Program` borrows them for as long as the handle is used.
        let code = unsafe {
            let (source, name) = (input.source.as_ptr(), input.name.as_ptr());
            let count = length(names.len());
            (self.functions.create)(&raw mut handle, source, name, count, texts.as_ptr(), names.as_ptr())
        };
        self.accept("nvrtcCreateProgram", code)?;
        Ok(Program {
            calls: self,
            _input: input,
            handle,
        })
    }

    fn accept(&self, call: &'static str, code: c_int) -> Result<(), Failed> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: it takes any number.
        let text = unsafe { (self.functions.words)(code) };
        let words = (!text.is_null()).then(|| {
            // SAFETY: what is not null is a text of its own that ends with a zero and stays.
            let text = unsafe { CStr::from_ptr(text) };
            text.to_string_lossy().into_owned()
        });
        let words = format!("{} ({code})", words.as_deref().unwrap_or("no words"));
        Err(Failed { call, words })
    }
}

/// A program of the compiler's, destroyed at its end.
struct Program<'a> {
    calls: &'a Calls,
    _input: &'a Input,
    handle: Handle,
}

/// What a text of a program is called, how long it is with its zero, and how it is had.
type Text = (
    &'static str,
    unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
);

impl Program<'_> {
    /// A text of it, without the zero at its end.
    fn text(&self, (call, size_of, content_of): Text, most: usize) -> Result<Vec<u8>, Failed> {
        let mut size = 0;
        // SAFETY: the program is alive, and the size is written to.
        let code = unsafe { size_of(self.handle, &raw mut size) };
        self.calls.accept(call, code)?;
        if size > most {
            return Err(too_much(call, size, most));
        }
        let mut text = vec![0_u8; size];
        // SAFETY: it writes as many bytes as it has just said.
        let code = unsafe { content_of(self.handle, text.as_mut_ptr().cast()) };
        self.calls.accept(call, code)?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(size);
        text.truncate(end);
        Ok(text)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made, and is not used any more. That it fails is of no consequence but memory.
        let _ = unsafe { (self.calls.functions.destroy)(&raw mut self.handle) };
    }
}

fn length(count: usize) -> c_int {
    c_int::try_from(count).expect("the number of headers and flags is bounded")
}

fn too_much(call: &'static str, found: usize, most: usize) -> Failed {
    let words = format!("{found}, where at most {most} are taken");
    Failed { call, words }
}
