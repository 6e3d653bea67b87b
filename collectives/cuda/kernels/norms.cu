// Sums of squares, in f64, in the order in which a processor adds them: in eight lanes by place, and the lanes from the first to the last.
#include "prelude.cuh"

// A tensor's values, or its part of a finished sum.
struct Values {
    const float* at;
    u64 length;
};

#define LANES 8
// Elements that are squared at once.
#define ROOM 2048
// The threads that only add. The others bring what is added next.
#define ADDERS 32

// The squares of one room, as the place of each is in its lane.
__device__ __forceinline__ void bring(double* room, const Values& values, float divisor, u64 start, u32 thread, u32 threads) {
    u64 left = values.length - start;
    u32 end = left < ROOM ? (u32)left : ROOM;
    for (u32 i = thread; i < end; i += threads) {
        double value = (double)(values.at[start + i] / divisor);
        room[i] = value * value;
    }
}

// One block a tensor, of more than ADDERS threads. A lane's sum is a chain of additions, which is what takes the time; so nothing else may.
extern "C" __global__ void squares(double* out, const Values* tensors, float divisor) {
    __shared__ double rooms[2][ROOM];
    __shared__ double lanes[LANES];
    Values values = tensors[blockIdx.x];
    u32 thread = threadIdx.x;
    u64 count = (values.length + ROOM - 1) / ROOM;
    if (count > 0) {
        bring(rooms[0], values, divisor, 0, thread, blockDim.x);
    }
    double lane = 0.0;
    for (u64 room = 0; room < count; ++room) {
        __syncthreads();
        if (thread >= ADDERS) {
            if (room + 1 < count) {
                bring(rooms[(room + 1) % 2], values, divisor, (room + 1) * ROOM, thread - ADDERS, blockDim.x - ADDERS);
            }
        } else if (thread < LANES) {
            u64 left = values.length - room * ROOM;
            u32 end = left < ROOM ? (u32)left : ROOM;
            for (u32 i = thread; i < end; i += LANES) {
                lane = lane + rooms[room % 2][i];
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
