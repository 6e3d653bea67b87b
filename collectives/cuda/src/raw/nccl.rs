//! NCCL: its functions, and a communicator that no call of waits. Must not know which ranks there are, nor what is summed.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
#[cfg(target_pointer_width = "64")]
use std::mem::offset_of;
use std::ptr;

use cudarc::driver::CudaStream;

use super::library::{OpenLibrary, functions};

/// Bytes of an id.
pub(crate) const ID_BYTES: usize = 128;

/// Its codes for "done" and "not yet".
const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;

/// Its number of a sum.
const SUM: c_int = 0;

/// A communicator of its own, which only its functions look into.
type Handle = *mut c_void;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Id([u8; ID_BYTES]);

/// `ncclConfig_t` as version 2.18 has it. It tells its size, so that older and newer libraries take of it what they know, and their defaults for the rest.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster_size: c_int,
    least_blocks: c_int,
    most_blocks: c_int,
    network: *const c_char,
    share_on_split: c_int,
}

// As `nccl.h` has it since version 2.18, on all systems that NCCL is for: what it reads of it is what was written.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    size_of::<Config>() == 48
        && offset_of!(Config, blocking) == 16
        && offset_of!(Config, network) == 32
        && offset_of!(Config, share_on_split) == 40
);

impl Config {
    /// No call waits; all else is as NCCL has it by itself.
    const fn without_waiting() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: 21_800,
            blocking: 0,
            cluster_size: c_int::MIN,
            least_blocks: c_int::MIN,
            most_blocks: c_int::MIN,
            network: ptr::null(),
            share_on_split: c_int::MIN,
        }
    }
}

functions! {
    words = "ncclGetErrorString"(c_int) -> *const c_char;
    last_words = "ncclGetLastError"(Handle) -> *const c_char;
    id = "ncclGetUniqueId"(*mut Id) -> c_int;
    begin = "ncclCommInitRankConfig"(*mut Handle, c_int, Id, c_int, *mut Config) -> c_int;
    state = "ncclCommGetAsyncError"(Handle, *mut c_int) -> c_int;
    all_reduce = "ncclAllReduce"(*const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> c_int;
    finalize = "ncclCommFinalize"(Handle) -> c_int;
    destroy = "ncclCommDestroy"(Handle) -> c_int;
    abort = "ncclCommAbort"(Handle) -> c_int;
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The function.
    pub(crate) call: &'static str,
    /// NCCL's code.
    pub(crate) code: i32,
    /// What NCCL says of it.
    pub(crate) words: String,
}

/// Whether a communicator has come as far as was asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    NotYet,
}

/// A communicator, until it is destroyed or aborted. One call at a time: who has it sees to that.
#[derive(Debug)]
pub(crate) struct Comm(Handle);

// SAFETY: NCCL lets any thread call, one at a time.
unsafe impl Send for Comm {}

/// NCCL, open as long as the program runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calls(Functions);

impl Calls {
    /// Looks for the functions of an open library. The error is the name of the first that it lacks.
    pub(crate) fn of(library: &OpenLibrary) -> Result<Self, &'static str> {
        Functions::of(library).map(Self)
    }

    /// An id for one communicator, whose ranks meet at this process.
    pub(crate) fn id(&self) -> Result<[u8; ID_BYTES], Failed> {
        let mut id = Id([0; ID_BYTES]);
        // SAFETY: it is written to.
        let code = unsafe { (self.0.id)(&raw mut id) };
        self.accept(None, "ncclGetUniqueId", code)?;
        Ok(id.0)
    }

    /// A communicator that begins to look for its other ranks. The thread has the device's context.
    pub(crate) fn begin(&self, id: [u8; ID_BYTES], rank: c_int, ranks: c_int) -> Result<Comm, Failed> {
        let mut handle = ptr::null_mut();
        let mut config = Config::without_waiting();
        // SAFETY: both are written to, or read, before it returns.
        let code = unsafe { (self.0.begin)(&raw mut handle, ranks, Id(id), rank, &raw mut config) };
        let made = (!handle.is_null()).then_some(Comm(handle));
        match (self.accept(None, "ncclCommInitRankConfig", code), made) {
            (Ok(_), Some(comm)) => Ok(comm),
            (Ok(_), None) => Err(self.failed(None, "ncclCommInitRankConfig", code)),
            (Err(failed), made) => {
                made.map(|comm| self.abort(comm));
                Err(failed)
            }
        }
    }

    /// How far the last thing is that was asked for. It does not wait.
    pub(crate) fn progress(&self, comm: &Comm) -> Result<Progress, Failed> {
        let mut state = SUCCESS;
        // SAFETY: the communicator is alive, and the state is written to.
        let code = unsafe { (self.0.state)(comm.0, &raw mut state) };
        self.accept(Some(comm), "ncclCommGetAsyncError", code)?;
        self.accept(Some(comm), "the communicator", state)
    }

    /// Enqueues the sum over all ranks of so many elements, in place. `kind` is NCCL's number of their type.
    ///
    /// The caller has checked that they are there, in the memory of the stream's device.
    pub(crate) fn all_reduce(
        &self,
        comm: &Comm,
        stream: &CudaStream,
        (address, count, kind): (u64, usize, c_int),
    ) -> Result<Progress, Failed> {
        let place = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the communicator is alive. What NCCL reads and writes is a GPU's memory, which holds no values of Rust's.
        let code = unsafe { (self.0.all_reduce)(place, place, count, kind, SUM, comm.0, stream.cu_stream().cast()) };
        self.accept(Some(comm), "ncclAllReduce", code)
    }

    /// Begins to end it, with all ranks.
    pub(crate) fn finalize(&self, comm: &Comm) -> Result<Progress, Failed> {
        // SAFETY: it is alive.
        let code = unsafe { (self.0.finalize)(comm.0) };
        self.accept(Some(comm), "ncclCommFinalize", code)
    }

    /// Gives back what has been finalized.
    pub(crate) fn destroy(&self, comm: Comm) -> Result<(), Failed> {
        // SAFETY: it was alive, and is not used any more.
        let code = unsafe { (self.0.destroy)(comm.0) };
        self.accept(None, "ncclCommDestroy", code).map(|_| ())
    }

    /// Ends it at once: what is enqueued comes to an end, whatever it has written then.
    pub(crate) fn abort(&self, comm: Comm) -> Result<(), Failed> {
        // SAFETY: as above.
        let code = unsafe { (self.0.abort)(comm.0) };
        self.accept(None, "ncclCommAbort", code).map(|_| ())
    }

    fn accept(&self, comm: Option<&Comm>, call: &'static str, code: c_int) -> Result<Progress, Failed> {
        match code {
            SUCCESS => Ok(Progress::Done),
            IN_PROGRESS => Ok(Progress::NotYet),
            code => Err(self.failed(comm, call, code)),
        }
    }

    fn failed(&self, comm: Option<&Comm>, call: &'static str, code: c_int) -> Failed {
        // SAFETY: it gives null or a text of its own that ends with a zero; it is copied at once.
        let text =
            |text: *const c_char| unsafe { (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned()) };
        // SAFETY: it takes any number.
        let words = text(unsafe { (self.0.words)(code) });
        // SAFETY: the communicator is alive, or none.
        let more = text(unsafe { (self.0.last_words)(comm.map_or(ptr::null_mut(), |comm| comm.0)) });
        let all: Vec<String> = [words, more]
            .into_iter()
            .flatten()
            .filter(|words| !words.is_empty())
            .collect();
        let words = if all.is_empty() {
            "no words".to_owned()
        } else {
            all.join(": ")
        };
        Failed { call, code, words }
    }
}
