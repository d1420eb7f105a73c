// Cargo on its way: each container goes on to the next port, with the chances that past years show, and adds its load there.
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

constexpr int PORTS = 2048, CONTAINERS = 1 << 22, THREADS = 256;

__device__ unsigned mixed(unsigned x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

__device__ int chosen_port(const float *__restrict__ chances, float drawn) {
    int port = 0;
    while (port < PORTS - 1 && chances[port] < drawn) ++port;
    return port;
}

__global__ void sail(const float *__restrict__ chances, const float *__restrict__ cost, int *__restrict__ places, float *__restrict__ spent, unsigned day) {
    int container = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned bits = mixed(container * 747796405u + day * 2891336453u);
    float drawn = (bits >> 8) * (1.0f / 16777216.0f);
    int from = places[container];
    int to = chosen_port(chances, drawn);
    places[container] = to;
    spent[container] += fabsf(cost[to] - cost[from]) + 0.01f;
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    double seconds = 4;
    for (int i = 1; i < argc; ++i)
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    std::vector<float> chances(PORTS), cost(PORTS);
    double sum = 0;
    for (int i = 0; i < PORTS; ++i) sum += 1.0 + 0.8 * std::sin(0.37 * i);
    double so_far = 0;
    for (int i = 0; i < PORTS; ++i) {
        so_far += (1.0 + 0.8 * std::sin(0.37 * i)) / sum;
        chances[i] = float(so_far);
        cost[i] = float(std::fmod(i * 0.618, 1.0));
    }
    float *ways, *costs, *spent;
    int *places;
    CHECK(cudaMalloc(&ways, PORTS * sizeof(float)));
    CHECK(cudaMalloc(&costs, PORTS * sizeof(float)));
    CHECK(cudaMalloc(&spent, CONTAINERS * sizeof(float)));
    CHECK(cudaMalloc(&places, CONTAINERS * sizeof(int)));
    CHECK(cudaMemcpy(ways, chances.data(), PORTS * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(costs, cost.data(), PORTS * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(spent, 0, CONTAINERS * sizeof(float)));
    CHECK(cudaMemset(places, 0, CONTAINERS * sizeof(int)));
    unsigned day = 0;
    auto step = [&] {
        sail<<<CONTAINERS / THREADS, THREADS>>>(ways, costs, places, spent, ++day);
        CHECK(cudaGetLastError());
    };
    for (int i = 0; i < 3; ++i) step();
    CHECK(cudaDeviceSynchronize());
    double began = now();
    long steps = 0;
    while (now() - began < seconds) {
        step();
        if (++steps % 100 == 0) {
            float first;
            CHECK(cudaMemcpy(&first, spent, sizeof first, cudaMemcpyDeviceToHost));
            if (steps % 1000 == 0) std::printf("day %u: the first container has cost %.2f\n", day, first);
        }
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%.3f steps/s\n", steps / (now() - began));
    return 0;
}
