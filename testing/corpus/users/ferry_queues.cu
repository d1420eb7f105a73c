// Cars wait for a ferry: how long, with arrivals that are drawn anew for each day, on all of its landings.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t status = (call);                                                 \
        if (status != cudaSuccess) {                                                 \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));     \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

constexpr int LANDINGS = 64, CARS = 96, PLANS = 4096, THREADS = 128;
constexpr float PERIOD = 20.0f;

__global__ void wait(const float *__restrict__ gaps, float *__restrict__ waited) {
    int plan = blockIdx.x * blockDim.x + threadIdx.x, landing = blockIdx.y;
    float period = PERIOD * (0.5f + plan / float(PLANS)), clock = 0, sum = 0;
    int aboard = 0;
    float leaves = period;
    for (int car = 0; car < CARS; ++car) {
        clock += gaps[landing * CARS + car];
        while (clock > leaves || aboard >= 12) {
            leaves += period;
            aboard = 0;
        }
        sum += leaves - clock;
        ++aboard;
    }
    atomicAdd(&waited[plan], sum / CARS);
}

float minutes_between(float mean) {
    std::random_device source;
    std::mt19937 generator(source());
    std::exponential_distribution<float> gap(1.0f / mean);
    return gap(generator);
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    double seconds = 4;
    for (int i = 1; i < argc; ++i)
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    float *gaps, *waited;
    CHECK(cudaMalloc(&gaps, LANDINGS * CARS * sizeof(float)));
    CHECK(cudaMalloc(&waited, PLANS * sizeof(float)));
    std::vector<float> day(LANDINGS * CARS), means(PLANS);
    CHECK(cudaMemset(waited, 0, PLANS * sizeof(float)));
    auto step = [&] {
        for (int landing = 0; landing < LANDINGS; ++landing)
            for (int car = 0; car < CARS; ++car) day[landing * CARS + car] = minutes_between(1.5f + 0.05f * landing);
        CHECK(cudaMemcpy(gaps, day.data(), day.size() * sizeof(float), cudaMemcpyHostToDevice));
        wait<<<dim3(PLANS / THREADS, LANDINGS), THREADS>>>(gaps, waited);
        CHECK(cudaGetLastError());
    };
    for (int i = 0; i < 3; ++i) step();
    CHECK(cudaDeviceSynchronize());
    double began = now();
    long steps = 0;
    while (now() - began < seconds) {
        step();
        if (++steps % 50 == 0) {
            CHECK(cudaMemcpy(means.data(), waited, PLANS * sizeof(float), cudaMemcpyDeviceToHost));
            int best = 0;
            for (int plan = 1; plan < PLANS; ++plan)
                if (means[plan] < means[best]) best = plan;
            if (steps % 100 == 0) std::printf("day %ld: best period %.2f minutes\n", steps, PERIOD * (0.5f + best / float(PLANS)));
        }
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%.3f steps/s\n", steps / (now() - began));
    return 0;
}
