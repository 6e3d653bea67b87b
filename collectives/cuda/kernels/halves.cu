// f32 as halves and back. Rounding is to the nearest, and to an even one between two, by arithmetic on whole numbers and one addition.
#include "prelude.cuh"

// The upper half, one more where the lower is above the middle, or in the middle beside an odd number.
__device__ __forceinline__ bf16 narrowed(float value, bf16*) {
    u32 bits = __float_as_uint(value);
    u32 odd = (bits >> 16) & 1u;
    u32 rounded = (bits + 0x7fffu + odd) >> 16;
    bf16 half = {(u16)(value == value ? rounded : 0x7fc0u)};
    return half;
}

// Normal numbers lose 13 bits and change their bias. A smaller one is added to 0.5, whose last bit is worth as much as the smallest f16: that
// addition rounds it, and the fraction counts the units. From 65,520 on it is infinite.
__device__ __forceinline__ f16 narrowed(float value, f16*) {
    u32 bits = __float_as_uint(value);
    u32 sign = (bits >> 16) & 0x8000u;
    u32 magnitude = bits & 0x7fffffffu;
    u32 odd = (magnitude >> 13) & 1u;
    u32 normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
    u32 small = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
    u32 finite = magnitude < 0x38800000u ? small : normal;
    u32 rounded = magnitude < 0x477ff000u ? finite : 0x7c00u;
    f16 half = {(u16)(value == value ? rounded | sign : 0x7e00u)};
    return half;
}

template <class Half>
__device__ __forceinline__ void narrow(Half* out, const float* values, u64 length) {
    for (u64 i = first_element(); i < length; i += stride()) {
        out[i] = narrowed(values[i], (Half*)0);
    }
}

template <class Half>
__device__ __forceinline__ void widen(float* out, const Half* halves, u64 length) {
    for (u64 i = first_element(); i < length; i += stride()) {
        out[i] = widened(halves[i]);
    }
}

extern "C" __global__ void narrow_bf16(bf16* out, const float* values, u64 length) {
    narrow(out, values, length);
}

extern "C" __global__ void narrow_f16(f16* out, const float* values, u64 length) {
    narrow(out, values, length);
}

extern "C" __global__ void widen_bf16(float* out, const bf16* halves, u64 length) {
    widen(out, halves, length);
}

extern "C" __global__ void widen_f16(float* out, const f16* halves, u64 length) {
    widen(out, halves, length);
}
