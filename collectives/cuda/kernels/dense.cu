// A dense layer, forward and backward, in f32. Each result is one chain of fused multiply-adds in a fixed order, whatever the tiles are; so the
// bits do not depend on the device, nor on what else is computed beside it.
//
// x: inputs, batch by inputs. w: weights, outputs by inputs. b: biases, outputs. y: outputs, batch by outputs. All are row-major.
#include "prelude.cuh"

// A block computes SIDE by SIDE results, each of its SIDE / EACH by SIDE / EACH threads EACH by EACH of them, DEPTH terms at a time.
#define SIDE 64
#define EACH 4
#define ACROSS (SIDE / EACH)
#define DEPTH 16

// A matrix, or its transpose: how far it is from row to row, and from column to column.
struct Matrix {
    const float* at;
    u64 row, column;
};

// Brings SIDE lines of DEPTH terms from `term` on, and zeros for lines that are not there. Neighbouring threads take what lies side by side.
__device__ __forceinline__ void bring(float (*tile)[SIDE], Matrix from, u32 line, u32 lines, u32 term, u32 terms) {
    bool along = from.column == 1;
    for (u32 i = threadIdx.y * ACROSS + threadIdx.x; i < SIDE * DEPTH; i += ACROSS * ACROSS) {
        u32 own_line = along ? i / DEPTH : i % SIDE;
        u32 own_term = along ? i % DEPTH : i / SIDE;
        bool there = line + own_line < lines && term + own_term < terms;
        tile[own_term][own_line] = there ? from.at[(line + own_line) * from.row + (term + own_term) * from.column] : 0.0f;
    }
}

// out[r][c] = start + sum over t of left[r][t] * right[c][t], t from 0 on. `start` is of the column, and 0 where there is none.
__device__ __forceinline__ void product(float* out, Matrix left, Matrix right, const float* start, u32 rows, u32 columns, u32 terms) {
    __shared__ float lefts[DEPTH][SIDE];
    __shared__ float rights[DEPTH][SIDE];
    u32 row = blockIdx.y * SIDE, column = blockIdx.x * SIDE;
    float sums[EACH][EACH];
#pragma unroll
    for (u32 c = 0; c < EACH; ++c) {
        u32 own = column + c * ACROSS + threadIdx.x;
        float first = start && own < columns ? start[own] : 0.0f;
#pragma unroll
        for (u32 r = 0; r < EACH; ++r) {
            sums[r][c] = first;
        }
    }
    for (u32 term = 0, end; term < terms; term += end) {
        end = terms - term < DEPTH ? terms - term : DEPTH;
        bring(lefts, left, row, rows, term, terms);
        bring(rights, right, column, columns, term, terms);
        __syncthreads();
        for (u32 t = 0; t < end; ++t) {
#pragma unroll
            for (u32 r = 0; r < EACH; ++r) {
                float one = lefts[t][r * ACROSS + threadIdx.y];
#pragma unroll
                for (u32 c = 0; c < EACH; ++c) {
                    sums[r][c] = __fmaf_rn(one, rights[t][c * ACROSS + threadIdx.x], sums[r][c]);
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (u32 r = 0; r < EACH; ++r) {
#pragma unroll
        for (u32 c = 0; c < EACH; ++c) {
            u32 own_row = row + r * ACROSS + threadIdx.y, own_column = column + c * ACROSS + threadIdx.x;
            if (own_row < rows && own_column < columns) {
                out[(u64)own_row * columns + own_column] = one_nan(sums[r][c]);
            }
        }
    }
}

// y[n][o] = b[o] + sum over i of x[n][i] * w[o][i]
extern "C" __global__ void dense_forward(float* y, const float* x, const float* w, const float* b, u32 batch, u32 outputs, u32 inputs) {
    Matrix lines_of_x = {x, inputs, 1}, lines_of_w = {w, inputs, 1};
    product(y, lines_of_x, lines_of_w, b, batch, outputs, inputs);
}

// dx[n][i] = sum over o of dy[n][o] * w[o][i]
extern "C" __global__ void dense_backward_inputs(float* dx, const float* dy, const float* w, u32 batch, u32 outputs, u32 inputs) {
    Matrix lines_of_dy = {dy, outputs, 1}, columns_of_w = {w, 1, inputs};
    product(dx, lines_of_dy, columns_of_w, 0, batch, inputs, outputs);
}

// dw[o][i] = sum over n of dy[n][o] * x[n][i]
extern "C" __global__ void dense_backward_weights(float* dw, const float* dy, const float* x, u32 batch, u32 outputs, u32 inputs) {
    Matrix columns_of_dy = {dy, 1, outputs}, columns_of_x = {x, 1, inputs};
    product(dw, columns_of_dy, columns_of_x, 0, outputs, inputs, batch);
}

// db[o] = sum over n of dy[n][o]
extern "C" __global__ void dense_backward_biases(float* db, const float* dy, u32 batch, u32 outputs) {
    for (u64 o = first_element(); o < outputs; o += stride()) {
        float sum = 0.0f;
        for (u32 n = 0; n < batch; ++n) {
            sum = sum + dy[(u64)n * outputs + o];
        }
        db[o] = one_nan(sum);
    }
}
