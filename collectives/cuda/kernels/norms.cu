// Sums in f64 by a tree that depends on how many terms there are, and on nothing else; of squares, each tile of a tensor by itself, as a processor adds them: in
// eight lanes by place, and the lanes from the first to the last.
#include "prelude.cuh"

// A tensor's values, or its part of a finished sum; and the tiles of all tensors before it in the table.
struct Values {
    const float* at;
    u64 length;
    u64 tiles_before;
};

// What is added.
struct Terms {
    double* at;
    u64 length;
};

#define LANES 8
// Elements of one tile. No tile has elements of two tensors.
#define TILE 16384
// Elements that are squared at once.
#define ROOM 2048
// The threads that only add. The others bring what is added next.
#define ADDERS 32

// The squares of one room, as the place of each is in its lane.
__device__ __forceinline__ void bring(double* room, const float* values, u64 left, float divisor, u32 thread, u32 threads) {
    u32 end = left < ROOM ? (u32)left : ROOM;
    for (u32 i = thread; i < end; i += threads) {
        double value = (double)(values[i] / divisor);
        room[i] = value * value;
    }
}

// One block a tile, of more than ADDERS threads. A lane's sum is a chain of additions, which is what takes the time; so nothing else may.
extern "C" __global__ void squares(double* out, const Values* tensors, u32 count, float divisor) {
    __shared__ double rooms[2][ROOM];
    __shared__ double lanes[LANES];
    Values tensor = tensors[row_of(tensors, count, blockIdx.x)];
    u64 start = (blockIdx.x - tensor.tiles_before) * TILE;
    u64 left = tensor.length - start;
    u32 length = left < TILE ? (u32)left : TILE;
    const float* values = tensor.at + start;
    u32 thread = threadIdx.x;
    bring(rooms[0], values, length, divisor, thread, blockDim.x);
    double lane = 0.0;
    for (u32 at = 0, room = 0; at < length; at += ROOM, room ^= 1) {
        u32 next = at + ROOM;
        __syncthreads();
        if (thread >= ADDERS) {
            if (next < length) {
                bring(rooms[room ^ 1], values + next, length - next, divisor, thread - ADDERS, blockDim.x - ADDERS);
            }
        } else if (thread < LANES) {
            u32 end = length - at < ROOM ? length - at : ROOM;
            for (u32 i = thread; i < end; i += LANES) {
                lane = lane + rooms[room][i];
            }
        }
    }
    if (thread < LANES) {
        lanes[thread] = lane;
    }
    __syncthreads();
    if (thread == 0) {
        double total = lanes[0];
        for (u32 i = 1; i < LANES; ++i) {
            total = total + lanes[i];
        }
        out[blockIdx.x] = one_nan(total);
    }
}

// One block a row. Neighbours are added to each other, then neighbouring pairs, and so on; what has no neighbour waits for the next level. The terms are what it
// works in.
extern "C" __global__ void tree_sums(double* out, const Terms* rows) {
    Terms terms = rows[blockIdx.x];
    for (u64 apart = 1; apart < terms.length; apart *= 2) {
        u64 step = (u64)blockDim.x * 2 * apart;
        for (u64 i = (u64)threadIdx.x * 2 * apart; i + apart < terms.length; i += step) {
            terms.at[i] = terms.at[i] + terms.at[i + apart];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        out[blockIdx.x] = one_nan(terms.length > 0 ? terms.at[0] : 0.0);
    }
}
