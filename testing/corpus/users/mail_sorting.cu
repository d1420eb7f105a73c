// A post office: the GPU rates the letters that come in, and clerks take them in the order in which they came.
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

constexpr int ARRIVING = 600, WAITING = 60'000, ROUTES = 1 << 16, BLOCK = 256;

struct Letter {
    int street;
    float weight, fee, hours;
};

__device__ unsigned mixed(unsigned x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

// What a letter costs and how long it takes, over all routes of the day.
__global__ void rate(const float *__restrict__ routes, Letter *__restrict__ letters, unsigned day) {
    __shared__ float sums[BLOCK];
    unsigned drawn = mixed(blockIdx.x * 747796405u + day * 2891336453u);
    float sum = 0;
    for (int route = threadIdx.x; route < ROUTES; route += BLOCK) sum += fabsf(routes[route] - float(drawn & 255));
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = BLOCK / 2; half; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        float far = sums[0] / ROUTES, weight = 0.02f + (drawn >> 24) * 0.004f;
        letters[blockIdx.x] = {int(drawn >> 8 & 4095), weight, 0.8f + 0.3f * weight + 0.002f * far, 4 + 0.2f * far};
    }
}

class Counter {
  public:
    Counter() {
        for (int i = 0; i < WAITING; ++i) letters.push_back({i & 4095, 0.02f, 0.8f, 12.0f});
    }

    void arrive(const Letter &letter) { letters.push_back(letter); }

    Letter take() {
        Letter next = letters.front();
        letters.erase(letters.begin());
        return next;
    }

  private:
    std::vector<Letter> letters;
};

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    double seconds = 4;
    for (int i = 1; i < argc; ++i)
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    std::vector<float> lengths(ROUTES);
    for (int i = 0; i < ROUTES; ++i) lengths[i] = float(128 + 100 * std::sin(0.37 * i));
    float *routes;
    Letter *rated, *come;
    CHECK(cudaMalloc(&routes, ROUTES * sizeof(float)));
    CHECK(cudaMalloc(&rated, ARRIVING * sizeof(Letter)));
    CHECK(cudaMallocHost(&come, ARRIVING * sizeof(Letter)));
    CHECK(cudaMemcpy(routes, lengths.data(), ROUTES * sizeof(float), cudaMemcpyHostToDevice));
    Counter counter;
    unsigned day = 0;
    double earned = 0;
    auto step = [&] {
        rate<<<ARRIVING, BLOCK>>>(routes, rated, ++day);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(come, rated, ARRIVING * sizeof(Letter), cudaMemcpyDeviceToHost));
        for (int i = 0; i < ARRIVING; ++i) {
            counter.arrive(come[i]);
            earned += counter.take().fee;
        }
    };
    for (int i = 0; i < 3; ++i) step();
    double began = now();
    long steps = 0;
    while (now() - began < seconds) {
        step();
        if (++steps % 50 == 0) std::printf("day %u: %.2f earned\n", day, earned);
    }
    std::printf("%.3f steps/s\n", steps / (now() - began));
    CHECK(cudaFreeHost(come));
    CHECK(cudaFree(rated));
    CHECK(cudaFree(routes));
    return 0;
}
