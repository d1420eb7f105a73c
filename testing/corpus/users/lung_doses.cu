// Doses that a beam of photons leaves in a lung: each photon is followed along its way, and leaves energy in the voxels that it crosses.
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

constexpr int SIDE = 96, VOXELS = SIDE * SIDE * SIDE;
constexpr int PHOTONS = 1 << 21, CROSSED = 24, THREADS = 256;

__device__ unsigned mixed(unsigned x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

__device__ float fraction(unsigned &state) {
    state = mixed(state + 0x9e3779b9u);
    return (state >> 8) * (1.0f / 16777216.0f);
}

__device__ double deposit(double *address, double energy) {
    unsigned long long *bits = reinterpret_cast<unsigned long long *>(address);
    unsigned long long old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __double_as_longlong(energy + __longlong_as_double(assumed)));
    } while (assumed != old);
    return __longlong_as_double(old);
}

__global__ void follow(double *dose, unsigned shot) {
    int photon = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned state = mixed(photon * 747796405u + shot * 2891336453u);
    float x = SIDE * (0.30f + 0.40f * fraction(state));
    float y = SIDE * (0.30f + 0.40f * fraction(state));
    float dx = 0.4f * (fraction(state) - 0.5f), dy = 0.4f * (fraction(state) - 0.5f);
    float z = 4.0f * fraction(state);
    double energy = 6.0;
#pragma unroll 1
    for (int crossed = 0; crossed < CROSSED; ++crossed) {
        x += dx;
        y += dy;
        z += 3.0f + 1.0f * fraction(state);
        int i = int(x), j = int(y), k = int(z);
        if (i < 0 || j < 0 || i >= SIDE || j >= SIDE || k >= SIDE) return;
        double left = energy * 0.035;
        energy -= left;
        deposit(&dose[(k * SIDE + j) * SIDE + i], left);
    }
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    double seconds = 4;
    for (int i = 1; i < argc; ++i)
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    double *dose;
    CHECK(cudaMalloc(&dose, VOXELS * sizeof(double)));
    CHECK(cudaMemset(dose, 0, VOXELS * sizeof(double)));
    unsigned shot = 0;
    auto step = [&] {
        follow<<<PHOTONS / THREADS, THREADS>>>(dose, ++shot);
        CHECK(cudaGetLastError());
    };
    for (int i = 0; i < 3; ++i) step();
    CHECK(cudaDeviceSynchronize());
    double began = now();
    long steps = 0;
    while (now() - began < seconds) {
        step();
        if (++steps % 50 == 0) {
            double middle;
            CHECK(cudaMemcpy(&middle, dose + VOXELS / 2 + SIDE * SIDE / 2 + SIDE / 2, sizeof middle, cudaMemcpyDeviceToHost));
            if (steps % 500 == 0) std::printf("shot %u: dose in the middle %.1f\n", shot, middle);
        }
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%.3f steps/s\n", steps / (now() - began));
    CHECK(cudaFree(dose));
    return 0;
}
