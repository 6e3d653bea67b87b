// What all kernels share: short names, one NaN, halves, and which elements a thread takes.
//
// A kernel gives the bits of its Rust reference (src/reference/), so it uses only what IEEE 754 fixes: additions, products, quotients and roots
// that are rounded to the nearest, one by one. A fused multiply-add is written as such, and never left to the compiler. There are no atomics, no
// transcendental functions, and no result depends on how many blocks or threads a launch has, unless the kernel says how many it needs.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Halves are bits until they are widened: the device's own types would bring roundings of their own.
struct bf16 {
    u16 bits;
};
struct f16 {
    u16 bits;
};

// A result that is not a number becomes the one NaN that Rust calls NAN. The device's own is another, and which payload an operation passes on
// differs between processors.
__device__ __forceinline__ float one_nan(float value) {
    return value == value ? value : __uint_as_float(0x7fc00000u);
}

__device__ __forceinline__ double one_nan(double value) {
    return value == value ? value : __longlong_as_double(0x7ff8000000000000ll);
}

// The first element of this thread, and how far it is to its next: any grid covers any number of elements.
__device__ __forceinline__ u64 first_element() {
    return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ u64 stride() {
    return (u64)gridDim.x * blockDim.x;
}

// The row of a table that has this tile: the last one that does not begin after it. A row without elements has no tile and is never the last.
template <class Row>
__device__ __forceinline__ u32 row_of(const Row* rows, u32 count, u64 tile) {
    u32 from = 0, to = count;
    while (to - from > 1) {
        u32 middle = from + (to - from) / 2;
        if (rows[middle].tiles_before <= tile) {
            from = middle;
        } else {
            to = middle;
        }
    }
    return from;
}

__device__ __forceinline__ float widened(float value) {
    return value;
}

__device__ __forceinline__ double widened(double value) {
    return value;
}

// A bf16 is the upper half of an f32.
__device__ __forceinline__ float widened(bf16 half) {
    return one_nan(__uint_as_float((u32)half.bits << 16));
}

// Normal numbers have another bias in f32. The fraction of a smaller one counts units of 2^-24, and the product with that is exact.
__device__ __forceinline__ float widened(f16 half) {
    u32 sign = (u32)(half.bits & 0x8000u) << 16;
    u32 magnitude = half.bits & 0x7fffu;
    float small = (float)magnitude * __uint_as_float(0x33800000u);
    u32 normal = (magnitude << 13) + (112u << 23);
    u32 special = (magnitude << 13) | 0x7f800000u;
    u32 bits = magnitude < 0x0400u ? __float_as_uint(small) : magnitude < 0x7c00u ? normal : special;
    return one_nan(__uint_as_float(bits | sign));
}
