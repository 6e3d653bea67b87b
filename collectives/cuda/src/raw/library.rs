//! Shared libraries that may or may not be there, and their functions, by name. Must not know what they are for.

use std::error::Error;
use std::ffi::{CStr, c_char, c_int};

use libloading::Library;

/// Functions of a library by their names, with their types as its interface has had them since its first version that has them.
macro_rules! functions {
    ($($field:ident = $name:literal($($argument:ty),*) -> $answer:ty;)*) => {
        /// The functions that are called.
        #[derive(Debug, Clone, Copy)]
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> $answer,)*
        }

        impl Functions {
            /// Looks all of them up. The error is the name of the first that is missing.
            fn of(library: &OpenLibrary) -> Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: the library's interface has these types.
                    $($field: unsafe { library.function($name) }.ok_or($name)?,)*
                })
            }
        }
    };
}

pub(super) use functions;

/// A library that stays open as long as the program runs, as those of CUDA must: they start threads of their own.
#[derive(Debug)]
pub(crate) struct OpenLibrary {
    /// The name that it was found by.
    pub(crate) name: String,
    library: std::mem::ManuallyDrop<Library>,
}

/// Opens the first of `names` that can be opened. The error is what the loader says of the first that is there and cannot be opened; if none is
/// there, of the first.
pub(crate) fn open(names: impl IntoIterator<Item = String>) -> Result<OpenLibrary, String> {
    let mut refused: Vec<String> = Vec::new();
    for name in names {
        // SAFETY: what runs when a library is opened is the vendor's, as in every program that uses it.
        match unsafe { Library::new(&name) } {
            Ok(library) => {
                let library = std::mem::ManuallyDrop::new(library);
                return Ok(OpenLibrary { name, library });
            }
            Err(error) => refused.push(error.source().map_or_else(|| error.to_string(), ToString::to_string)),
        }
    }
    let is_there = refused.iter().position(|words| !words.contains("No such file"));
    let told = refused.into_iter().nth(is_there.unwrap_or(0));
    Err(told.unwrap_or_else(|| "no name to look for".to_owned()))
}

/// The names of a library's file among which the bindings look for it on Unix, in their order. Bindings that are linked, as those of candle on GPUs are, know none.
pub(crate) fn names(stem: &str) -> impl Iterator<Item = String> {
    let versions = ["", ".13", ".12", ".11", ".10", ".9", ".1"];
    versions.into_iter().map(move |version| format!("lib{stem}.so{version}"))
}

/// The names of NCCL's library. The bindings know none that its packages have.
pub(crate) fn nccl_names() -> impl Iterator<Item = String> {
    names("nccl").chain(["libnccl.so.2".to_owned()])
}

impl OpenLibrary {
    /// Whether it has this function.
    pub(crate) fn has(&self, function: &str) -> bool {
        // SAFETY: it is only asked whether the function is there; nothing calls it by this type.
        unsafe { self.function::<unsafe extern "C" fn()>(function) }.is_some()
    }

    /// A function of it, if it is there.
    ///
    /// # Safety
    /// The library's function of this name has the type `F`, which is one of functions.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: the caller's promise; the library is never closed.
        unsafe { self.library.get::<F>(name.as_bytes()) }.ok().map(|found| *found)
    }

    /// Calls `int name(unsigned)`, as the driver's `cuInit`. None if it is not there.
    pub(crate) fn call_with_flags(&self, name: &str, flags: u32) -> Option<i32> {
        // SAFETY: the vendors' interfaces have this type for every function that this is called for.
        let function = unsafe { self.function::<unsafe extern "C" fn(u32) -> c_int>(name) }?;
        // SAFETY: it takes any number.
        Some(unsafe { function(flags) })
    }

    /// Calls `int name(int*)`, as the driver's `cuDeviceGetCount` or NCCL's `ncclGetVersion`: the code, and the number.
    pub(crate) fn call_for_number(&self, name: &str) -> Option<(i32, i32)> {
        // SAFETY: as above.
        let function = unsafe { self.function::<unsafe extern "C" fn(*mut c_int) -> c_int>(name) }?;
        let mut number = 0;
        // SAFETY: it writes one number.
        let code = unsafe { function(&raw mut number) };
        Some((code, number))
    }

    /// Calls `int name(int*, int*)`, as `nvrtcVersion`.
    pub(crate) fn call_for_two_numbers(&self, name: &str) -> Option<(i32, [i32; 2])> {
        // SAFETY: as above.
        let function = unsafe { self.function::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(name) }?;
        let [mut first, mut second] = [0; 2];
        // SAFETY: it writes two numbers.
        let code = unsafe { function(&raw mut first, &raw mut second) };
        Some((code, [first, second]))
    }

    /// Calls `int name(int*, int)`, as the driver's `cuDeviceGet`.
    pub(crate) fn call_for_one(&self, name: &str, of: i32) -> Option<(i32, i32)> {
        // SAFETY: as above.
        let function = unsafe { self.function::<unsafe extern "C" fn(*mut c_int, c_int) -> c_int>(name) }?;
        let mut number = 0;
        // SAFETY: it writes one number, and takes any.
        let code = unsafe { function(&raw mut number, of) };
        Some((code, number))
    }

    /// Calls `int name(int*, int, int)`, as the driver's `cuDeviceGetAttribute`.
    pub(crate) fn call_for_attribute(&self, name: &str, which: i32, of: i32) -> Option<(i32, i32)> {
        // SAFETY: as above.
        let function = unsafe { self.function::<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int>(name) }?;
        let mut number = 0;
        // SAFETY: it writes one number, and takes any.
        let code = unsafe { function(&raw mut number, which, of) };
        Some((code, number))
    }

    /// Calls `int name(int, int*)`, as `cublasGetProperty`.
    pub(crate) fn call_for_property(&self, name: &str, which: i32) -> Option<(i32, i32)> {
        // SAFETY: as above.
        let function = unsafe { self.function::<unsafe extern "C" fn(c_int, *mut c_int) -> c_int>(name) }?;
        let mut number = 0;
        // SAFETY: it writes one number, and takes any.
        let code = unsafe { function(which, &raw mut number) };
        Some((code, number))
    }

    /// Calls `size_t name(void)`, as `cudnnGetVersion`.
    pub(crate) fn call_for_size(&self, name: &str) -> Option<usize> {
        // SAFETY: as above.
        let function = unsafe { self.function::<unsafe extern "C" fn() -> usize>(name) }?;
        // SAFETY: it takes nothing.
        Some(unsafe { function() })
    }

    /// Calls `int name(int, const char**)`, as the driver's `cuGetErrorName`, and copies the text, which is the library's own and stays.
    pub(crate) fn call_for_text(&self, name: &str, of: i32) -> Option<String> {
        // SAFETY: as above.
        let function = unsafe { self.function::<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>(name) }?;
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: it writes an address, and takes any number.
        let code = unsafe { function(of, &raw mut text) };
        if code != 0 || text.is_null() {
            return None;
        }
        // SAFETY: where it succeeds the text is one that ends with a zero and stays while the library is open, which is always.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}
