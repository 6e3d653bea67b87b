// What candle's kernels use of CUDA C beside device.h, as C++ of the host: for tests on a twin of a GPU. Knows no kernel.
#pragma once
#include <assert.h>
#include <math.h>
#include <stdint.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "device.h"

// All of a file lies in a namespace without a name, where functions are its own anyway, and specialisations may not be told so.
#undef __device__
#define __device__
#define __host__
// As for a GPU without the short types, which are not trained in.
#define __CUDA_ARCH__ 500
// A width is given, and is that of a warp.
#undef __shfl_xor_sync
#define __shfl_xor_sync(mask, value, by, ...) twin_shuffled(mask, value, twin_lane() ^ (by), __LINE__)

// Their last bits are the host's: what is compared on a twin is not those.
static inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }
static inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
static inline float2 make_float2(float x, float y) { return {x, y}; }
template <class A, class B> static inline auto min(A a, B b) {
    typedef std::common_type_t<A, B> C;
    return C(a) < C(b) ? C(a) : C(b);
}
template <class A, class B> static inline auto max(A a, B b) {
    typedef std::common_type_t<A, B> C;
    return C(a) > C(b) ? C(a) : C(b);
}

// What no training launches ends the program if it is launched: bits would depend on the order of atomics.
template <class T> static inline T twin_atomic() { __builtin_trap(); }
static inline float atomicAdd(float*, float) { return twin_atomic<float>(); }
static inline double atomicAdd(double*, double) { return twin_atomic<double>(); }
static inline unsigned atomicAdd(unsigned*, unsigned) { return twin_atomic<unsigned>(); }
struct __nv_fp8_e4m3 {
    int __x;
    template <class T> __nv_fp8_e4m3(T) { __builtin_trap(); }
};
static inline float __half2float(int) { __builtin_trap(); }
static inline int __nv_cvt_fp8_to_halfraw(int, int) { __builtin_trap(); }
#define __NV_E4M3 0

namespace cuda {
namespace std {
using ::std::numeric_limits;
}
}  // namespace cuda
