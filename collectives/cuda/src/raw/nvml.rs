//! NVML, NVIDIA's library for management: its functions that name GPUs, and the instances of those that are divided. It starts no GPU. Must not know what the
//! names are for.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;

use super::library::{self, OpenLibrary, functions};

/// Bytes of the longest name, with the zero behind it.
const NAME_BYTES: usize = 96;

const SUCCESS: c_int = 0;

/// Its number of a mode that is on.
const ENABLED: c_uint = 1;

/// What only its functions look into.
type RawHandle = *mut c_void;

functions! {
    begin = "nvmlInit_v2"() -> c_int;
    end = "nvmlShutdown"() -> c_int;
    count = "nvmlDeviceGetCount_v2"(*mut c_uint) -> c_int;
    gpu = "nvmlDeviceGetHandleByIndex_v2"(c_uint, *mut RawHandle) -> c_int;
    name = "nvmlDeviceGetUUID"(RawHandle, *mut c_char, c_uint) -> c_int;
    mode = "nvmlDeviceGetMigMode"(RawHandle, *mut c_uint, *mut c_uint) -> c_int;
    most = "nvmlDeviceGetMaxMigDeviceCount"(RawHandle, *mut c_uint) -> c_int;
    instance = "nvmlDeviceGetMigDeviceHandleByIndex"(RawHandle, c_uint, *mut RawHandle) -> c_int;
}

/// NVML, from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Session(Functions);

/// A GPU, or an instance of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handle<'a>(RawHandle, PhantomData<&'a Session>);

impl Session {
    /// None where there is no NVML, or an older one without these functions, or it does not begin.
    pub(crate) fn begin() -> Option<Self> {
        // Containers have the first name alone.
        let library = library::open(["libnvidia-ml.so.1", "libnvidia-ml.so"].map(str::to_owned)).ok()?;
        Self::of(&library)
    }

    fn of(library: &OpenLibrary) -> Option<Self> {
        let functions = Functions::of(library).ok()?;
        // SAFETY: it takes nothing, and may be called as often as its end is.
        let code = unsafe { (functions.begin)() };
        // Not `then_some`, which would end what has not begun.
        (code == SUCCESS).then(|| Self(functions))
    }

    /// The GPUs that this process may see.
    pub(crate) fn gpus(&self) -> Vec<Handle<'_>> {
        let mut count = 0;
        // SAFETY: one number is written; the session has begun.
        let code = unsafe { (self.0.count)(&raw mut count) };
        let count = if code == SUCCESS { count } else { 0 };
        // Others are counted as well, and refused here.
        let gpu = |number| {
            let mut handle = ptr::null_mut();
            // SAFETY: one handle is written; the session has begun.
            let code = unsafe { (self.0.gpu)(number, &raw mut handle) };
            (code == SUCCESS).then_some(Handle(handle, PhantomData))
        };
        (0..count).filter_map(gpu).collect()
    }

    /// Its name, as in `GPU-…` or `MIG-…`. None where the GPU does not answer.
    pub(crate) fn name(&self, of: Handle<'_>) -> Option<String> {
        let mut name = [0_u8; NAME_BYTES];
        // SAFETY: the handle is of a session that has begun; at most as many bytes are written as there are, which it is told.
        let code = unsafe { (self.0.name)(of.0, name.as_mut_ptr().cast(), NAME_BYTES as c_uint) };
        let name = CStr::from_bytes_until_nul(&name).ok()?.to_str().ok()?;
        (code == SUCCESS && !name.is_empty()).then(|| name.to_owned())
    }

    /// Whether it is divided, though there may be no instance yet. Those that cannot be refuse to say.
    pub(crate) fn is_divided(&self, gpu: Handle<'_>) -> bool {
        let [mut now, mut later] = [0; 2];
        // SAFETY: the handle is of a session that has begun; two numbers are written.
        let code = unsafe { (self.0.mode)(gpu.0, &raw mut now, &raw mut later) };
        code == SUCCESS && now == ENABLED
    }

    /// Its instances that this process may see.
    pub(crate) fn instances<'a>(&'a self, gpu: Handle<'a>) -> Vec<Handle<'a>> {
        let mut most = 0;
        // SAFETY: the handle is of a session that has begun; one number is written.
        let code = unsafe { (self.0.most)(gpu.0, &raw mut most) };
        let most = if code == SUCCESS { most } else { 0 };
        // There are gaps between the numbers of those that there are.
        let instance = |number| {
            let mut handle = ptr::null_mut();
            // SAFETY: as above; one handle is written.
            let code = unsafe { (self.0.instance)(gpu.0, number, &raw mut handle) };
            (code == SUCCESS).then_some(Handle(handle, PhantomData))
        };
        (0..most).filter_map(instance).collect()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: it has begun, and no handle of it is left.
        unsafe { (self.0.end)() };
    }
}
