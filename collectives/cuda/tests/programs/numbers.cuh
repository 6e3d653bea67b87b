// What the kernels beside this share.
#pragma once

typedef unsigned long long u64;

__device__ __forceinline__ u64 first_element() {
    return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ u64 stride() {
    return (u64)gridDim.x * blockDim.x;
}

// From 0 to 1, along a line between -3 and 3.
__device__ __forceinline__ float gate(float x) {
    float shifted = x + 3.0f;
    float above = shifted < 0.0f ? 0.0f : shifted;
    return (above > 6.0f ? 6.0f : above) / 6.0f;
}
