// CUDA C for the host's compiler: what a kernel may use, as C++. Knows no kernel. It includes nothing, so that kernels compile in no time.
#pragma once

#define __global__
#define __device__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __constant__ static const
// All shared memory lies together, so that it is known what is shared.
#define __shared__ static __attribute__((section("twin_shared")))

struct uint3 {
    unsigned x, y, z;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

// What the scheduler does. A place is the same for as long as a thread runs.
extern "C" uint3 twin_thread() __attribute__((const));
extern "C" uint3 twin_block() __attribute__((const));
extern "C" uint3 twin_threads() __attribute__((const));
extern "C" uint3 twin_blocks() __attribute__((const));
extern "C" void twin_barrier(unsigned line);
extern "C" unsigned long long twin_exchange(unsigned mask, unsigned long long own, unsigned lane, unsigned line);
extern "C" unsigned twin_lane();

#define threadIdx (twin_thread())
#define blockIdx (twin_block())
#define blockDim (twin_threads())
#define gridDim (twin_blocks())
#define warpSize 32

#define __syncthreads() twin_barrier(__LINE__)
#define __shfl_sync(mask, value, lane) twin_shuffled(mask, value, lane, __LINE__)
#define __shfl_down_sync(mask, value, by) twin_shuffled(mask, value, twin_below(by), __LINE__)
#define __shfl_xor_sync(mask, value, by) twin_shuffled(mask, value, twin_lane() ^ (by), __LINE__)

template <class To, class From> static inline To twin_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

template <class T> static inline T twin_shuffled(unsigned mask, T value, unsigned lane, unsigned line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = twin_exchange(mask, bits, lane % 32, line);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

// The lane so far above this one; this one where there is none.
static inline unsigned twin_below(unsigned by) {
    unsigned lane = twin_lane();
    return lane + by < 32 ? lane + by : lane;
}

static inline unsigned __float_as_uint(float value) { return twin_bits<unsigned>(value); }
static inline float __uint_as_float(unsigned bits) { return twin_bits<float>(bits); }
static inline double __longlong_as_double(long long bits) { return twin_bits<double>(bits); }
static inline long long __double_as_longlong(double value) { return twin_bits<long long>(value); }
static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline float __fsqrt_rn(float value) { return __builtin_sqrtf(value); }
static inline double __dsqrt_rn(double value) { return __builtin_sqrt(value); }
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)((((unsigned long long)high << 32) | low) >> (by & 31));
}

// What may differ between a device and this host is refused: a kernel that uses it does not compile.
#define TWIN_REFUSES(name) template <class... A> void name(A...) = delete;
TWIN_REFUSES(atomicAdd)
TWIN_REFUSES(atomicMax)
TWIN_REFUSES(atomicMin)
TWIN_REFUSES(atomicCAS)
TWIN_REFUSES(atomicExch)
TWIN_REFUSES(__expf)
TWIN_REFUSES(__logf)
TWIN_REFUSES(__powf)
TWIN_REFUSES(__sinf)
TWIN_REFUSES(__cosf)
TWIN_REFUSES(__tanhf)
TWIN_REFUSES(__fdividef)
TWIN_REFUSES(__frsqrt_rn)
TWIN_REFUSES(expf)
TWIN_REFUSES(logf)
TWIN_REFUSES(powf)
TWIN_REFUSES(tanhf)
TWIN_REFUSES(rsqrtf)

// A kernel as the scheduler sees it: its parameters as addresses of their values, and how large each is.
struct TwinKernel {
    const char* name;
    void (*run)(void** parameters);
    unsigned count;
    const unsigned* sizes;
};

template <unsigned... I> struct TwinNumbers {};
template <unsigned N, unsigned... I> struct TwinUpTo : TwinUpTo<N - 1, N - 1, I...> {};
template <unsigned... I> struct TwinUpTo<0, I...> {
    typedef TwinNumbers<I...> numbers;
};

template <auto F> struct TwinRun;
template <class... A, void (*F)(A...)> struct TwinRun<F> {
    template <unsigned... I> static void with(void** parameters, TwinNumbers<I...>) { F(*(A*)parameters[I]...); }
    static void run(void** parameters) { with(parameters, typename TwinUpTo<sizeof...(A)>::numbers()); }
    static constexpr unsigned sizes[] = {sizeof(A)...};
    static constexpr unsigned count = sizeof...(A);
};
#define TWIN_KERNEL(name) {#name, TwinRun<name>::run, TwinRun<name>::count, TwinRun<name>::sizes},
