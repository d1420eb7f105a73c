// What every program of this folder shares: calls that must succeed, values that must be right, random input.
//
// A program ends with 0 when everything that it computed on the device is what it computed on the host; else it names
// the first difference and ends with 1. Its last line says how many values were compared and how many kernels it
// launched: the tests compare the second number with what was recorded.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t status = (call);                                                                                   \
        if (status != cudaSuccess) {                                                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(status));                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define EXPECT(condition) expect(condition, #condition, __FILE__, __LINE__)

inline int compared = 0;
inline int launched = 0;

inline void expect(bool holds, const char *condition, const char *file, int line) {
    compared++;
    if (!holds) {
        fprintf(stderr, "%s:%d: not so: %s\n", file, line, condition);
        exit(1);
    }
}

// Counts launches: `LAUNCH(kernel<<<...>>>(...))`, and checks that each was accepted.
#define LAUNCH(...)                                                                                                    \
    do {                                                                                                               \
        __VA_ARGS__;                                                                                                   \
        launched++;                                                                                                    \
        CUDA(cudaGetLastError());                                                                                      \
    } while (0)

// Compares two arrays, element by element, with a relative bound (0: the same value).
template <typename T>
void expect_equal(const char *what, const std::vector<T> &found, const std::vector<T> &right, double bound = 0) {
    for (size_t i = 0; i < right.size(); i++) {
        double difference = std::fabs(double(found[i]) - double(right[i]));
        compared++;
        if (!(difference <= bound * std::fmax(1.0, std::fabs(double(right[i]))))) {
            fprintf(stderr, "%s[%zu] is %.9g, not %.9g\n", what, i, double(found[i]), double(right[i]));
            exit(1);
        }
    }
}

// splitmix64: the same sequence on every machine.
struct Random {
    uint64_t state;
    uint64_t next() {
        uint64_t x = state += 0x9e3779b97f4a7c15u;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        return x ^ (x >> 31);
    }
    uint32_t below(uint32_t limit) { return uint32_t(next() % limit); }
    float unit() { return float(next() >> 40) / float(1 << 24); }
    template <typename T> std::vector<T> integers(size_t count, uint32_t limit) {
        std::vector<T> values(count);
        for (auto &value : values) value = T(below(limit));
        return values;
    }
    std::vector<float> floats(size_t count) {
        std::vector<float> values(count);
        for (auto &value : values) value = 2 * unit() - 1;
        return values;
    }
};

// An array on the device.
template <typename T> struct Device {
    T *data = nullptr;
    size_t count;
    explicit Device(size_t n) : count(n) { CUDA(cudaMalloc(&data, n * sizeof(T))); }
    explicit Device(const std::vector<T> &host) : Device(host.size()) {
        CUDA(cudaMemcpy(data, host.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    }
    Device(const Device &) = delete;
    ~Device() { CUDA(cudaFree(data)); }
    std::vector<T> host() const {
        std::vector<T> values(count);
        CUDA(cudaMemcpy(values.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
        return values;
    }
};

inline int done() {
    CUDA(cudaDeviceSynchronize());
    printf("%d values right, %d kernels launched\n", compared, launched);
    return 0;
}
