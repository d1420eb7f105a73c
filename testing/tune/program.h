// What the programs here share: calls that must succeed, memory, and the checksum that each prints.
//
// Each program launches one kernel again and again in blocks that cost time: few threads, many registers, or tall blocks over rows.
// `apex tune` finds better ones (scripts/gpu/tune.py), and the checksum must stay what it is, bit by bit.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

inline void check(cudaError_t error) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

// Device memory with `count` values that repeat nowhere.
inline float *values(int count) {
    std::vector<float> host(count);
    uint32_t state = 1;
    for (float &value : host) {
        state = state * 1664525u + 1013904223u;
        value = float(state >> 8) / 16777216.0f;
    }
    float *device = nullptr;
    check(cudaMalloc(&device, count * sizeof(float)));
    check(cudaMemcpy(device, host.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    return device;
}

// Prints a checksum of all bits.
inline void finish(const float *device, int count) {
    std::vector<uint32_t> host(count);
    check(cudaMemcpy(host.data(), device, count * sizeof(float), cudaMemcpyDeviceToHost));
    uint64_t sum = 0xcbf29ce484222325ull;
    for (uint32_t value : host) {
        sum = (sum ^ value) * 0x100000001b3ull;
    }
    std::printf("%016llx\n", static_cast<unsigned long long>(sum));
}
