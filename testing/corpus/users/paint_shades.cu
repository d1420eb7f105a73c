// A paint shop mixes shades: each point of a large picture goes through curves that were measured for twelve layers of paint.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t status = (call);                                                 \
        if (status != cudaSuccess) {                                                 \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));     \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

constexpr int SHADES = 4096, LAYERS = 12, BLOCK = 256, BLOCKS = 132 * 8;
constexpr int POINTS = 1 << 24;

__constant__ float curve[SHADES];

__device__ float shaded(float light, float cover) {
    int shade = min(SHADES - 1, max(0, int(light * SHADES)));
    return (1 - cover) * light + cover * curve[shade];
}

__global__ void paint(const float *__restrict__ picture, float *__restrict__ painted, float cover) {
    for (int point = blockIdx.x * BLOCK + threadIdx.x; point < POINTS; point += BLOCKS * BLOCK) {
        float light = picture[point];
        for (int layer = 0; layer < LAYERS; ++layer) light = shaded(light, cover);
        painted[point] = light;
    }
}

__global__ void draw(float *picture) {
    for (int point = blockIdx.x * BLOCK + threadIdx.x; point < POINTS; point += BLOCKS * BLOCK) {
        unsigned x = point * 747796405u + 2891336453u;
        x = ((x >> ((x >> 28) + 4)) ^ x) * 277803737u;
        picture[point] = ((x >> 22 ^ x) >> 8) * (1.0f / 16777216.0f);
    }
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    double seconds = 4;
    for (int i = 1; i < argc; ++i)
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    std::vector<float> measured(SHADES);
    for (int i = 0; i < SHADES; ++i) {
        double x = (i + 0.5) / SHADES;
        measured[i] = float(std::fmod(x + 0.31 * std::sin(9 * x) + 0.618 * i, 1.0));
        if (measured[i] < 0) measured[i] += 1;
    }
    float *picture, *painted;
    CHECK(cudaMalloc(&picture, POINTS * sizeof(float)));
    CHECK(cudaMalloc(&painted, POINTS * sizeof(float)));
    CHECK(cudaMemcpyToSymbol(curve, measured.data(), SHADES * sizeof(float)));
    draw<<<BLOCKS, BLOCK>>>(picture);
    CHECK(cudaGetLastError());
    long steps = 0;
    auto step = [&] {
        paint<<<BLOCKS, BLOCK>>>(picture, painted, 0.5f + 0.0004f * (steps % 1000));
        CHECK(cudaGetLastError());
    };
    for (int i = 0; i < 3; ++i) step();
    CHECK(cudaDeviceSynchronize());
    double began = now();
    while (now() - began < seconds) {
        step();
        if (++steps % 50 == 0) {
            float first;
            CHECK(cudaMemcpy(&first, painted, sizeof first, cudaMemcpyDeviceToHost));
            if (steps % 500 == 0) std::printf("%ld pictures: the first point is %.4f\n", steps, first);
        }
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%.3f steps/s\n", steps / (now() - began));
    CHECK(cudaFree(painted));
    CHECK(cudaFree(picture));
    return 0;
}
