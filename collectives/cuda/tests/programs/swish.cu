// An activation that a network may have, and its gradient, in nothing but what IEEE 754 fixes; and a kernel that tells what it was given.
#include "numbers.cuh"

extern "C" __global__ void hard_swish(float* out, const float* values, u64 length) {
    for (u64 i = first_element(); i < length; i += stride()) {
        float x = values[i];
        out[i] = x * gate(x);
    }
}

extern "C" __global__ void hard_swish_backward(float* gradients, const float* values, float factor, u64 length) {
    for (u64 i = first_element(); i < length; i += stride()) {
        float x = values[i];
        float slope = x < -3.0f ? 0.0f : x > 3.0f ? 1.0f : (2.0f * x + 3.0f) / 6.0f;
        gradients[i] = gradients[i] * slope * factor;
    }
}

extern "C" __global__ void tell(double* out, float a, double b, int c, unsigned d, long long e, u64 f) {
    if (first_element() == 0) {
        out[0] = a;
        out[1] = b;
        out[2] = c;
        out[3] = d;
        out[4] = (double)e;
        out[5] = (double)f;
    }
}

struct Line {
    float slope, offset;
    u64 at;
};

extern "C" __global__ void tell_more(double* out, Line line, signed char a, unsigned char b, short c, unsigned short d, bool e) {
    if (first_element() == 0) {
        out[0] = line.slope * (float)line.at + line.offset;
        out[1] = a;
        out[2] = b;
        out[3] = c;
        out[4] = d;
        out[5] = e ? 1 : 0;
    }
}
