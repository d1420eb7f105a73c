// Tides at sixteen gauges along a coast: each gauge's heights are fitted by the moon's and the sun's waves, and the sea is drawn.
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

constexpr int GAUGES = 16, WAVES = 4, PARTS = 2, THREADS = 256;
constexpr int HEIGHTS = 1 << 18, COAST = 1 << 16;

__constant__ float hours_of[WAVES] = {12.4206f, 12.0f, 12.6583f, 23.9345f};

__device__ float summed(float value) {
    __shared__ float warps[THREADS / 32];
    for (int apart = 16; apart; apart /= 2) value += __shfl_down_sync(0xffffffffu, value, apart);
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    float total = 0;
    if (threadIdx.x == 0)
        for (float part : warps) total += part;
    return total;
}

__global__ void fit(const float *heights, float first_hour, float *waves) {
    int wave = blockIdx.x, part = blockIdx.y;
    float turn = 6.2831853f / hours_of[wave];
    float even = 0, odd = 0;
    for (int i = part * THREADS + threadIdx.x; i < HEIGHTS; i += PARTS * THREADS) {
        float s, c;
        sincosf(turn * (first_hour + i / 60.0f), &s, &c);
        even += heights[i] * c;
        odd += heights[i] * s;
    }
    even = summed(even);
    odd = summed(odd);
    if (threadIdx.x == 0) {
        atomicAdd(waves + 2 * wave, even * 2 / HEIGHTS);
        atomicAdd(waves + 2 * wave + 1, odd * 2 / HEIGHTS);
    }
}

__global__ void draw(const float *waves, float hour, float *sea) {
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= COAST) return;
    float along = float(place) / COAST * (GAUGES - 1);
    int left = min(int(along), GAUGES - 2);
    float right_share = along - left, height = 0;
    for (int wave = 0; wave < WAVES; ++wave) {
        const float *l = waves + (left * WAVES + wave) * 2, *r = l + WAVES * 2;
        float s, c;
        sincosf(6.2831853f / hours_of[wave] * hour, &s, &c);
        height += (1 - right_share) * (l[0] * c + l[1] * s) + right_share * (r[0] * c + r[1] * s);
    }
    sea[place] = height;
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    double seconds = 6;
    bool remedied = false;
    for (int i = 1; i < argc; ++i) {
        if (!std::strcmp(argv[i], "--remedied")) remedied = true;
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    }
    cudaStream_t streams[GAUGES];
    float *heights[GAUGES], *waves, *sea;
    std::vector<float> measured(HEIGHTS);
    CHECK(cudaMalloc(&waves, GAUGES * WAVES * 2 * sizeof(float)));
    CHECK(cudaMalloc(&sea, COAST * sizeof(float)));
    for (int g = 0; g < GAUGES; ++g) {
        CHECK(cudaStreamCreate(&streams[g]));
        CHECK(cudaMalloc(&heights[g], HEIGHTS * sizeof(float)));
        for (int i = 0; i < HEIGHTS; ++i)
            measured[i] = (1 + 0.1f * g) * std::cos(6.2831853f / 12.4206f * i / 60) + 0.4f * std::sin(6.2831853f / 12 * i / 60);
        CHECK(cudaMemcpy(heights[g], measured.data(), HEIGHTS * sizeof(float), cudaMemcpyHostToDevice));
    }
    auto an_hour = [&](long hour) {
        for (int g = 0; g < GAUGES; ++g) {
            float *own = waves + g * WAVES * 2;
            if (remedied)
                CHECK(cudaMemsetAsync(own, 0, WAVES * 2 * sizeof(float), streams[g]));
            else
                CHECK(cudaMemset(own, 0, WAVES * 2 * sizeof(float)));
            fit<<<dim3(WAVES, PARTS), THREADS, 0, streams[g]>>>(heights[g], float(hour % 24), own);
            CHECK(cudaGetLastError());
        }
        draw<<<COAST / THREADS, THREADS>>>(waves, float(hour % 24), sea);
        CHECK(cudaGetLastError());
    };
    for (long hour = 0; hour < 5; ++hour) an_hour(hour);
    CHECK(cudaDeviceSynchronize());
    double began = now();
    long hours = 0;
    while (now() - began < seconds) {
        an_hour(hours++);
        if (hours % 24 == 0) {
            float last;
            CHECK(cudaMemcpy(&last, sea + COAST / 2, sizeof last, cudaMemcpyDeviceToHost));
            if (hours % 480 == 0) std::printf("day %ld: %+.3f m\n", hours / 24, last);
        }
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%.3f steps/s\n", hours / (now() - began));
    return 0;
}
