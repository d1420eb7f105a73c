// Echoes of earthquakes: how far a year of one station's records is from another's, at the gain that would fit them best.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t status = (call);                                                 \
        if (status != cudaSuccess) {                                                 \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));     \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

constexpr int BLOCK = 256, AT_ONCE = 4;
constexpr size_t SAMPLES = size_t(1) << 30;

__global__ void record(float4 *first, float4 *second, size_t count) {
    for (size_t i = blockIdx.x * size_t(BLOCK) + threadIdx.x; i < count; i += gridDim.x * size_t(BLOCK)) {
        float wave = float(i % 1021) / 1021.0f - 0.5f;
        first[i] = make_float4(wave, 0.9f * wave, 0.7f * wave, 0.5f * wave);
        second[i] = make_float4(0.6f * wave, 0.5f * wave, 0.4f * wave, 0.4f * wave);
    }
}

__device__ float squared(float4 a, float4 b, float gain) {
    float x = fmaf(-gain, a.x, b.x), y = fmaf(-gain, a.y, b.y), z = fmaf(-gain, a.z, b.z), w = fmaf(-gain, a.w, b.w);
    return fmaf(x, x, fmaf(y, y, fmaf(z, z, w * w)));
}

__global__ void __launch_bounds__(BLOCK)
apart(const float4 *__restrict__ first, const float4 *__restrict__ second, float gain, double *__restrict__ sum) {
    size_t at = blockIdx.x * size_t(BLOCK * AT_ONCE) + threadIdx.x;
    float4 a[AT_ONCE], b[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
        a[i] = __ldcs(first + at + i * BLOCK);
        b[i] = __ldcs(second + at + i * BLOCK);
    }
    float mine = 0;
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) mine += squared(a[i], b[i], gain);
    for (int by = 16; by; by /= 2) mine += __shfl_xor_sync(0xffffffffu, mine, by);
    __shared__ float warps[BLOCK / 32];
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0;
        for (int warp = 0; warp < BLOCK / 32; ++warp) all += warps[warp];
        atomicAdd(sum + blockIdx.x % 1024, double(all));
    }
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    double seconds = 4;
    for (int i = 1; i < argc; ++i)
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    const size_t count = SAMPLES / 4;
    float4 *first, *second;
    double *sums, found[1024];
    CHECK(cudaMalloc(&first, SAMPLES * sizeof(float)));
    CHECK(cudaMalloc(&second, SAMPLES * sizeof(float)));
    CHECK(cudaMalloc(&sums, sizeof found));
    record<<<132 * 8, BLOCK>>>(first, second, count);
    CHECK(cudaGetLastError());
    CHECK(cudaMemset(sums, 0, sizeof found));
    long steps = 0;
    auto step = [&] {
        apart<<<unsigned(count / (BLOCK * AT_ONCE)), BLOCK>>>(first, second, 0.4f + 0.0003f * (steps % 1000), sums);
        CHECK(cudaGetLastError());
    };
    for (int i = 0; i < 3; ++i) step();
    CHECK(cudaDeviceSynchronize());
    double began = now();
    while (now() - began < seconds) {
        step();
        if (++steps % 100 == 0) {
            CHECK(cudaMemcpy(found, sums, sizeof found, cudaMemcpyDeviceToHost));
            double all = 0;
            for (double part : found) all += part;
            if (steps % 500 == 0) std::printf("%ld gains: %.6e in all\n", steps, all);
        }
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%.3f steps/s\n", steps / (now() - began));
    CHECK(cudaFree(sums));
    CHECK(cudaFree(second));
    CHECK(cudaFree(first));
    return 0;
}
