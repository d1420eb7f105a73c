// What the programs here share. Each launches two kernels again and again, of which the second reads what the first has
// written, element by element: `apex fuse` makes one of them (scripts/gpu/fuse.py). The arguments are the number of 4-byte
// words of an array and of rounds. The checksum of all arrays must stay what it is, bit by bit.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <utility>
#include <vector>

inline void check(cudaError_t error) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

inline std::pair<int, int> given(int count, char **arguments) {
    return {count > 1 ? std::atoi(arguments[1]) : 1 << 16, count > 2 ? std::atoi(arguments[2]) : 3};
}

// Device memory with `count` values from 0 to 1 that repeat nowhere.
template <typename T> T *filled(int count) {
    static uint32_t state = 1;
    std::vector<T> host(count);
    for (T &value : host) {
        state = state * 1664525u + 1013904223u;
        value = T(state >> 8) / 16777216.0f;
    }
    T *device = nullptr;
    check(cudaMalloc(&device, count * sizeof(T)));
    check(cudaMemcpy(device, host.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

inline std::pair<const void *, int> words(const void *device, int count) { return {device, count}; }

// Prints a checksum of all bits of these arrays.
inline void printed(std::initializer_list<std::pair<const void *, int>> arrays) {
    check(cudaDeviceSynchronize());
    uint64_t sum = 0xcbf29ce484222325ull;
    for (auto [device, count] : arrays) {
        std::vector<uint32_t> host(count);
        check(cudaMemcpy(host.data(), device, count * sizeof(uint32_t), cudaMemcpyDeviceToHost));
        for (uint32_t value : host) {
            sum = (sum ^ value) * 0x100000001b3ull;
        }
    }
    std::printf("%016llx\n", static_cast<unsigned long long>(sum));
}
