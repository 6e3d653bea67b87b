// BLAKE3 (O'Connor, Aumasson, Neves, Wilcox-O'Hearn 2020) of pieces of at most 1 MiB: a piece has at most 1,024 chunks of 1 KiB, and its tree
// fits one block.
#include "prelude.cuh"

struct Piece {
    const u8* bytes;
    u64 length;
};

#define CHUNKS 1024
#define CHUNK_BYTES 1024
#define BLOCK_BYTES 64
#define WORDS 8

// What a compression is for.
#define CHUNK_START 1u
#define CHUNK_END 2u
#define PARENT 4u
#define ROOT 8u

__device__ __forceinline__ u32 rotated(u32 word, u32 by) {
    return __funnelshift_r(word, word, by);
}

__device__ __forceinline__ void mix(u32& a, u32& b, u32& c, u32& d, u32 x, u32 y) {
    a = a + b + x;
    d = rotated(d ^ a, 16);
    c = c + d;
    b = rotated(b ^ c, 12);
    a = a + b + y;
    d = rotated(d ^ a, 8);
    c = c + d;
    b = rotated(b ^ c, 7);
}

__device__ __forceinline__ void columns_and_diagonals(u32* v, const u32* m) {
    mix(v[0], v[4], v[8], v[12], m[0], m[1]);
    mix(v[1], v[5], v[9], v[13], m[2], m[3]);
    mix(v[2], v[6], v[10], v[14], m[4], m[5]);
    mix(v[3], v[7], v[11], v[15], m[6], m[7]);
    mix(v[0], v[5], v[10], v[15], m[8], m[9]);
    mix(v[1], v[6], v[11], v[12], m[10], m[11]);
    mix(v[2], v[7], v[8], v[13], m[12], m[13]);
    mix(v[3], v[4], v[9], v[14], m[14], m[15]);
}

// The words of a message in the order of the next round. All places are constants, so that it costs the device nothing.
__device__ __forceinline__ void permute(u32* m) {
    u32 next[16] = {m[2], m[6], m[3], m[10], m[7], m[0], m[4], m[13], m[1], m[11], m[12], m[5], m[9], m[14], m[15], m[8]};
#pragma unroll
    for (u32 i = 0; i < 16; ++i) {
        m[i] = next[i];
    }
}

__device__ __forceinline__ void initial(u32* h) {
    h[0] = 0x6a09e667u;
    h[1] = 0xbb67ae85u;
    h[2] = 0x3c6ef372u;
    h[3] = 0xa54ff53au;
    h[4] = 0x510e527fu;
    h[5] = 0x9b05688cu;
    h[6] = 0x1f83d9abu;
    h[7] = 0x5be0cd19u;
}

// Compresses the message `m` into `h`. `chunk` is the number of the chunk, and 0 for a parent.
__device__ __forceinline__ void compress(u32* h, u32* m, u32 chunk, u32 length, u32 purpose) {
    u32 v[16];
#pragma unroll
    for (u32 i = 0; i < WORDS; ++i) {
        v[i] = h[i];
    }
    initial(v + WORDS);
    v[12] = chunk;
    v[13] = 0;
    v[14] = length;
    v[15] = purpose;
#pragma unroll
    for (u32 round = 0; round < 7; ++round) {
        columns_and_diagonals(v, m);
        permute(m);
    }
#pragma unroll
    for (u32 i = 0; i < WORDS; ++i) {
        h[i] = v[i] ^ v[i + WORDS];
    }
}

// The message at `bytes`, with zeros behind its end.
__device__ __forceinline__ void load(u32* m, const u8* bytes, u32 length) {
    if (length == BLOCK_BYTES && (u64)bytes % sizeof(uint4) == 0) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            uint4 four = ((const uint4*)bytes)[i];
            m[4 * i] = four.x;
            m[4 * i + 1] = four.y;
            m[4 * i + 2] = four.z;
            m[4 * i + 3] = four.w;
        }
        return;
    }
#pragma unroll
    for (u32 i = 0; i < 16; ++i) {
        m[i] = 0;
#pragma unroll
        for (u32 byte = 0; byte < 4; ++byte) {
            u32 at = 4 * i + byte;
            if (at < length) {
                m[i] |= (u32)bytes[at] << (8 * byte);
            }
        }
    }
}

// One block a piece, of CHUNKS threads, one a chunk. `out` gets 8 words a piece, which are its hash's bytes.
extern "C" __global__ void __launch_bounds__(CHUNKS, 1) hash_pieces(u32* out, const Piece* pieces) {
    __shared__ u32 nodes[WORDS][CHUNKS];
    Piece piece = pieces[blockIdx.x];
    u32 length = (u32)piece.length;
    u32 thread = threadIdx.x;
    u32 count = length == 0 ? 1 : (length + CHUNK_BYTES - 1) / CHUNK_BYTES;
    u32 h[WORDS], m[16];
    if (thread < count) {
        u32 left = length - thread * CHUNK_BYTES;
        u32 own = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        u32 blocks = own == 0 ? 1 : (own + BLOCK_BYTES - 1) / BLOCK_BYTES;
        const u8* bytes = piece.bytes + (u64)thread * CHUNK_BYTES;
        u32 end = count == 1 ? CHUNK_END | ROOT : CHUNK_END;
        initial(h);
        for (u32 block = 0; block < blocks; ++block) {
            u32 rest = own - block * BLOCK_BYTES;
            u32 now = rest < BLOCK_BYTES ? rest : BLOCK_BYTES;
            load(m, bytes + block * BLOCK_BYTES, now);
            compress(h, m, thread, now, (block == 0 ? CHUNK_START : 0u) | (block + 1 == blocks ? end : 0u));
        }
#pragma unroll
        for (u32 i = 0; i < WORDS; ++i) {
            nodes[i][thread] = h[i];
        }
    }
    __syncthreads();
    // Neighbours get a parent; the last one without a neighbour goes up as it is.
    while (count > 1) {
        u32 above = (count + 1) / 2;
        if (thread < above) {
            u32 left = 2 * thread, right = left + 1;
#pragma unroll
            for (u32 i = 0; i < WORDS; ++i) {
                h[i] = m[i] = nodes[i][left];
                m[i + WORDS] = right < count ? nodes[i][right] : 0;
            }
            if (right < count) {
                initial(h);
                compress(h, m, 0, BLOCK_BYTES, count == 2 ? PARENT | ROOT : PARENT);
            }
        }
        __syncthreads();
        if (thread < above) {
#pragma unroll
            for (u32 i = 0; i < WORDS; ++i) {
                nodes[i][thread] = h[i];
            }
        }
        __syncthreads();
        count = above;
    }
    if (thread < WORDS) {
        out[(u64)blockIdx.x * WORDS + thread] = nodes[thread][0];
    }
}
