//! The kernels of `swish.cu`: their source, their PTX without code, what they give, and the twin driver that has them.

use std::sync::OnceLock;

use sardana_cuda::device::{Device, DeviceTensor, Stream};
use sardana_cuda::geometry::Geometry;
use sardana_cuda::program::{LoadedKernel, Program, Trusted};
use sardana_twins::{Driver, Source};

pub(crate) const SOURCE: &str = include_str!("swish.cu");
pub(crate) const HEADER: (&str, &str) = ("numbers.cuh", include_str!("numbers.cuh"));

/// What a compiler declares of it; the twin driver has code of its own.
pub(crate) const PTX: &str = "
.version 8.7
.target sm_80
.address_size 64
.visible .entry hard_swish(.param .u64 a, .param .u64 .ptr .global .align 4 b, .param .u64 c) { ret; }
.visible .entry hard_swish_backward(.param .u64 a, .param .u64 b, .param .f32 c, .param .u64 d) { ret; }
.visible .entry tell(.param .u64 a, .param .f32 b, .param .f64 c, .param .u32 d, .param .u32 e, .param .u64 f, .param .u64 g) { ret; }
.visible .entry tell_more(.param .u64 a, .param .align 8 .b8 b[16], .param .s8 c, .param .u8 d, .param .s16 e, .param .u16 f, .param .u8 g) { ret; }
";

pub(crate) fn twin_source() -> Source {
    let kernels = ["hard_swish", "hard_swish_backward", "tell", "tell_more"];
    Source::new("swish.cu", SOURCE, &kernels).including(HEADER.0, HEADER.1)
}

/// The driver with these kernels; none, and a line that says so, where there is no compiler.
pub(crate) fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    Driver::once(&DRIVER, || vec![twin_source()])
}

pub(crate) const fn line(blocks: u32, threads: u32) -> Geometry {
    Geometry {
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
    }
}

/// What `hard_swish` gives.
pub(crate) fn forward(values: &[f32]) -> Vec<f32> {
    values.iter().map(|x| x * ((x + 3.0).clamp(0.0, 6.0) / 6.0)).collect()
}

/// What `hard_swish_backward` gives.
pub(crate) fn backward(gradients: &[f32], values: &[f32], factor: f32) -> Vec<f32> {
    let slope = |x: f32| match x {
        x if x < -3.0 => 0.0,
        x if x > 3.0 => 1.0,
        x => (2.0 * x + 3.0) / 6.0,
    };
    gradients.iter().zip(values).map(|(dy, x)| dy * slope(*x) * factor).collect()
}

/// Enqueues `hard_swish` of all values.
pub(crate) fn enqueue_forward(
    kernel: &LoadedKernel,
    stream: Stream,
    geometry: Geometry,
    (out, values): (&mut DeviceTensor<f32>, &DeviceTensor<f32>),
) {
    let length = values.len() as u64;
    assert_eq!(out.len(), values.len());
    let device = values.device();
    let launch = kernel
        .launch(geometry)
        .write(out.view_mut())
        .read(values.view())
        .value(length);
    #[expect(unsafe_code, reason = "what a kernel of this test does")]
    // SAFETY: it reads and writes so many elements, and both have them.
    unsafe { Trusted::new(launch) }.enqueue(device.on(stream)).unwrap();
}

/// Requires that the program's kernels give the bits of the references, on the stream.
pub(crate) fn gives_its_bits(program: &Program, stream: Stream, geometry: Geometry, all: [&[f32]; 2]) {
    let device = program.device();
    let [values, gradients] = all;
    let tensor = |values: &[f32]| DeviceTensor::from_slice(device, stream, values).unwrap();
    let (own, mut out, mut passed) = (tensor(values), tensor(gradients), tensor(gradients));
    enqueue_forward(&program.kernel("hard_swish").unwrap(), stream, geometry, (&mut out, &own));
    let kernel = program.kernel("hard_swish_backward").unwrap();
    let launch = kernel.launch(geometry).write(passed.view_mut()).read(own.view());
    let launch = launch.value(0.7_f32).value(values.len() as u64);
    #[expect(unsafe_code, reason = "what a kernel of this test does")]
    // SAFETY: as above.
    unsafe { Trusted::new(launch) }.enqueue(device.on(stream)).unwrap();
    same(&out, &forward(values));
    same(&passed, &backward(gradients, values, 0.7));
}

#[track_caller]
fn same(found: &DeviceTensor<f32>, expected: &[f32]) {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&found.to_vec().unwrap()), bits(expected));
}

/// The device of a session's twin driver.
pub(crate) fn device() -> Device {
    Device::open(0).unwrap()
}
