// What lies between the layers of a network and behind the last of them: rectifiers, and how far scores are from labels.
#include "prelude.cuh"

extern "C" __global__ void rectify(float* out, const float* values, u64 length) {
    for (u64 i = first_element(); i < length; i += stride()) {
        float value = values[i];
        out[i] = one_nan(value <= 0.0f ? 0.0f : value);
    }
}

// The gradient passes where the rectified value is above 0.
extern "C" __global__ void rectify_backward(float* out, const float* gradients, const float* rectified, u64 length) {
    for (u64 i = first_element(); i < length; i += stride()) {
        out[i] = rectified[i] > 0.0f ? one_nan(gradients[i]) : 0.0f;
    }
}

// Scores less their targets: 1 for the label's class, 0 for the others.
extern "C" __global__ void distances(float* out, const float* scores, const u32* labels, u32 rows, u32 classes) {
    for (u64 i = first_element(); i < (u64)rows * classes; i += stride()) {
        float target = i % classes == labels[i / classes] ? 1.0f : 0.0f;
        out[i] = one_nan(scores[i] - target);
    }
}

// Whether the largest score of a row is the label's; of several that are equal, the first counts.
extern "C" __global__ void hits(u32* out, const float* scores, const u32* labels, u32 rows, u32 classes) {
    for (u64 row = first_element(); row < rows; row += stride()) {
        const float* own = scores + row * classes;
        u32 largest = 0;
        for (u32 one = 1; one < classes; ++one) {
            if (own[one] > own[largest]) {
                largest = one;
            }
        }
        out[row] = largest == labels[row] ? 1u : 0u;
    }
}
