//! A twin that finds nothing may only be blind: faults planted in the kernels, each of which must be found, in the way in which it shows.

use std::fmt;

use sardana_cuda::kernels::Module;
use sardana_twins::{CompileError, Twin};

use crate::twin::{Found, SEEDS, compiler, source};
use crate::{dense, halves, hashes, norms, pointwise, sums, tensors, updates};

/// How a fault shows.
#[derive(Clone, Copy, Debug)]
enum Shows {
    /// The kernel does not compile; the compiler names this.
    Refused(&'static str),
    /// A launch ends with a fault that says this, in whatever order.
    Fault(&'static str),
    /// The result has other bits than the reference.
    Bits,
}
use Shows::{Bits, Fault, Refused};

/// A fault: what it is, in which module, which text it replaces by which, and how it shows.
type Planted = (&'static str, Module, &'static str, &'static str, Shows);

const SUMS: &[Planted] = &[
    (
        "shards in another order",
        Module::Sums,
        "total + widened(((const Shard*)shards.at[shard])[i])",
        "total + widened(((const Shard*)shards.at[count - 1 - shard])[i])",
        Bits,
    ),
    (
        "whichever NaN comes",
        Module::Sums,
        "total = one_nan(total + widened(((const Shard*)shards.at[shard])[i]));",
        "total = total + widened(((const Shard*)shards.at[shard])[i]);",
        Bits,
    ),
    (
        "one lane of four twice",
        Module::Sums,
        "total.w + own.w",
        "total.w + own.z",
        Bits,
    ),
    (
        "numbers below normal flushed to zero",
        Module::Sums,
        "out[i] = total;",
        "out[i] = total * total == 0 ? total * 0 : total;",
        Bits,
    ),
    (
        "one element too many",
        Module::Sums,
        "i < length; i += stride()",
        "i <= length; i += stride()",
        Fault("outside of every buffer"),
    ),
    (
        "four elements that are not aligned",
        Module::Sums,
        "((const float4*)running)[i];",
        "*(const float4*)(running + 4 * i + 1);",
        Fault("not aligned"),
    ),
    (
        "a write to what is only read",
        Module::Sums,
        "Running total = running[i];",
        "Running total = running[i]; ((Running*)running)[i] = total + total;",
        Fault("only read"),
    ),
    (
        "an element that no thread takes",
        Module::Sums,
        "u64 i = from + first_element(); i < length",
        "u64 i = from + first_element(); i + 1 < length",
        Bits,
    ),
];

const ELEMENTS: &[Planted] = &[
    (
        "halves rounded away from zero in the middle",
        Module::Halves,
        "bits + 0x7fffu + odd",
        "bits + 0x8000u",
        Bits,
    ),
    ("halves cut off", Module::Halves, "+ 0xfffu + odd) >> 13", ") >> 13", Bits),
    (
        "small halves flushed to zero",
        Module::Halves,
        "? small : normal",
        "? 0 : normal",
        Bits,
    ),
    (
        "a shift by too many bits",
        Module::Halves,
        "u32 sign = (bits >> 16)",
        "u32 sign = (bits >> (32 + (bits & 1u)))",
        Fault("a shift by more bits"),
    ),
    (
        "a tensor that ends where the next begins",
        Module::Tensors,
        "tensors[middle].tiles_before <= tile",
        "tensors[middle].tiles_before < tile",
        Fault("outside of every buffer"),
    ),
    (
        "a tile that several blocks move",
        Module::Tensors,
        "u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x",
        "u64 tile = 0; tile < tiles; ++tile",
        Fault("a race between blocks"),
    ),
    (
        "a tile beyond a tensor's end",
        Module::Tensors,
        "left < TILE ? (u32)left : TILE",
        "TILE",
        Fault("outside of every buffer"),
    ),
    (
        "a product and a sum contracted",
        Module::Updates,
        "by.momentum * velocities[i] + decayed(sum[i], value, by)",
        "__fmaf_rn(by.momentum, velocities[i], decayed(sum[i], value, by))",
        Bits,
    ),
    (
        "a decay contracted",
        Module::Updates,
        "gradient + by.decay * value",
        "__fmaf_rn(by.decay, value, gradient)",
        Bits,
    ),
    (
        "a sum multiplied by what it is divided by",
        Module::Updates,
        "sum / by.divisor * by.factor;",
        "sum * (1.0f / by.divisor) * by.factor;",
        Bits,
    ),
    (
        "an approximate root",
        Module::Updates,
        "__fsqrt_rn(square)",
        "1.0f / rsqrtf(square)",
        Refused("rsqrtf"),
    ),
    (
        "an approximate power",
        Module::Updates,
        "by.epsilon;",
        "by.epsilon * __powf(by.step, 2.0f);",
        Refused("__powf"),
    ),
];

const BLOCKS: &[Planted] = &[
    (
        "a missing barrier",
        Module::Norms,
        "__syncthreads();\n        if (thread >= ADDERS)",
        "if (thread >= ADDERS)",
        Fault("shared memory"),
    ),
    (
        "a barrier that some threads do not reach",
        Module::Norms,
        "lanes[thread] = lane;\n    }\n    __syncthreads();",
        "lanes[thread] = lane;\n    __syncthreads(); }",
        Fault("a divergent barrier"),
    ),
    (
        "shared memory that is not set",
        Module::Norms,
        "    if (thread < LANES) {\n",
        "    if (thread < LANES && thread != 3) {\n",
        Fault("shared memory that is not set"),
    ),
    (
        "a lane beyond the last",
        Module::Norms,
        "u32 i = 1; i < LANES",
        "u32 i = 1; i <= LANES",
        Fault("beyond an array"),
    ),
    (
        "squares rounded to f32",
        Module::Norms,
        "room[i] = value * value;",
        "room[i] = (float)(value * value);",
        Bits,
    ),
    (
        "all blocks write one result",
        Module::Norms,
        "out[blockIdx.x] = one_nan(total);",
        "out[0] = one_nan(total);",
        Fault("a race between blocks"),
    ),
    (
        "a tile's elements of the one before",
        Module::Norms,
        "tensor.at + start",
        "tensor.at + (start ? start - 1 : 0)",
        Bits,
    ),
    (
        "levels of a tree of sums without a barrier between them",
        Module::Norms,
        "        __syncthreads();\n    }\n    if (threadIdx.x == 0) {\n        out[blockIdx.x] = one_nan(terms",
        "    }\n    if (threadIdx.x == 0) {\n        out[blockIdx.x] = one_nan(terms",
        Fault("a race within a block"),
    ),
    (
        "a neighbour beyond the last",
        Module::Norms,
        "i + apart < terms.length",
        "i < terms.length",
        Fault("outside of every buffer"),
    ),
    (
        "a row added from the first to the last",
        Module::Norms,
        "for (u64 apart = 1; apart < terms.length; apart *= 2) {",
        "for (u64 j = 1; threadIdx.x == 0 && j < terms.length; ++j) { terms.at[0] = terms.at[0] + terms.at[j]; }\n    for (u64 apart = 1; apart < 0; apart *= 2) {",
        Bits,
    ),
    (
        "a rotation by another number",
        Module::Hashes,
        "rotated(d ^ a, 16)",
        "rotated(d ^ a, 15)",
        Bits,
    ),
    (
        "a tree without a barrier between levels",
        Module::Hashes,
        "__syncthreads();\n        if (thread < above) {\n#pragma",
        "if (thread < above) {\n#pragma",
        Fault("a race within a block"),
    ),
    (
        "an atomic",
        Module::Hashes,
        "out[(u64)blockIdx.x * WORDS + thread] = nodes[thread][0];",
        "atomicExch(&out[(u64)blockIdx.x * WORDS + thread], nodes[thread][0]);",
        Refused("atomicExch"),
    ),
    (
        "a chunk's zeros left out",
        Module::Hashes,
        "if (at < length) {",
        "if (at <= length) {",
        Fault("outside of every buffer"),
    ),
    (
        "terms from the last to the first",
        Module::Dense,
        "float one = lefts[t]",
        "u32 u = end - 1 - t; float one = lefts[u]",
        Bits,
    ),
    (
        "products rounded by themselves",
        Module::Dense,
        "sums[r][c] = __fmaf_rn(one, rights[t][c * ACROSS + threadIdx.x], sums[r][c]);",
        "sums[r][c] = one * rights[t][c * ACROSS + threadIdx.x] + sums[r][c];",
        Bits,
    ),
    (
        "terms beyond the last",
        Module::Dense,
        " && term + own_term < terms;",
        ";",
        Fault("buffer"),
    ),
    (
        "tiles brought before the others are used",
        Module::Dense,
        "        }\n        __syncthreads();\n    }\n#pragma unroll",
        "        }\n    }\n#pragma unroll",
        Fault("a race within a block"),
    ),
    (
        "a sum by atomics",
        Module::Dense,
        "sum = sum + dy[(u64)n * outputs + o];",
        "atomicAdd(&db[o], dy[(u64)n * outputs + o]);",
        Refused("atomicAdd"),
    ),
];

const BETWEEN_LAYERS: &[Planted] = &[
    (
        "a rectifier that keeps the zero's sign",
        Module::Pointwise,
        "value <= 0.0f ? 0.0f : value",
        "value < 0.0f ? 0.0f : value",
        Bits,
    ),
    (
        "a gradient that passes at zero",
        Module::Pointwise,
        "rectified[i] > 0.0f ?",
        "rectified[i] >= 0.0f ?",
        Bits,
    ),
    (
        "a label of another row",
        Module::Pointwise,
        "labels[i / classes] ? 1.0f",
        "labels[i % rows] ? 1.0f",
        Bits,
    ),
    (
        "the last of equal scores",
        Module::Pointwise,
        "own[one] > own[largest]",
        "own[one] >= own[largest]",
        Bits,
    ),
    (
        "a class too many",
        Module::Pointwise,
        "one < classes; ++one",
        "one <= classes; ++one",
        Fault("outside of every buffer"),
    ),
];

impl fmt::Display for Shows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused(name) => write!(f, "a compiler that refuses `{name}`"),
            Fault(text) => write!(f, "a fault that says `{text}`"),
            Bits => f.write_str("other bits"),
        }
    }
}

fn check(module: Module, twin: &Twin, seed: u64) -> Result<(), Found> {
    match module {
        Module::Sums => sums::check(twin, seed),
        Module::Halves => halves::check(twin, seed),
        Module::Tensors => tensors::check(twin, seed),
        Module::Updates => updates::check(twin, seed),
        Module::Norms => norms::check(twin, seed),
        Module::Hashes => hashes::check(twin, seed),
        Module::Dense => dense::check(twin, seed),
        Module::Pointwise => pointwise::check(twin, seed),
    }
}

/// What shows of a fault. None if nothing does.
fn shown(&(_, module, from, to, _): &Planted) -> Option<Result<Found, String>> {
    let compiler = compiler().expect("it was asked for before");
    let twin = match compiler.compile(&source(module).replaced(from, to)) {
        Ok(twin) => twin,
        Err(CompileError::Refused { said, .. }) => return Some(Err(said)),
        Err(error @ (CompileError::Load(_) | CompileError::Io(_))) => panic!("{error}"),
    };
    (0..SEEDS).find_map(|seed| check(module, &twin, seed).err()).map(Ok)
}

fn all_are_found(planted: &[Planted]) {
    if compiler().is_none() {
        return println!("skipped: no C++ compiler that can make twins is found");
    }
    let missed: Vec<String> = planted.iter().filter_map(missed).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// What is to be said of a fault that is not found, or not in its way.
fn missed(planted: &Planted) -> Option<String> {
    let (what, .., expected) = planted;
    let found = match (shown(planted), expected) {
        (Some(Err(said)), Refused(name)) if said.contains("deleted") && said.contains(name) => return None,
        (Some(Ok(Found::Bits(_))), Bits) => return None,
        (Some(Ok(Found::Fault(fault))), Fault(text)) if fault.to_string().contains(text) => return None,
        (None, _) => "nothing".to_owned(),
        (Some(Err(said)), _) => said,
        (Some(Ok(found)), _) => found.to_string(),
    };
    Some(format!("{what}: expected {expected}, found {found}"))
}

#[test]
fn faults_in_sums_are_found() {
    all_are_found(SUMS);
}

#[test]
fn faults_in_what_is_done_element_by_element_are_found() {
    all_are_found(ELEMENTS);
}

#[test]
fn faults_in_what_a_block_does_together_are_found() {
    all_are_found(BLOCKS);
}

#[test]
fn faults_between_layers_are_found() {
    all_are_found(BETWEEN_LAYERS);
}
