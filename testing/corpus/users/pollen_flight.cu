// Carries the pollen of many trees through the wind of a valley, which has a map for each of 24 layers of air.
#include <algorithm>
#include <chrono>
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

constexpr int LAYERS = 24, GRAINS = 400'000, SIDE = 512;

struct Grain {
    float x, y;
};

__global__ void carry(Grain *grains, const float2 *wind, int count, float hours, int side) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        Grain grain = grains[i];
        int column = min(max(int(grain.x), 0), side - 1), row = min(max(int(grain.y), 0), side - 1);
        float2 air = wind[row * side + column];
        grain.x += hours * air.x;
        grain.y += hours * air.y;
        if (grain.x < 0) grain.x += side;
        if (grain.y < 0) grain.y += side;
        if (grain.x >= side) grain.x -= side;
        if (grain.y >= side) grain.y -= side;
        grains[i] = grain;
    }
}

// As many blocks as the card holds at once.
class Card {
  public:
    explicit Card(bool remedied) : remedied_(remedied) { CHECK(cudaGetDeviceProperties(&known_, 0)); }

    int blocks(int count, int threads) const {
        cudaDeviceProp card;
        if (!remedied_) CHECK(cudaGetDeviceProperties(&card, 0));
        const cudaDeviceProp &used = remedied_ ? known_ : card;
        int most = used.multiProcessorCount * (used.maxThreadsPerMultiProcessor / threads);
        return std::min(most, (count + threads - 1) / threads);
    }

  private:
    bool remedied_;
    cudaDeviceProp known_;
};

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
    Card card(remedied);
    std::vector<Grain> fresh(GRAINS);
    for (int i = 0; i < GRAINS; ++i) fresh[i] = {float(i % SIDE), float(i / SIDE % SIDE)};
    std::vector<float2> map(SIDE * SIDE);
    Grain *grains[LAYERS];
    float2 *winds[LAYERS];
    for (int layer = 0; layer < LAYERS; ++layer) {
        for (int i = 0; i < SIDE * SIDE; ++i) map[i] = {0.5f + 0.01f * (i % 37), 0.02f * layer - 0.01f * (i % 53)};
        CHECK(cudaMalloc(&grains[layer], GRAINS * sizeof(Grain)));
        CHECK(cudaMalloc(&winds[layer], map.size() * sizeof(float2)));
        CHECK(cudaMemcpy(grains[layer], fresh.data(), GRAINS * sizeof(Grain), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(winds[layer], map.data(), map.size() * sizeof(float2), cudaMemcpyHostToDevice));
    }
    auto hour = [&] {
        for (int layer = 0; layer < LAYERS; ++layer) {
            carry<<<card.blocks(GRAINS, 256), 256>>>(grains[layer], winds[layer], GRAINS, 0.1f, SIDE);
            CHECK(cudaGetLastError());
        }
    };
    for (int i = 0; i < 5; ++i) hour();
    CHECK(cudaDeviceSynchronize());
    double began = now();
    long hours = 0;
    while (now() - began < seconds) {
        hour();
        if (++hours % 100 == 0) {
            Grain first;
            CHECK(cudaMemcpy(&first, grains[0], sizeof first, cudaMemcpyDeviceToHost));
            std::printf("hour %ld: the first grain is at %.2f, %.2f\n", hours, first.x, first.y);
        }
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%.3f steps/s\n", hours / (now() - began));
    return 0;
}
