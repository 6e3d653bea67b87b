//! Tensors of another library's, by DLPack: a library of this test's, which counts what it is given back, and uses the memory otherwise at once.

#![expect(unsafe_code, reason = "what another library does")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sardana_collectives::gradient::{GradientBuffer, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_cuda::device::{Device, DeviceTensor, DlPack, DlPackError, RawMemory, Stream};
use sardana_cuda::gradient::WriteOnDevice;
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_twins::{Planted, Session};

use super::gradients::shards::read;
use super::twin::driver;

/// `DLTensor`, as its header has it.
#[repr(C)]
struct Tensor {
    data: u64,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut Lender,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

#[repr(C)]
struct Unversioned {
    tensor: Tensor,
    context: *mut Lender,
    deleter: Option<unsafe extern "C" fn(*mut Unversioned)>,
}

/// What a lent tensor needs until it is given back.
struct Lender {
    values: Option<DeviceTensor<f32>>,
    shape: Vec<i64>,
    given_back: Arc<AtomicUsize>,
}

unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    // SAFETY: it was boxed below, and is given back once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: the same of what it is lent with.
    unsafe { give_back(managed.context) };
}

unsafe extern "C" fn delete_unversioned(managed: *mut Unversioned) {
    // SAFETY: as above.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: as above.
    unsafe { give_back(managed.context) };
}

/// # Safety
/// It was boxed below, and comes once.
unsafe fn give_back(lender: *mut Lender) {
    // SAFETY: the caller's promise.
    let mut lender = unsafe { Box::from_raw(lender) };
    lender.given_back.fetch_add(1, Ordering::Relaxed);
    drop(lender.values.take());
}

/// A library with tensors to lend.
struct Library {
    device: Device,
    given_back: Arc<AtomicUsize>,
}

impl Library {
    fn new(device: &Device) -> Self {
        let given_back = Arc::default();
        let device = device.clone();
        Self { device, given_back }
    }

    fn count(&self) -> usize {
        self.given_back.load(Ordering::Relaxed)
    }

    fn tensor(&self, values: &[f32]) -> (Tensor, *mut Lender) {
        let values = DeviceTensor::from_slice(&self.device, Stream::Compute, values).unwrap();
        let mut lender = Box::new(Lender {
            shape: vec![values.len() as i64],
            values: Some(values),
            given_back: self.given_back.clone(),
        });
        let tensor = Tensor {
            data: lender.values.as_ref().unwrap().view().address(),
            device_type: 2,
            device_id: 0,
            ndim: 1,
            code: 2,
            bits: 32,
            lanes: 1,
            shape: lender.shape.as_mut_ptr(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        (tensor, Box::into_raw(lender))
    }

    /// A tensor in version 1, changed.
    fn versioned(&self, values: &[f32], change: impl FnOnce(&mut Versioned)) -> DlPack {
        let (tensor, context) = self.tensor(values);
        let mut managed = Box::new(Versioned {
            major: 1,
            minor: 1,
            context,
            deleter: Some(delete_versioned),
            flags: 0,
            tensor,
        });
        change(&mut managed);
        // SAFETY: its elements are valid on the compute stream, where they were copied to, and any thread may give it back.
        unsafe { DlPack::versioned(Box::into_raw(managed).cast()) }
    }

    fn unversioned(&self, values: &[f32]) -> DlPack {
        let (tensor, context) = self.tensor(values);
        let deleter = Some(delete_unversioned as unsafe extern "C" fn(*mut Unversioned));
        let managed = Box::new(Unversioned {
            tensor,
            context,
            deleter,
        });
        // SAFETY: as above.
        unsafe { DlPack::unversioned(Box::into_raw(managed).cast()) }
    }
}

fn each(check: impl Fn(&Device, &Library, &Session<'_>)) {
    let Some(driver) = driver() else { return };
    for seed in 0..32 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let library = Library::new(&device);
        check(&device, &library, &session);
        drop((library, device));
        session.ends_well();
    }
}

#[test]
fn a_tensor_of_either_version_is_used_where_it_lies_and_given_back_once() {
    each(|device, library, _| {
        let values = [1.0, 2.0, 3.0, 4.0];
        let both = [library.versioned(&values, |_| {}), library.unversioned(&values)];
        assert_eq!(both[0].shape(), Some(&[4_i64][..]));
        let held = device.memory().held;
        for (number, lent) in both.into_iter().enumerate() {
            let mut own = DeviceTensor::<f32>::from_dlpack(device, Stream::Compute, lent).unwrap();
            assert_eq!(
                (own.len(), device.memory().held),
                (4, held - 16 * number as u64),
                "it is not counted"
            );
            let shard = DeviceTensor::from_slice(device, Stream::Compute, &[10.0_f32; 4]).unwrap();
            device.on(Stream::Compute).add(&mut own.view_mut(), &[shard.view()]).unwrap();
            assert_eq!(own.to_vec().unwrap(), [11.0, 12.0, 13.0, 14.0]);
            assert_eq!(library.count(), number);
            drop(own);
            assert_eq!(library.count(), number + 1);
        }
    });
}

#[test]
fn it_is_given_back_only_behind_what_was_enqueued_with_it_on_any_stream() {
    each(|device, library, session| {
        for (stream, other) in [
            (Stream::Compute, Stream::Copies),
            (Stream::Copies, Stream::Compute),
            (Stream::Uploads, Stream::Compute),
        ] {
            let before = library.count();
            let lent = library.versioned(&[1.0; 64], |_| {});
            let own = DeviceTensor::<f32>::from_dlpack(device, Stream::Compute, lent).unwrap();
            let mut sum = DeviceTensor::from_slice(device, stream, &[0.5_f32; 64]).unwrap();
            device.wait_for(stream, other).unwrap();
            device.on(stream).add(&mut sum.view_mut(), &[own.view()]).unwrap();
            // A library that frees at once what it is given back.
            session.plant(Planted::FreeEarly, 0);
            drop(own);
            assert_eq!(library.count(), before + 1);
            assert_eq!(session.fault(), None);
            assert_eq!(sum.to_vec().unwrap(), [1.5; 64]);
        }
    });
}

#[test]
fn a_gradient_is_written_from_where_another_library_has_it() {
    let specs = ["lent", "raw"].map(|name| TensorSpec::new(name, Dtype::F32, &[70]));
    let layout = Layout::new(specs.into(), 0).unwrap();
    let [lent, raw] = [0.25, -3.0].map(|scale| (0..70).map(|at| scale * at as f32).collect::<Vec<_>>());
    each(|device, library, _| {
        let owner = DeviceTensor::from_slice(device, Stream::Compute, &raw).unwrap();
        // SAFETY: the owner has as many elements, valid on the compute stream, and outlives this.
        let theirs = unsafe { RawMemory::<f32>::new(owner.view().address(), raw.len()) };
        let tensors = [
            DeviceTensor::from_dlpack(device, Stream::Compute, library.versioned(&lent, |_| {})).unwrap(),
            DeviceTensor::from_raw(device, Stream::Compute, theirs),
        ];
        for mode in [WriteMode::Store, WriteMode::Add] {
            let mut buffer = GradientBuffer::zeros(&layout);
            for shard in 0..2 {
                let mut writer = buffer.writer(&layout, if shard == 0 { WriteMode::Store } else { mode });
                for (tensor, values) in tensors.iter().enumerate() {
                    writer.write_device(tensor, &values.view()).unwrap();
                }
                writer.samples(1).unwrap();
                writer.finish().unwrap();
            }
            let found = read(&buffer.complete(), &layout).unwrap();
            buffer.clear();
            let times = if mode == WriteMode::Add { 2.0 } else { 1.0 };
            for (tensor, values) in [&lent, &raw].into_iter().enumerate() {
                let expected: Vec<u8> = values.iter().flat_map(|value| (times * value).to_le_bytes()).collect();
                assert!(found[layout.tensor_bytes(tensor).unwrap()] == expected, "{mode:?} {tensor}");
            }
        }
        assert_eq!(library.count(), 0);
        drop(tensors);
        assert_eq!(library.count(), 1);
    });
}

#[test]
fn another_thread_may_give_it_back() {
    each(|device, library, _| {
        let lent = library.versioned(&[1.0], |_| {});
        let own = DeviceTensor::<f32>::from_dlpack(device, Stream::Copies, lent).unwrap();
        std::thread::spawn(move || drop(own)).join().unwrap();
        assert_eq!(library.count(), 1);
    });
}

#[test]
fn part_of_a_tensor_begins_where_its_offset_says() {
    each(|device, library, _| {
        let lent = library.versioned(&[1.0, 2.0, 3.0, 4.0], |managed| {
            managed.tensor.byte_offset = 8;
            // SAFETY: the lender has one number there, and it was just made.
            unsafe { *managed.tensor.shape = 2 };
        });
        let own = DeviceTensor::<f32>::from_dlpack(device, Stream::Compute, lent).unwrap();
        assert_eq!(own.to_vec().unwrap(), [3.0, 4.0]);
    });
}

#[test]
fn what_is_not_taken_is_given_back_once_as_well() {
    each(|device, library, _| {
        let refused = |change: fn(&mut Versioned)| {
            let before = library.count();
            let error =
                DeviceTensor::<f32>::from_dlpack(device, Stream::Compute, library.versioned(&[1.0], change)).unwrap_err();
            assert_eq!(library.count(), before + 1, "{error}");
            error
        };
        assert_eq!(refused(|managed| managed.major = 2), DlPackError::Version(2, 1));
        assert_eq!(refused(|managed| managed.major = 0), DlPackError::Version(0, 1));
        assert_eq!(refused(|managed| managed.flags = 1), DlPackError::ReadOnly);
        let on_host = refused(|managed| managed.tensor.device_type = 1);
        assert!(
            on_host.to_string().contains("found one on a device of kind 1 and number 0"),
            "{on_host}"
        );
        assert!(matches!(
            refused(|managed| managed.tensor.device_id = 1),
            DlPackError::Device { .. }
        ));
        assert!(matches!(
            refused(|managed| managed.tensor.bits = 64),
            DlPackError::Dtype { .. }
        ));
        assert!(matches!(
            refused(|managed| managed.tensor.ndim = 65),
            DlPackError::Shape { .. }
        ));
        assert!(matches!(
            refused(|managed| managed.tensor.ndim = -1),
            DlPackError::Shape { .. }
        ));
        assert!(matches!(
            refused(|managed| managed.tensor.shape = ptr::null_mut()),
            DlPackError::Shape { .. }
        ));
        assert!(matches!(
            refused(|managed| managed.tensor.byte_offset = 2),
            DlPackError::Address { .. }
        ));
        // One that was not asked for.
        let before = library.count();
        drop(library.unversioned(&[1.0]));
        assert_eq!(library.count(), before + 1);
        // SAFETY: null is allowed.
        let versioned = unsafe { DlPack::versioned(ptr::null_mut::<c_void>()) };
        // SAFETY: the same.
        let unversioned = unsafe { DlPack::unversioned(ptr::null_mut()) };
        for nothing in [versioned, unversioned] {
            assert_eq!(nothing.shape(), None);
            let error = DeviceTensor::<f32>::from_dlpack(device, Stream::Compute, nothing).unwrap_err();
            assert_eq!(error, DlPackError::Null);
        }
    });
}

#[test]
fn a_library_that_wants_nothing_back_is_not_called() {
    each(|device, library, _| {
        let mut managed = None;
        let lent = library.versioned(&[1.0], |own| {
            own.deleter = None;
            managed = Some(ptr::from_mut(own));
        });
        drop(DeviceTensor::<f32>::from_dlpack(device, Stream::Compute, lent).unwrap());
        assert_eq!(library.count(), 0);
        // SAFETY: it was not freed, and is not used any more.
        unsafe { delete_versioned(managed.unwrap()) };
        assert_ne!(device.handle(Stream::Compute), device.handle(Stream::Copies));
    });
}
