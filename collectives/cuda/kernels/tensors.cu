// Many tensors of one type into their places in a gradient's bytes, or out of them, in one launch.
#include "prelude.cuh"

// A tensor, its first byte in the gradient, its elements, and the tiles of all tensors before it in the table.
struct Tensor {
    void* values;
    u64 offset;
    u64 length;
    u64 tiles_before;
};

// Elements of one tile. No tile has elements of two tensors, so that a block looks its tensor up once.
#define TILE 1024

// What is there stays part of the result where `add` is not 0; otherwise the value is stored bit for bit.
template <class T, bool INTO_GRADIENT>
__device__ __forceinline__ void move(u8* gradient, const Tensor* tensors, u32 count, u64 tiles, u32 add) {
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        Tensor tensor = tensors[row_of(tensors, count, tile)];
        u64 start = (tile - tensor.tiles_before) * TILE;
        u64 left = tensor.length - start;
        u32 end = left < TILE ? (u32)left : TILE;
        T* own = (T*)tensor.values + start;
        T* place = (T*)(gradient + tensor.offset) + start;
        T* to = INTO_GRADIENT ? place : own;
        const T* from = INTO_GRADIENT ? own : place;
        for (u32 i = threadIdx.x; i < end; i += blockDim.x) {
            to[i] = add ? one_nan(to[i] + from[i]) : from[i];
        }
    }
}

extern "C" __global__ void pack_f32(u8* gradient, const Tensor* tensors, u32 count, u64 tiles, u32 add) {
    move<float, true>(gradient, tensors, count, tiles, add);
}

extern "C" __global__ void pack_f64(u8* gradient, const Tensor* tensors, u32 count, u64 tiles, u32 add) {
    move<double, true>(gradient, tensors, count, tiles, add);
}

extern "C" __global__ void unpack_f32(u8* gradient, const Tensor* tensors, u32 count, u64 tiles, u32 add) {
    move<float, false>(gradient, tensors, count, tiles, add);
}

extern "C" __global__ void unpack_f64(u8* gradient, const Tensor* tensors, u32 count, u64 tiles, u32 add) {
    move<double, false>(gradient, tensors, count, tiles, add);
}
