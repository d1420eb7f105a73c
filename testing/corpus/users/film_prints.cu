// Old films are printed anew: each frame's three colours are balanced on the GPU, and come back as planes for the printer.
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

constexpr int WIDTH = 4096, HEIGHT = 3112, COLOURS = 3, THREADS = 256;
constexpr size_t PIXELS = size_t(WIDTH) * HEIGHT;

__global__ void balance(const float *__restrict__ film, float *__restrict__ planes, float gain, int frame) {
    size_t pixel = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (pixel >= PIXELS) return;
    float grey = film[(pixel + frame * 9973) % PIXELS];
    planes[pixel] = fminf(1.0f, grey * gain * 1.06f);
    planes[pixel + PIXELS] = fminf(1.0f, grey * gain);
    planes[pixel + 2 * PIXELS] = fminf(1.0f, grey * gain * 0.93f);
}

struct Print {
    std::vector<float> planes[COLOURS];
};

Print developed(const float *tray) {
    Print print;
    for (int colour = 0; colour < COLOURS; ++colour)
        print.planes[colour].assign(tray + colour * PIXELS, tray + (colour + 1) * PIXELS);
    return print;
}

float brightness(const Print &print) {
    float sum = 0;
    for (const auto &plane : print.planes)
        for (size_t pixel = 0; pixel < PIXELS; pixel += 65'521) sum += plane[pixel];
    return sum / (COLOURS * (PIXELS / 65'521 + 1));
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    double seconds = 4;
    for (int i = 1; i < argc; ++i)
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    std::vector<float> scan(PIXELS);
    for (size_t i = 0; i < PIXELS; ++i) scan[i] = float((i * 2654435761u % 1000) / 1000.0);
    float *film, *planes, *tray;
    CHECK(cudaMalloc(&film, PIXELS * sizeof(float)));
    CHECK(cudaMalloc(&planes, COLOURS * PIXELS * sizeof(float)));
    CHECK(cudaMallocHost(&tray, COLOURS * PIXELS * sizeof(float)));
    CHECK(cudaMemcpy(film, scan.data(), PIXELS * sizeof(float), cudaMemcpyHostToDevice));
    float gain = 1.0f;
    int frame = 0;
    auto step = [&] {
        balance<<<unsigned((PIXELS + THREADS - 1) / THREADS), THREADS>>>(film, planes, gain, ++frame);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(tray, planes, COLOURS * PIXELS * sizeof(float), cudaMemcpyDeviceToHost));
        Print print = developed(tray);
        gain *= 1.0f + 0.1f * (0.5f - brightness(print));
    };
    for (int i = 0; i < 3; ++i) step();
    double began = now();
    long steps = 0;
    while (now() - began < seconds) {
        step();
        if (++steps % 20 == 0) std::printf("frame %d: gain %.3f\n", frame, gain);
    }
    std::printf("%.3f steps/s\n", steps / (now() - began));
    CHECK(cudaFreeHost(tray));
    CHECK(cudaFree(planes));
    CHECK(cudaFree(film));
    return 0;
}
