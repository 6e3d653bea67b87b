// A running sum with shards added to it, in their order. An addition is rounded once, and what is not a number becomes the one NaN.
#include "prelude.cuh"

// Where the shards of one launch lie, in their order. As many as there are places here, and the others in another launch: the running sum
// rounds after each shard, so that it does not matter where the shards are cut.
#define MAX_SHARDS 32
struct Shards {
    const void* at[MAX_SHARDS];
};

// Elements from `from` on. `out` may be `running`. Without shards it is a copy, bit for bit.
template <class Running, class Shard>
__device__ __forceinline__ void sum(Running* out, const Running* running, const Shards& shards, u32 count, u64 from, u64 length) {
    for (u64 i = from + first_element(); i < length; i += stride()) {
        Running total = running[i];
        for (u32 shard = 0; shard < count; ++shard) {
            total = one_nan(total + widened(((const Shard*)shards.at[shard])[i]));
        }
        out[i] = total;
    }
}

extern "C" __global__ void sum_f32(float* out, const float* running, const __grid_constant__ Shards shards, u32 count, u64 length) {
    sum<float, float>(out, running, shards, count, 0, length);
}

// The same bits as sum_f32, by accesses of 16 bytes. All addresses are multiples of 16.
extern "C" __global__ void sum_f32x4(float* out, const float* running, const __grid_constant__ Shards shards, u32 count, u64 length) {
    u64 quads = length / 4;
    for (u64 i = first_element(); i < quads; i += stride()) {
        float4 total = ((const float4*)running)[i];
        for (u32 shard = 0; shard < count; ++shard) {
            float4 own = ((const float4*)shards.at[shard])[i];
            total.x = one_nan(total.x + own.x);
            total.y = one_nan(total.y + own.y);
            total.z = one_nan(total.z + own.z);
            total.w = one_nan(total.w + own.w);
        }
        ((float4*)out)[i] = total;
    }
    sum<float, float>(out, running, shards, count, quads * 4, length);
}

extern "C" __global__ void sum_f64(double* out, const double* running, const __grid_constant__ Shards shards, u32 count, u64 length) {
    sum<double, double>(out, running, shards, count, 0, length);
}

// Halves are added as f32 and not rounded to halves: that is narrow_bf16's, once, at the end.
extern "C" __global__ void sum_bf16(float* out, const float* running, const __grid_constant__ Shards shards, u32 count, u64 length) {
    sum<float, bf16>(out, running, shards, count, 0, length);
}

extern "C" __global__ void sum_f16(float* out, const float* running, const __grid_constant__ Shards shards, u32 count, u64 length) {
    sum<float, f16>(out, running, shards, count, 0, length);
}
