// A cluster of stars under its own gravity: each star feels each other one, step by step.
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

constexpr int THREADS = 256, EACH = 2, BLOCKS = 264, STARS = THREADS * EACH * BLOCKS;
constexpr float SOFT = 1e-3f, STEP = 1e-3f;

__global__ __launch_bounds__(THREADS) void pull(const float4 *__restrict__ stars, float4 *__restrict__ moved, float3 *__restrict__ speeds) {
    __shared__ float4 tile[THREADS];
    int own = blockIdx.x * THREADS * EACH + threadIdx.x;
    float4 me[EACH];
    float3 force[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        me[e] = stars[own + e * THREADS];
        force[e] = make_float3(0, 0, 0);
    }
    for (int first = 0; first < STARS; first += THREADS) {
        __syncthreads();
        tile[threadIdx.x] = stars[first + threadIdx.x];
        __syncthreads();
#pragma unroll 16
        for (int j = 0; j < THREADS; ++j) {
            float4 other = tile[j];
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                float x = other.x - me[e].x, y = other.y - me[e].y, z = other.z - me[e].z;
                float closeness = rsqrtf(fmaf(x, x, fmaf(y, y, fmaf(z, z, SOFT))));
                float strength = other.w * closeness * closeness * closeness;
                force[e].x = fmaf(strength, x, force[e].x);
                force[e].y = fmaf(strength, y, force[e].y);
                force[e].z = fmaf(strength, z, force[e].z);
            }
        }
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        int star = own + e * THREADS;
        float3 speed = speeds[star];
        speed.x += STEP * force[e].x;
        speed.y += STEP * force[e].y;
        speed.z += STEP * force[e].z;
        speeds[star] = speed;
        moved[star] = make_float4(me[e].x + STEP * speed.x, me[e].y + STEP * speed.y, me[e].z + STEP * speed.z, me[e].w);
    }
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

float drawn(unsigned &state) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) / 16777216.0f - 0.5f;
}

int main(int argc, char **argv) {
    double seconds = 6;
    for (int i = 1; i < argc; ++i)
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    std::vector<float4> places(STARS);
    std::vector<float3> still(STARS);
    unsigned state = 50;
    for (int i = 0; i < STARS; ++i) {
        float x = drawn(state), y = drawn(state), z = drawn(state);
        places[i] = make_float4(x, y, 0.3f * z, 1.0f / STARS);
        still[i] = make_float3(-0.6f * y, 0.6f * x, 0);
    }
    float4 *stars, *moved;
    float3 *speeds;
    CHECK(cudaMalloc(&stars, STARS * sizeof(float4)));
    CHECK(cudaMalloc(&moved, STARS * sizeof(float4)));
    CHECK(cudaMalloc(&speeds, STARS * sizeof(float3)));
    CHECK(cudaMemcpy(stars, places.data(), STARS * sizeof(float4), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(speeds, still.data(), STARS * sizeof(float3), cudaMemcpyHostToDevice));
    auto step = [&] {
        pull<<<BLOCKS, THREADS>>>(stars, moved, speeds);
        CHECK(cudaGetLastError());
        std::swap(stars, moved);
    };
    for (int i = 0; i < 3; ++i) step();
    CHECK(cudaDeviceSynchronize());
    double began = now();
    long steps = 0;
    while (now() - began < seconds) {
        step();
        if (++steps % 20 == 0) {
            float4 first;
            CHECK(cudaMemcpy(&first, stars, sizeof first, cudaMemcpyDeviceToHost));
            std::printf("step %ld: first star at %+.4f %+.4f %+.4f\n", steps, first.x, first.y, first.z);
        }
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%.3f steps/s\n", steps / (now() - began));
    return 0;
}
