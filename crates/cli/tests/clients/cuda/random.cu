// cuRAND's device functions: the same sequences on the device as on the host, where the headers are compiled too.
#define QUALIFIERS static inline __host__ __device__
#include "check.h"
#include <curand_kernel.h>

template <typename State> __global__ void draw(uint32_t seed, uint32_t *bits, float *uniform, int each) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    State state;
    curand_init(seed, i, 3, &state);
    for (int k = 0; k < each; k++) bits[i * each + k] = curand(&state);
    for (int k = 0; k < each; k++) uniform[i * each + k] = curand_uniform(&state);
}

__global__ void normals(float *out, int each) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    curandStatePhilox4_32_10_t state;
    curand_init(99, i, 0, &state);
    for (int k = 0; k < each; k++) out[i * each + k] = curand_normal(&state);
}

template <typename State> static void compare(uint32_t seed) {
    const int threads = 64, each = 10;
    Device<uint32_t> bits(threads * each);
    Device<float> uniform(threads * each);
    LAUNCH(draw<State><<<2, threads / 2>>>(seed, bits.data, uniform.data, each));
    std::vector<uint32_t> right_bits;
    std::vector<float> right_uniform;
    for (int i = 0; i < threads; i++) {
        State state;
        curand_init(seed, i, 3, &state);
        for (int k = 0; k < each; k++) right_bits.push_back(curand(&state));
        for (int k = 0; k < each; k++) right_uniform.push_back(curand_uniform(&state));
    }
    expect_equal("bits", bits.host(), right_bits);
    expect_equal("uniform", uniform.host(), right_uniform);
}

int main() {
    compare<curandStatePhilox4_32_10_t>(1234);
    compare<curandStateMRG32k3a_t>(4321);
    const int count = 40 * 128 * 8;
    Device<float> out(count);
    LAUNCH(normals<<<40, 128>>>(out.data, 8));
    double sum = 0, squares = 0;
    for (float value : out.host()) {
        sum += value;
        squares += double(value) * value;
    }
    EXPECT(std::fabs(sum / count) < 0.03);
    EXPECT(std::fabs(squares / count - 1) < 0.05);
    return done();
}
