// Monte Carlo: each launch sets up a generator for each thread, then draws a few numbers.
//
// Cause: curand_init skips ahead for each thread's sequence in each launch. Remedy: states that are kept in memory.
#include "corpus.h"
#if __has_include(<curand_kernel.h>)
#include <curand_kernel.h>

__global__ void set_up(curandState *states, unsigned long long seed, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) curand_init(seed, i, 0, &states[i]);
}

__device__ float draw(curandState *state) {
    float sum = 0;
    for (int k = 0; k < 16; k++) sum += curand_normal(state);
    return sum;
}

__global__ void simulate(float *out, unsigned long long seed, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    curandState state;
    curand_init(seed, i, 0, &state);
    out[i] = draw(&state);
}

__global__ void simulate_kept(curandState *states, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    curandState state = states[i];
    out[i] = draw(&state);
    states[i] = state;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 20, 1 << 8);
        float *out = device_array<float>(n);
        auto *states = device_array<curandState>(n);
        set_up<<<(n + 255) / 256, 256>>>(states, 1, n);
        auto seed = std::make_shared<unsigned long long>(1);
        return [=] {
            if (remedy) simulate_kept<<<(n + 255) / 256, 256>>>(states, out, n);
            else simulate<<<(n + 255) / 256, 256>>>(out, ++*seed, n);
        };
    });
}
#else
int main(int, char **argv) { return fprintf(stderr, "%s: the headers of cuRAND are missing\n", argv[0]), 1; }
#endif
