// The mean of a finished sum, and how parameters follow it. The order of operations is that of Sardana's optimizers on a processor; what all
// values share is derived by the host, in f64.
#include "prelude.cuh"

extern "C" __global__ void mean_f32(float* out, const float* sum, float divisor, u64 length) {
    for (u64 i = first_element(); i < length; i += stride()) {
        out[i] = one_nan(sum[i] / divisor);
    }
}

extern "C" __global__ void mean_f64(double* out, const double* sum, double divisor, u64 length) {
    for (u64 i = first_element(); i < length; i += stride()) {
        out[i] = one_nan(sum[i] / divisor);
    }
}

// A gradient is the sum by the number of samples, times a factor that clips it: 1 where nothing is clipped, which changes no bit.
struct Descent {
    float divisor, factor, rate, decay, momentum;
};

// The gradient with the decay of its value.
__device__ __forceinline__ float decayed(float sum, float value, const Descent& by) {
    float gradient = sum / by.divisor * by.factor;
    return gradient + by.decay * value;
}

// Without momentum.
extern "C" __global__ void sgd(float* values, const float* sum, Descent by, u64 length) {
    for (u64 i = first_element(); i < length; i += stride()) {
        float value = values[i];
        values[i] = one_nan(value - by.rate * decayed(sum[i], value, by));
    }
}

// Along the velocity.
extern "C" __global__ void momentum(float* values, float* velocities, const float* sum, Descent by, u64 length) {
    for (u64 i = first_element(); i < length; i += stride()) {
        float value = values[i];
        float velocity = by.momentum * velocities[i] + decayed(sum[i], value, by);
        velocities[i] = one_nan(velocity);
        values[i] = one_nan(value - by.rate * velocity);
    }
}

// Along the gradient, and the velocity as it will be after the next one.
extern "C" __global__ void nesterov(float* values, float* velocities, const float* sum, Descent by, u64 length) {
    for (u64 i = first_element(); i < length; i += stride()) {
        float value = values[i];
        float gradient = decayed(sum[i], value, by);
        float velocity = by.momentum * velocities[i] + gradient;
        velocities[i] = one_nan(velocity);
        values[i] = one_nan(value - by.rate * (gradient + by.momentum * velocity));
    }
}

// Adam's constants where `off_value` is 0, and AdamW's where `to_gradient` is. `step` has the rate and the correction of the mean,
// `unbias_root` that of the root of the mean of squares; both are made of powers, which the host computes.
struct Moments {
    float divisor, factor, to_gradient, off_value, fresh_mean, fresh_square, step, unbias_root, epsilon;
};

extern "C" __global__ void adam(float* values, float* means, float* squares, const float* sum, Moments by, u64 length) {
    for (u64 i = first_element(); i < length; i += stride()) {
        float value = values[i];
        float gradient = sum[i] / by.divisor * by.factor + by.to_gradient * value;
        float mean = means[i] + by.fresh_mean * (gradient - means[i]);
        float square = squares[i] + by.fresh_square * (gradient * gradient - squares[i]);
        float root = __fsqrt_rn(square) * by.unbias_root + by.epsilon;
        means[i] = one_nan(mean);
        squares[i] = one_nan(square);
        values[i] = one_nan(value - (by.off_value * value + by.step * (mean / root)));
    }
}
