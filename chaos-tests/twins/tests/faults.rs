//! What a twin finds, and that it finds nothing where there is nothing: small kernels, each with one fault or none.

use std::collections::BTreeSet;

use sardana_twins::{Compiler, Fault, Launch, Memory, Source, Twin};

const SEEDS: u64 = 64;

/// Most kernels here are about a block of as many threads.
const BLOCK: [u32; 3] = [64, 1, 1];

fn twin(body: &str) -> Option<Twin> {
    let Some(compiler) = Compiler::find() else {
        println!("skipped: no C++ compiler that can make twins is found");
        return None;
    };
    let text =
        format!("extern \"C\" __global__ void kernel(float* values, float* out) {{ unsigned t = threadIdx.x; {body} }}");
    Some(
        compiler
            .compile(&Source::new("kernel.cu", &text, &["kernel"]))
            .expect("the kernel compiles"),
    )
}

/// Launches it with 64 values in `values`, the numbers from 0 on, and one more in `out`, which are not set.
fn launched(twin: &Twin, grid: u32, seed: u64) -> Result<Vec<f32>, Fault> {
    let mut memory = Memory::new();
    let numbers: Vec<f32> = (0..64_u8).map(f32::from).collect();
    let (values, out) = (memory.constant(&numbers), memory.room::<f32>(65));
    let launch = Launch::new("kernel", [grid, 1, 1], BLOCK).seed(seed);
    twin.launch(&launch, &mut memory, &[values.into(), out.into()])?;
    Ok(memory.read(out, 64))
}

/// Whether all orders end with a fault that says this, or one of these between bars.
fn always(body: &str, grid: u32, says: &str) {
    let Some(twin) = twin(body) else { return };
    for seed in 0..SEEDS {
        let fault = launched(&twin, grid, seed).expect_err(says).to_string();
        assert!(
            says.split('|').any(|one| fault.contains(one)),
            "seed {seed}: expected `{says}`, found `{fault}`"
        );
    }
}

/// Whether all orders give these results.
fn never(body: &str, expected: impl Fn(u8) -> f32) {
    let Some(twin) = twin(body) else { return };
    let expected: Vec<f32> = (0..64).map(expected).collect();
    for seed in 0..SEEDS {
        assert_eq!(launched(&twin, 1, seed).expect("there is no fault"), expected, "seed {seed}");
    }
}

#[test]
fn threads_meet_at_barriers() {
    let turned = "__shared__ float room[64]; room[t] = values[t]; __syncthreads(); out[t] = room[63 - t];";
    never(turned, |t| f32::from(63 - t));
    let twice = "__shared__ float room[64]; room[t] = values[t]; for (int i = 0; i < 3; ++i) { __syncthreads();
        float next = room[(t + 1) % 64]; __syncthreads(); room[t] = next; } out[t] = room[t];";
    never(twice, |t| f32::from((t + 3) % 64));
}

#[test]
fn lanes_meet_at_shuffles() {
    let sum = "float sum = values[t]; for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by); out[t] = sum;";
    never(sum, |t| if t < 32 { 496.0 } else { 1_520.0 });
    let below = "out[t] = __shfl_down_sync(0xffffffffu, values[t], 1);";
    never(below, |t| f32::from(if t % 32 == 31 { t } else { t + 1 }));
    let first = "double wide = __shfl_sync(0xffffffffu, (double)values[t], 5); out[t] = (float)wide;";
    never(first, |t| if t < 32 { 5.0 } else { 37.0 });
}

#[test]
fn a_shuffle_without_all_its_lanes_is_found() {
    always(
        "if (t != 7) out[t] = __shfl_down_sync(0xffffffffu, values[t], 1);",
        1,
        "not all lanes arrive",
    );
    always(
        "if (t % 2) out[t] = __shfl_sync(0xaaaaaaaau, values[t], 4);",
        1,
        "reads lane 4, which does not take part",
    );
}

#[test]
fn barriers_that_are_not_for_all_are_found() {
    always(
        "if (t < 5) __syncthreads(); out[t] = 1;",
        1,
        "a divergent barrier: 5 threads wait",
    );
    always(
        "if (t < 5) __syncthreads();\n else\n __syncthreads();",
        1,
        "a divergent barrier: threads wait at different ones",
    );
}

#[test]
fn races_are_found_in_any_order() {
    let missing = "__shared__ float room[64]; room[t] = values[t]; out[t] = room[63 - t];";
    always(missing, 1, "a race within a block|that is not set");
    always("out[0] = values[t];", 1, "a race within a block: a second write in a buffer");
    always("out[t] = values[t];", 2, "a race between blocks: a second write in a buffer");
    always(
        "if (blockIdx.x == 0) out[t] = 1; else out[t] = out[63 - t];",
        2,
        "a race between blocks|that is not set",
    );
    let after = "out[t] = 0; __syncthreads(); float other = out[(t + 1) % 64]; out[t] = other;";
    always(after, 1, "a race within a block");
}

#[test]
fn what_is_not_set_is_found() {
    always("out[t] = out[t] + 1;", 1, "a buffer's element that is not set");
    always(
        "__shared__ float room[65]; room[t] = 0; __syncthreads(); out[t] = room[t + 1];",
        1,
        "shared memory that is not set",
    );
    // Not even what the block before has left.
    let kept =
        "__shared__ float room[64]; if (blockIdx.x == 0) room[t] = 1; __syncthreads(); if (blockIdx.x) out[t] = room[t];";
    always(kept, 2, "shared memory that is not set");
}

#[test]
fn accesses_that_are_not_allowed_are_found() {
    always("out[t] = values[t + 1];", 1, "a read outside of every buffer");
    always("out[t - 1] = 0;", 1, "outside of every buffer");
    always("values[t] = 0;", 1, "a write to a buffer that is only read");
    always("*(long long*)(out + 64) = 0;", 1, "an access beyond a buffer, by 4 bytes");
    always("out[t] = ((float4*)(values + 1))->x;", 1, "not aligned");
    always(
        "__shared__ float room[64]; float* all = room; all[t + 1] = 0; __syncthreads(); out[t] = all[t];",
        1,
        "a write outside of every buffer",
    );
    always("out[t] = (float)(1u << (t + 1));", 1, "a shift by more bits");
    always("out[t] = (float)(7 / (int)t);", 1, "a division by 0");
    always(
        "*(float*)(unsigned long long)(64 + 4 * t) = 0;",
        1,
        "a write outside of every buffer",
    );
}

#[test]
fn seeds_decide_the_order_and_nothing_else_does() {
    let Some(twin) = twin("out[0] = 0;") else { return };
    let report = |seed| launched(&twin, 8, seed).unwrap_err().to_string();
    let reports: BTreeSet<String> = (0..SEEDS).map(report).collect();
    assert!(reports.len() > 8, "blocks and threads come in other orders: {reports:?}");
    assert!((0..SEEDS).all(|seed| report(seed) == report(seed)));
    // A launch that failed leaves nothing behind.
    assert!(report(0).contains("block 0,0, thread 1,0"), "{}", report(0));
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(twin) = twin("out[t] = values[t];") else { return };
    let mut memory = Memory::new();
    let room = memory.room::<f32>(64);
    let unknown = twin
        .launch(&Launch::new("other", [1; 3], BLOCK), &mut memory, &[])
        .unwrap_err();
    assert!(matches!(unknown, Fault::NoKernel(name) if name == "other"));
    let wrong = twin
        .launch(
            &Launch::new("kernel", [1; 3], BLOCK),
            &mut memory,
            &[room.into(), 1_u32.into()],
        )
        .unwrap_err();
    let text = wrong.to_string();
    assert!(text.contains("takes parameters of [8, 8] bytes, found [8, 4]"), "{text}");
}

#[test]
fn what_depends_on_the_device_does_not_compile() {
    let Some(compiler) = Compiler::find() else {
        return println!("skipped: no C++ compiler that can make twins is found");
    };
    for used in [
        "atomicAdd(values, 1.0f)",
        "values[0] = __expf(values[0])",
        "values[0] = __fdividef(values[0], 3.0f)",
        "values[0] = tanhf(1.0f)",
    ] {
        let text = format!("extern \"C\" __global__ void kernel(float* values) {{ {used}; }}");
        let refused = compiler.compile(&Source::new("kernel.cu", &text, &["kernel"])).unwrap_err();
        assert!(refused.to_string().contains("deleted"), "{used}: {refused}");
    }
}
