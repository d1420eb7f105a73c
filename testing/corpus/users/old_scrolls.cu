// Old scrolls: where in each of them does a motif of 32 signs occur, though scribes left out, doubled or changed signs?
#include <algorithm>
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

constexpr int SIGNS = 64, LANES = 32, SCROLLS = 40'000, LONG_SCROLLS = 48, LONG = 90'000;
constexpr float LEFT_OUT = 0.6f;

// One warp for each scroll; a lane holds the best match that ends at its sign of the motif.
__global__ void __launch_bounds__(LANES)
match(const unsigned char *__restrict__ text, const int *__restrict__ starts, const float *__restrict__ alike,
      const unsigned char *__restrict__ motif, float *__restrict__ matches) {
    __shared__ float4 table[SIGNS * SIGNS / 4];
    const int lane = threadIdx.x;
    for (int i = lane; i < SIGNS * SIGNS / 4; i += LANES) table[i] = reinterpret_cast<const float4 *>(alike)[i];
    __syncwarp();
    const float *likeness = reinterpret_cast<const float *>(table);
    const int scroll = blockIdx.x;
    const int from = starts[scroll], to = starts[scroll + 1], mine = motif[lane];
    float score = 0, best = 0;
    for (int first = from; first < to; first += LANES) {
        int held = first + lane < to ? text[first + lane] : 0;
        int count = min(LANES, to - first);
        for (int k = 0; k < count; ++k) {
            int sign = __shfl_sync(0xffffffffu, held, k);
            float before = __shfl_up_sync(0xffffffffu, score, 1);
            if (lane == 0) before = 0;
            score = fmaxf(0.0f, fmaxf(before + likeness[sign * SIGNS + mine], score - LEFT_OUT));
            best = fmaxf(best, score);
        }
    }
    for (int by = LANES / 2; by; by /= 2) best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, by));
    if (lane == 0) matches[scroll] = best;
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    double seconds = 4;
    for (int i = 1; i < argc; ++i)
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    std::vector<int> lengths(SCROLLS);
    for (int i = 0; i < SCROLLS; ++i) lengths[i] = i < LONG_SCROLLS ? LONG : 3000 + int(i * 2654435761u % 2001);
    std::sort(lengths.begin(), lengths.end());
    std::vector<int> starts(SCROLLS + 1, 0);
    for (int i = 0; i < SCROLLS; ++i) starts[i + 1] = starts[i] + lengths[i];
    std::vector<unsigned char> text(starts.back()), motifs(16 * LANES);
    unsigned drawn = 12;
    for (auto &sign : text) sign = (drawn = drawn * 1664525u + 1013904223u) >> 26;
    for (auto &sign : motifs) sign = (drawn = drawn * 1664525u + 1013904223u) >> 26;
    std::vector<float> alike(SIGNS * SIGNS);
    for (int a = 0; a < SIGNS; ++a)
        for (int b = 0; b < SIGNS; ++b) alike[a * SIGNS + b] = a == b ? 2.0f : a / 4 == b / 4 ? 0.5f : -1.0f;

    unsigned char *scrolls, *sought;
    int *begins;
    float *likeness, *matches;
    CHECK(cudaMalloc(&scrolls, text.size()));
    CHECK(cudaMalloc(&sought, motifs.size()));
    CHECK(cudaMalloc(&begins, starts.size() * sizeof(int)));
    CHECK(cudaMalloc(&likeness, alike.size() * sizeof(float)));
    CHECK(cudaMalloc(&matches, SCROLLS * sizeof(float)));
    CHECK(cudaMemcpy(scrolls, text.data(), text.size(), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(sought, motifs.data(), motifs.size(), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(begins, starts.data(), starts.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(likeness, alike.data(), alike.size() * sizeof(float), cudaMemcpyHostToDevice));
    long steps = 0;
    auto step = [&] {
        match<<<SCROLLS, LANES>>>(scrolls, begins, likeness, sought + steps % 16 * LANES, matches);
        CHECK(cudaGetLastError());
    };
    for (int i = 0; i < 3; ++i) step();
    CHECK(cudaDeviceSynchronize());
    double began = now();
    while (now() - began < seconds) {
        step();
        if (++steps % 20 == 0) {
            float last;
            CHECK(cudaMemcpy(&last, matches + SCROLLS - 1, sizeof last, cudaMemcpyDeviceToHost));
            if (steps % 200 == 0) std::printf("%ld motifs: %.1f in the longest scroll\n", steps, last);
        }
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%.3f steps/s\n", steps / (now() - began));
    for (void *memory : {(void *)scrolls, (void *)sought, (void *)begins, (void *)likeness, (void *)matches}) CHECK(cudaFree(memory));
    return 0;
}
