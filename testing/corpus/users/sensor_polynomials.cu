// Corrects the readings of many pressure sensors: each has its own polynomial.
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

constexpr int SENSORS = 4096, READINGS = 16384, TERMS = 9;

__global__ void correct(const float *readings, const float *terms, float *pressures, int degree) {
    int sensor = blockIdx.y;
    const float *own = terms + sensor * TERMS;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < READINGS; i += gridDim.x * blockDim.x) {
        float reading = readings[size_t(sensor) * READINGS + i];
        float pressure = 0.0f;
        for (int k = 0; k <= degree; ++k) pressure += own[k] * powf(reading, k);
        pressures[size_t(sensor) * READINGS + i] = pressure;
    }
}

__global__ void correct_nested(const float *readings, const float *terms, float *pressures, int degree) {
    int sensor = blockIdx.y;
    const float *own = terms + sensor * TERMS;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < READINGS; i += gridDim.x * blockDim.x) {
        float reading = readings[size_t(sensor) * READINGS + i];
        float pressure = own[degree];
        for (int k = degree - 1; k >= 0; --k) pressure = fmaf(pressure, reading, own[k]);
        pressures[size_t(sensor) * READINGS + i] = pressure;
    }
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
    size_t count = size_t(SENSORS) * READINGS;
    std::vector<float> some(count), factors(SENSORS * TERMS);
    for (size_t i = 0; i < count; ++i) some[i] = 0.2f + float(i * 2654435761u % 1000u) / 900.0f;
    for (size_t i = 0; i < factors.size(); ++i) factors[i] = 1.0f / float(1 + i % 17);
    float *readings, *terms, *pressures;
    CHECK(cudaMalloc(&readings, count * sizeof(float)));
    CHECK(cudaMalloc(&pressures, count * sizeof(float)));
    CHECK(cudaMalloc(&terms, factors.size() * sizeof(float)));
    CHECK(cudaMemcpy(readings, some.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(terms, factors.data(), factors.size() * sizeof(float), cudaMemcpyHostToDevice));
    dim3 grid(8, SENSORS);
    auto launch = [&] {
        if (remedied) correct_nested<<<grid, 256>>>(readings, terms, pressures, TERMS - 1);
        else correct<<<grid, 256>>>(readings, terms, pressures, TERMS - 1);
        CHECK(cudaGetLastError());
    };
    for (int i = 0; i < 5; ++i) launch();
    CHECK(cudaDeviceSynchronize());
    double began = now();
    long steps = 0;
    while (now() - began < seconds) {
        launch();
        if (++steps % 1000 == 0) {
            float first;
            CHECK(cudaMemcpy(&first, pressures, sizeof first, cudaMemcpyDeviceToHost));
            std::printf("%ld: %.4f\n", steps, first);
        }
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%.3f steps/s\n", steps / (now() - began));
    return 0;
}
