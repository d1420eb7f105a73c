// Toll gates of a motorway: the GPU finds what each vehicle is and what it owes, and threads of the host count what was paid.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t status = (call);                                                 \
        if (status != cudaSuccess) {                                                 \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));     \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

constexpr int VEHICLES = 1 << 19, COUNTERS = 8, BLOCK = 256;

__device__ unsigned mixed(unsigned x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

__global__ void classify(const float *__restrict__ weights, unsigned char *__restrict__ owed, unsigned hour) {
    int vehicle = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned drawn = mixed(vehicle * 747796405u + hour * 2891336453u);
    float weight = weights[drawn % VEHICLES];
    owed[vehicle] = weight > 0.8f ? 5 + drawn % 9 : weight > 0.1f ? 2 : 0;
}

struct Counter {
    std::atomic<long> paying{0};
    std::atomic<long> coins{0};
};

class Office {
  public:
    void count(const unsigned char *owed) {
        std::vector<std::thread> clerks;
        for (int clerk = 0; clerk < COUNTERS; ++clerk)
            clerks.emplace_back([this, owed, clerk] { count_part(owed, clerk); });
        for (auto &clerk : clerks) clerk.join();
    }

    long coins() const {
        long sum = 0;
        for (const auto &counter : counters) sum += counter.coins.load(std::memory_order_relaxed);
        return sum;
    }

  private:
    // The counts can be read at any time by the office's display.
    void count_part(const unsigned char *owed, int clerk) {
        Counter &mine = counters[clerk];
        const int part = VEHICLES / COUNTERS;
        for (int vehicle = clerk * part; vehicle < (clerk + 1) * part; ++vehicle) {
            if (!owed[vehicle]) continue;
            mine.paying.fetch_add(1, std::memory_order_relaxed);
            mine.coins.fetch_add(owed[vehicle], std::memory_order_relaxed);
        }
    }

    Counter counters[COUNTERS];
};

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    double seconds = 4;
    for (int i = 1; i < argc; ++i)
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    std::vector<float> scale(VEHICLES);
    for (int i = 0; i < VEHICLES; ++i) scale[i] = float(i * 2654435761u % 1000) / 1000.0f;
    float *weights;
    unsigned char *owed, *seen;
    CHECK(cudaMalloc(&weights, VEHICLES * sizeof(float)));
    CHECK(cudaMalloc(&owed, VEHICLES));
    CHECK(cudaMallocHost(&seen, VEHICLES));
    CHECK(cudaMemcpy(weights, scale.data(), VEHICLES * sizeof(float), cudaMemcpyHostToDevice));
    Office office;
    unsigned hour = 0;
    auto step = [&] {
        classify<<<VEHICLES / BLOCK, BLOCK>>>(weights, owed, ++hour);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(seen, owed, VEHICLES, cudaMemcpyDeviceToHost));
        office.count(seen);
    };
    for (int i = 0; i < 3; ++i) step();
    double began = now();
    long steps = 0;
    while (now() - began < seconds) {
        step();
        if (++steps % 50 == 0) std::printf("hour %u: %ld coins\n", hour, office.coins());
    }
    std::printf("%.3f steps/s\n", steps / (now() - began));
    CHECK(cudaFreeHost(seen));
    CHECK(cudaFree(owed));
    CHECK(cudaFree(weights));
    return 0;
}
