//! The twin driver: a `libcuda.so` made by the machine's C++ compiler, which a program that calls CUDA's driver takes for that. Knows no such program.
//!
//! Streams do nothing before they must, or do it at once, in an order that a seed draws as far as streams and events allow. Memory of the device is
//! poisoned when it is given and when it is freed, is never given twice, and is closed to the host. Found are launches and copies that touch
//! memory that was not allocated, is not yet valid, or is freed; pinned memory freed too early; code unloaded before it has run; events that are never
//! recorded; PTX whose parameters are not those of the source. What was forgotten otherwise shows in the bits of a result, for some seeds.

#![expect(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    reason = "loading a library and calling what is in it cannot be checked by the compiler; a function is looked up and called at once"
)]

use std::ffi::{CStr, CString, OsString, c_char};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::Library;
use tempfile::TempDir;

use crate::compiler::{CompileError, Compiler, skips};
use crate::source::Source;

/// The driver's own sources.
const SOURCES: [(&str, &str); 9] = [
    ("state.h", include_str!("../host/driver/state.h")),
    ("state.cc", include_str!("../host/driver/state.cc")),
    ("kernels.h", include_str!("../host/driver/kernels.h")),
    ("kernels.cc", include_str!("../host/driver/kernels.cc")),
    ("process.h", include_str!("../host/driver/process.h")),
    ("process.cc", include_str!("../host/driver/process.cc")),
    ("api.cc", include_str!("../host/driver/api.cc")),
    ("steering.cc", include_str!("../host/driver/steering.cc")),
    ("unit.cc", include_str!("../host/driver/unit.cc")),
];

/// Its name within itself must be this one, so that a program that opens it by this name gets the one that is open already.
const NAME: &str = "libcuda.so";

/// A call of the driver that is carried out wrongly, as by a program that has the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Planted {
    /// A stream does not wait for an event of another stream.
    ForgetStreamWait = 1,
    /// The host does not wait for an event that has not come.
    ForgetHostWait = 2,
    /// A kernel is enqueued on another stream.
    LaunchElsewhere = 3,
    /// A copy from or to pinned memory is enqueued on another stream.
    CopyElsewhere = 4,
    /// Memory is freed at once, and not in the order of its stream.
    FreeEarly = 5,
    /// The device is gone.
    DeviceGone = 6,
    /// The process dies by SIGKILL in the middle of a copy between the host and the device.
    DieInCopy = 7,
    /// The process dies by SIGKILL in the middle of a launch.
    DieInLaunch = 8,
    /// A launch is refused, for want of registers.
    RefuseLaunch = 9,
    /// An event is recorded before the launch or the copy that was enqueued on its stream last.
    RecordEarly = 10,
    /// A copy from or to pinned memory begins four bytes too late at its source, and leaves the last four of its goal as they were.
    CopyBeside = 11,
    /// The program's own memory is not pinned, as where a system does not support that.
    RefuseRegister = 12,
}

/// What is counted since a session began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Count {
    /// Bytes copied from pinned memory to the device.
    Up = 0,
    /// Bytes copied from the device to pinned memory.
    Down = 1,
    /// Kernels enqueued.
    Launches = 2,
    /// Waits of a stream for an event of another.
    StreamWaits = 3,
    /// Waits of the host for an event that had not come.
    HostWaits = 4,
    /// Memory freed in the order of a stream.
    Frees = 5,
    /// Copies from and to pinned memory.
    Copies = 6,
    /// Calls on the device.
    Calls = 7,
    /// Events recorded.
    Records = 8,
    /// Memory of the host of which the driver was told that the device only reads it.
    ReadOnly = 9,
    /// Bytes of the host's memory of which the driver was told.
    Registered = 10,
}

/// What a program has not given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Left {
    /// Buffers in the device's memory.
    pub buffers: u64,
    /// Buffers in pinned memory.
    pub pinned: u64,
    /// Streams.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Modules of kernels.
    pub modules: u64,
    /// Contexts.
    pub contexts: u64,
}

/// A twin driver on the disk, for processes that a test starts. It is gone with this.
#[derive(Debug)]
pub struct DriverFiles {
    folder: TempDir,
    kernels: Vec<PathBuf>,
}

impl DriverFiles {
    /// The folder in which `libcuda.so` lies.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The kernels' files, in the order of the sources.
    #[must_use]
    pub fn kernels(&self) -> &[PathBuf] {
        &self.kernels
    }

    /// What a process finds in its environment that takes this for the machine's driver, with its kernels. What it does besides is said by more
    /// variables: see [`Compiler::driver`], and `host/driver/process.cc`.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let kernels: Vec<_> = self.kernels.iter().map(|path| path.as_os_str()).collect();
        vec![
            ("LD_LIBRARY_PATH".into(), self.folder().into()),
            ("TWIN_KERNELS".into(), kernels.join(":".as_ref())),
        ]
    }

    /// The variable by which one process alone, the first that comes so far, has the fault in the call of its kind that comes after `number` others;
    /// `mark` is a file that is not there yet.
    #[must_use]
    pub fn planted(what: Planted, number: u64, mark: &Path) -> [(OsString, OsString); 2] {
        let plant = format!("{}@{number}", what as u32);
        [("TWIN_PLANT".into(), plant.into()), ("TWIN_ONCE".into(), mark.into())]
    }
}

/// The twin driver, open in this process. There can be one, and it stays: see [`Compiler::driver`].
#[derive(Debug)]
pub struct Driver {
    library: Library,
    one_at_a_time: Mutex<()>,
    folder: TempDir,
}

/// A driver that is one test's until this is dropped.
#[derive(Debug)]
pub struct Session<'a> {
    library: &'a Library,
    _alone: MutexGuard<'a, ()>,
}

impl Compiler {
    /// Compiles a twin driver with these kernels, and opens it. A process that looks for `libcuda.so` from now on finds it; so does another whose
    /// `LD_LIBRARY_PATH` names [`Driver::folder`], without kernels. There, `TWIN_INIT` is the code that it starts with, `TWIN_DEVICES` how many
    /// devices there are, `TWIN_MEMORY` how many bytes of memory it says that each has, and `TWIN_VERSION` the version that it says it has, as a number.
    ///
    /// # Errors
    /// See [`CompileError`].
    pub fn driver(&self, kernels: &[Source]) -> Result<Driver, CompileError> {
        let DriverFiles { folder, kernels } = self.driver_files(kernels)?;
        // SAFETY: it was just made of a source that has no initialisers but those of its own empty tables.
        let library = unsafe { Library::new(folder.path().join(NAME)) }.map_err(CompileError::Load)?;
        let driver = Driver {
            library,
            one_at_a_time: Mutex::new(()),
            folder,
        };
        for file in kernels {
            driver.add(&file)?;
        }
        Ok(driver)
    }

    /// Compiles a twin driver with these kernels for other processes, and opens nothing.
    ///
    /// # Errors
    /// See [`CompileError`].
    pub fn driver_files(&self, kernels: &[Source]) -> Result<DriverFiles, CompileError> {
        let folder = tempfile::tempdir()?;
        let kernels = self.make_all(kernels, folder.path())?;
        let own = folder.path().join("driver");
        fs::create_dir(&own)?;
        fs::write(folder.path().join("twin.h"), include_str!("../host/twin.h"))?;
        for (name, text) in SOURCES {
            fs::write(own.join(name), text)?;
        }
        let arguments = ["-shared", "driver/unit.cc", "-Wl,-soname,libcuda.so", "-ldl", "-o", NAME];
        self.run(folder.path(), "the twin driver", &arguments)?;
        Ok(DriverFiles { folder, kernels })
    }

    /// Each source as a library, several at once, as compilers take a second each.
    fn make_all(&self, kernels: &[Source], folder: &Path) -> Result<Vec<PathBuf>, CompileError> {
        let make = |(number, source): (usize, &Source)| {
            let own = folder.join(number.to_string());
            fs::create_dir(&own)?;
            self.make(source, &own)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = kernels.iter().enumerate().map(|one| scope.spawn(move || make(one))).collect();
            let made = threads
                .into_iter()
                .map(|thread| thread.join().expect("making a library does not panic"));
            made.collect()
        })
    }
}

impl Driver {
    /// The one of a process, made once, with these kernels. Where there is no compiler it says each time that a test is skipped.
    ///
    /// # Panics
    /// When the kernels cannot be compiled.
    pub fn once(made: &OnceLock<Option<Self>>, kernels: impl FnOnce() -> Vec<Source>) -> Option<&Self> {
        let make = || Some(Compiler::find()?.driver(&kernels()).expect("the twin driver is made"));
        let driver = made.get_or_init(make).as_ref();
        if driver.is_none() {
            skips();
        }
        driver
    }

    /// The functions of CUDA's driver that it has, and no others: a program that calls another one finds it missing.
    #[must_use]
    pub fn functions() -> Vec<&'static str> {
        let lines = include_str!("../host/driver/api.cc").lines();
        let declared = lines.filter_map(|line| line.strip_prefix("API int ")?.split('(').next());
        declared.collect()
    }

    /// The folder in which `libcuda.so` lies.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Begins anew from a seed, once no other test has it: with nothing enqueued, nothing counted and nothing planted. A program has given
    /// back what it had of the last session.
    ///
    /// # Panics
    /// When it has not.
    pub fn begin(&self, seed: u64) -> Session<'_> {
        let alone = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let session = Session {
            library: &self.library,
            _alone: alone,
        };
        // A test that failed has given nothing back; the next one is not to fail as well.
        if session.fault().is_none() && !self.one_at_a_time.is_poisoned() {
            assert_eq!(session.left(), Left::default(), "all of the last session was given back");
        }
        // SAFETY: host/driver/steering.cc has this function with this type.
        unsafe { call::<unsafe extern "C" fn(u64)>(&self.library, b"twin_begin\0")(seed) };
        session
    }

    fn add(&self, file: &Path) -> Result<(), CompileError> {
        let path = CString::new(file.as_os_str().as_encoded_bytes()).map_err(io::Error::other)?;
        // SAFETY: as above; the path ends with a zero, and what is said is a constant or the loader's, until it says something else.
        let said = unsafe {
            let said = call::<unsafe extern "C" fn(*const c_char) -> *const c_char>(&self.library, b"twin_add_kernels\0")(
                path.as_ptr(),
            );
            text(said)
        };
        match said {
            None => Ok(()),
            Some(said) => Err(CompileError::Refused {
                what: file.display().to_string(),
                said,
            }),
        }
    }
}

impl Session<'_> {
    /// The call of this kind that comes after `number` others is carried out wrongly.
    pub fn plant(&self, what: Planted, number: u64) {
        // SAFETY: host/driver/steering.cc has this function with this type.
        unsafe { call::<unsafe extern "C" fn(u32, u64)>(self.library, b"twin_plant\0")(what as u32, number) };
    }

    /// The device has so many bytes of memory.
    pub fn room(&self, bytes: u64) {
        // SAFETY: as above.
        unsafe { call::<unsafe extern "C" fn(u64)>(self.library, b"twin_room\0")(bytes) };
    }

    /// How often, or how much, so far.
    #[must_use]
    pub fn count(&self, what: Count) -> u64 {
        // SAFETY: as above.
        unsafe { call::<unsafe extern "C" fn(u32) -> u64>(self.library, b"twin_counter\0")(what as u32) }
    }

    /// Whether another stream, or the host, has waited for the event that was recorded after so many others.
    #[must_use]
    pub fn is_awaited(&self, record: u64) -> bool {
        // SAFETY: as above.
        unsafe { call::<unsafe extern "C" fn(u64) -> bool>(self.library, b"twin_is_awaited\0")(record) }
    }

    /// Counts anew from 0.
    pub fn forget_counts(&self) {
        // SAFETY: as above.
        unsafe { call::<unsafe extern "C" fn()>(self.library, b"twin_forget_counts\0")() };
    }

    /// What was found to be wrong. From then on each call on the device says that it has failed.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        // SAFETY: as above; the text stays until the next session.
        unsafe { text(call::<unsafe extern "C" fn() -> *const c_char>(self.library, b"twin_fault\0")()) }
    }

    /// What has not been given back.
    #[must_use]
    pub fn left(&self) -> Left {
        let mut left = Left::default();
        // SAFETY: as above; it writes six numbers, which are what `Left` consists of.
        unsafe { call::<unsafe extern "C" fn(*mut Left)>(self.library, b"twin_left\0")(&raw mut left) };
        left
    }

    /// Requires that nothing was wrong, and that everything was given back.
    ///
    /// # Panics
    /// When that is not so.
    pub fn ends_well(&self) {
        assert_eq!(self.fault(), None);
        assert_eq!(self.left(), Left::default());
    }
}

/// # Safety
/// The library's function of this name has this type.
unsafe fn call<F: Copy>(library: &Library, name: &[u8]) -> F {
    // SAFETY: the caller's promise.
    let function = unsafe { library.get::<F>(name) };
    *function.expect("the driver has the functions that steer it")
}

/// # Safety
/// It is null, or a text that ends with a zero.
unsafe fn text(said: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    (!said.is_null()).then(|| unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned())
}
