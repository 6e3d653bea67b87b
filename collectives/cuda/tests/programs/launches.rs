//! Launches of programs that are loaded as PTX: what they give, and what is refused.

use sardana_cuda::device::{Device, DeviceError, DeviceTensor, Stream};
use sardana_cuda::program::{Launch, Origin, Program, ProgramError, Takes, Trusted};
use sardana_twins::{Count, Planted};

use super::numbers::Numbers;
use super::swish::{PTX, device, driver, enqueue_forward, gives_its_bits, line};

fn program(device: &Device) -> Program {
    Program::from_ptx(device, "swish", PTX).unwrap()
}

fn enqueued(launch: Launch<'_>, device: &Device) -> Result<(), ProgramError> {
    #[expect(unsafe_code, reason = "what kernels of this test do")]
    // SAFETY: each launch below that is not refused reads and writes what its tensors have.
    unsafe { Trusted::new(launch) }.enqueue(device.on(Stream::Compute))
}

#[test]
fn an_activation_of_a_users_gives_the_bits_of_its_reference_on_either_stream() {
    let Some(driver) = driver() else { return };
    for seed in 0..8 {
        let session = driver.begin(seed);
        let device = device();
        let program = program(&device);
        assert_eq!(program.origin(), &Origin::Given);
        let mut numbers = Numbers::new(seed);
        for (blocks, threads, length) in [(1, 1, 5), (2, 64, 300), (3, 33, 97), (1, 256, 0)] {
            let all = [(); 2].map(|()| numbers.near(length));
            for stream in [Stream::Compute, Stream::Copies] {
                gives_its_bits(&program, stream, line(blocks, threads), all.each_ref().map(Vec::as_slice));
            }
        }
        drop((program, device));
        session.ends_well();
    }
}

#[derive(Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
struct Line {
    slope: f32,
    offset: f32,
    at: u64,
}

#[test]
fn a_structure_and_small_numbers_come_as_they_are() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(1);
    let device = device();
    let kernel = program(&device).kernel("tell_more").unwrap();
    let mut out = DeviceTensor::<f64>::unset(&device, Stream::Compute, 6).unwrap();
    let by = Line {
        slope: 2.0,
        offset: 0.5,
        at: 3,
    };
    let launch = kernel.launch(line(1, 32)).write(out.view_mut()).structure(by);
    let launch = launch.value(-1_i8).value(200_u8).value(-300_i16).value(u16::MAX);
    enqueued(launch.value(true), &device).unwrap();
    assert_eq!(out.to_vec().unwrap(), [6.5, -1.0, 200.0, -300.0, 65_535.0, 1.0]);
    // One of another size.
    let launch = kernel.launch(line(1, 32)).write(out.view_mut()).structure([1_u64; 3]);
    let launch = launch.value(0_i8).value(0_u8).value(0_i16).value(0_u16).value(false);
    let words = enqueued(launch, &device).unwrap_err().to_string();
    assert!(
        words.contains("structure of 16 bytes") && words.contains("found (address, structure of 24 bytes, i8"),
        "{words}"
    );
    drop((out, kernel, device));
    session.ends_well();
}

#[test]
fn each_type_of_a_number_comes_as_it_is() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(1);
    let device = device();
    let kernel = program(&device).kernel("tell").unwrap();
    assert_eq!((kernel.name(), kernel.parameters()[1]), ("tell", Takes::Float(4)));
    let mut out = DeviceTensor::<f64>::unset(&device, Stream::Compute, 6).unwrap();
    let launch = kernel.launch(line(1, 32)).write(out.view_mut());
    let launch = launch.value(-1.5_f32).value(2.25_f64).value(-3_i32).value(u32::MAX);
    enqueued(launch.value(i64::MIN).value(1_u64 << 40), &device).unwrap();
    let expected = [
        -1.5,
        2.25,
        -3.0,
        f64::from(u32::MAX),
        -((1_u64 << 63) as f64),
        (1_u64 << 40) as f64,
    ];
    assert_eq!(out.to_vec().unwrap(), expected);
    drop((out, kernel, device));
    session.ends_well();
}

/// Makes a launch with an output, and with tensors of this device and of another one.
type Made<'b> = &'b dyn for<'a> Fn(Launch<'a>, &'a mut DeviceTensor<f32>, [&'a DeviceTensor<f32>; 2]) -> Launch<'a>;

#[test]
fn a_launch_that_does_not_fit_says_so_and_enqueues_nothing() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(2);
    let (device, other) = (device(), device());
    let kernel = program(&device).kernel("hard_swish").unwrap();
    let tensor = |device: &Device| DeviceTensor::from_slice(device, Stream::Compute, &[1.0_f32; 4]).unwrap();
    let (mut out, values, foreign) = (tensor(&device), tensor(&device), tensor(&other));
    let takes = "(address or integer of 8 bytes, address, address or integer of 8 bytes)";
    let mut refused = |make: Made<'_>, told: [&str; 2]| {
        let error = enqueued(make(kernel.launch(line(1, 4)), &mut out, [&values, &foreign]), &device).unwrap_err();
        assert!(matches!(error, ProgramError::Launch { .. }), "{error}");
        let words = error.to_string();
        assert!(words.starts_with(&format!("expected {}", told[0])), "{words}");
        assert!(
            words.contains(&format!("for the kernel hard_swish, found {}", told[1])),
            "{words}"
        );
    };
    refused(&|launch, _, _| launch, [takes, "no argument; correct the call"]);
    refused(
        &|launch, out, [values, _]| launch.write(out.view_mut()).read(values.view()),
        [takes, "(address, address); correct"],
    );
    refused(
        &|launch, out, [values, _]| launch.write(out.view_mut()).read(values.view()).value(4_u32),
        [takes, "(address, address, u32)"],
    );
    refused(
        &|launch, out, [values, _]| launch.write(out.view_mut()).read(values.view()).value(4.0_f64),
        [takes, "(address, address, f64)"],
    );
    refused(
        &|launch, out, [values, _]| launch.write(out.view_mut()).value(4_u64).read(values.view()),
        [takes, "(address, u64, address)"],
    );
    refused(
        &|launch, out, [values, _]| launch.write(out.view_mut()).read(values.view()).value(4_u64).value(4_u64),
        [takes, "(address, address, u64, u64)"],
    );
    refused(
        &|launch, out, [_, foreign]| launch.write(out.view_mut()).read(foreign.view()).value(4_u64),
        ["tensors of the device that it is on", "another's"],
    );
    refused(
        &|launch, out, [values, _]| launch.write(out.view_mut()).read(values.view()).value(4_u64).shared(49_153),
        ["at most 49152 bytes of shared memory", "49153"],
    );
    let launch = kernel
        .launch(line(1, 4))
        .write(out.view_mut())
        .read(values.view())
        .value(4_u64);
    let words = enqueued(launch, &other).unwrap_err().to_string();
    assert!(
        words.contains("a stream of that, for the kernel hard_swish, found another's"),
        "{words}"
    );
    assert_eq!(session.count(Count::Launches), 0);
    // The device is of use as before.
    enqueue_forward(&kernel, Stream::Compute, line(1, 4), (&mut out, &values));
    assert_eq!(out.to_vec().unwrap(), super::swish::forward(&[1.0; 4]));
    drop((out, values, foreign, kernel, device, other));
    session.ends_well();
}

#[test]
fn no_more_threads_are_launched_than_any_device_has() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(7);
    let device = device();
    let kernel = program(&device).kernel("hard_swish").unwrap();
    let tensor = || DeviceTensor::from_slice(&device, Stream::Compute, &[1.0_f32; 4]).unwrap();
    let (mut out, values) = (tensor(), tensor());
    for (blocks, threads, told) in [
        (0, 1, "blocks and threads"),
        (1, 0, "blocks and threads"),
        (1, 1_025, "at most 1024 threads"),
    ] {
        let launch = kernel.launch(line(blocks, threads)).write(out.view_mut()).read(values.view());
        let words = enqueued(launch.value(4_u64), &device).unwrap_err().to_string();
        assert!(
            words.starts_with(&format!("expected {told}")) && words.contains("found Geometry"),
            "{words}"
        );
    }
    assert_eq!(session.count(Count::Launches), 0);
    drop((out, values, kernel, device));
    session.ends_well();
}

#[test]
fn a_kernel_that_there_is_not_is_told_with_those_that_there_are() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(3);
    let device = device();
    let program = program(&device);
    assert_eq!(
        program.kernels().collect::<Vec<_>>(),
        ["hard_swish", "hard_swish_backward", "tell", "tell_more"]
    );
    let words = program.kernel("gelu").unwrap_err().to_string();
    assert!(
        words.starts_with(
            "expected one of the kernels of `swish`: hard_swish, hard_swish_backward, tell, tell_more, found `gelu`"
        ),
        "{words}"
    );
    drop((program, device));
    session.ends_well();
}

#[test]
fn what_is_no_ptx_is_refused_and_the_device_is_of_use() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(4);
    let device = device();
    let refused = |ptx: &str| Program::from_ptx(&device, "swish", ptx).unwrap_err().to_string();
    let long = "x".repeat((64 << 20) + 1);
    for (ptx, told) in [
        ("", "expected a kernel in `swish`, declared `__global__`, found none"),
        (
            &PTX.replace("ret", "\0"),
            "expected PTX without a zero byte, found one at byte ",
        ),
        (
            &PTX.replace(".u64 b", ".texref b"),
            "found a parameter of hard_swish_backward that is not known",
        ),
        (
            &PTX.replace(".version", ".revision"),
            "no words (200), which says `application ptx input, line 1; fatal: no .version`; compile them by",
        ),
        (&long, "expected PTX of at most 67108864 bytes, found 67108865"),
    ] {
        let words = refused(ptx);
        assert!(words.contains(told), "{words}");
    }
    // A kernel that its code lacks.
    let more = format!("{PTX}.visible .entry more() {{ ret; }}");
    let error = Program::from_ptx(&device, "swish", &more)
        .unwrap()
        .kernel("more")
        .unwrap_err();
    assert!(matches!(&error, ProgramError::Refused { code: 500, .. }), "{error}");
    gives_its_bits(&program(&device), Stream::Compute, line(1, 4), [&[1.0, 2.0], &[3.0, 4.0]]);
    drop(device);
    session.ends_well();
}

#[test]
fn code_stays_until_it_has_run_and_goes_with_the_last_that_knows_it() {
    let Some(driver) = driver() else { return };
    for seed in 0..32 {
        let session = driver.begin(seed);
        let device = device();
        let tensor = || DeviceTensor::from_slice(&device, Stream::Compute, &[2.0_f32; 9]).unwrap();
        let (mut out, values) = (tensor(), tensor());
        let program = program(&device);
        let kernel = program.clone().kernel("hard_swish").unwrap();
        drop(program);
        assert_eq!(session.left().modules, 1);
        enqueue_forward(&kernel, Stream::Compute, line(1, 4), (&mut out, &values));
        drop(kernel);
        assert_eq!((session.left().modules, session.fault()), (0, None));
        assert_eq!(out.to_vec().unwrap(), super::swish::forward(&[2.0; 9]));
        drop((out, values, device));
        session.ends_well();
    }
}

#[test]
fn a_launch_that_the_device_has_no_room_for_is_no_failure_of_the_device() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(5);
    let device = device();
    let kernel = program(&device).kernel("hard_swish").unwrap();
    let tensor = || DeviceTensor::from_slice(&device, Stream::Compute, &[1.0_f32]).unwrap();
    let (mut out, values) = (tensor(), tensor());
    session.plant(Planted::RefuseLaunch, 0);
    let launch = kernel
        .launch(line(1, 1))
        .write(out.view_mut())
        .read(values.view())
        .value(1_u64);
    let words = enqueued(launch, &device).unwrap_err().to_string();
    assert!(
        words.contains("for the kernel hard_swish, found CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
        "{words}"
    );
    enqueue_forward(&kernel, Stream::Compute, line(1, 1), (&mut out, &values));
    assert_eq!(out.to_vec().unwrap(), super::swish::forward(&[1.0]));
    drop((out, values, kernel, device));
    session.ends_well();
}

#[test]
fn a_device_that_is_gone_is_told_as_by_any_other_call() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(6);
    let device = device();
    let kernel = program(&device).kernel("hard_swish").unwrap();
    let tensor = || DeviceTensor::from_slice(&device, Stream::Compute, &[1.0_f32]).unwrap();
    let (mut out, values) = (tensor(), tensor());
    session.plant(Planted::DeviceGone, 0);
    let launch = kernel
        .launch(line(1, 1))
        .write(out.view_mut())
        .read(values.view())
        .value(1_u64);
    let error = enqueued(launch, &device).unwrap_err();
    assert!(
        matches!(error, ProgramError::Device(DeviceError::Failed { code: 700, .. })),
        "{error}"
    );
    let error = Program::from_ptx(&device, "swish", PTX).unwrap_err();
    assert!(
        matches!(error, ProgramError::Device(DeviceError::Failed { code: 700, .. })),
        "{error}"
    );
}

#[test]
fn a_device_that_is_gone_as_kernels_are_loaded_has_failed_and_not_refused_them() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(8);
    let device = device();
    session.plant(Planted::DeviceGone, 0);
    let error = Program::from_ptx(&device, "swish", PTX).unwrap_err();
    assert!(
        matches!(error, ProgramError::Device(DeviceError::Failed { code: 700, .. })),
        "{error}"
    );
    assert_eq!(
        ProgramError::from(device.synchronize().unwrap_err()),
        error,
        "each later call says it again"
    );
}
