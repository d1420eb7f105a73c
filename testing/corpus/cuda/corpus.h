// How every CUDA C++ program of the corpus is run: once for a session, or in pairs for the saving of its remedy.
//
//     PROGRAM [--remedy] [--seconds S] [--steps N] [--small]    runs the step for S seconds or N steps, prints one time
//     PROGRAM --pairs N [--seconds S] [--small]                 N times: S seconds without the remedy, then with it
//
// A program calls `corpus(argc, argv, build)`. `build(remedy)` returns the step: a function that queues the work of one
// iteration. `--small` is for the CPU device: `sized(large, small)` says how large things are. Each line that is printed is
// JSON: {"remedy": false, "steps": 812, "step_ms": 3.69}.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t status = (call);                                                                                   \
        if (status != cudaSuccess) {                                                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(status));                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

using Step = std::function<void()>;

inline bool small_sizes = false;

inline long sized(long large, long small) { return small_sizes ? small : large; }

// Device memory that is filled with bytes; freed when the process ends.
template <typename T> T *device_array(size_t count, int byte = 0) {
    T *data;
    CUDA(cudaMalloc(&data, count * sizeof(T)));
    CUDA(cudaMemset(data, byte, count * sizeof(T)));
    return data;
}

inline void timed(bool remedy, const Step &step, double seconds, long most) {
    using Clock = std::chrono::steady_clock;
    CUDA(cudaDeviceSynchronize());
    auto began = Clock::now();
    auto spent = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
    // Launches only queue work: how many steps fill the time, three that are waited for tell.
    for (int i = 0; i < 3; i++) step();
    CUDA(cudaDeviceSynchronize());
    long steps = std::max(1l, std::min(most, long(seconds * 3 / spent())));
    began = Clock::now();
    for (long i = 0; i < steps; i++) step();
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
    printf("{\"remedy\": %s, \"steps\": %ld, \"step_ms\": %.5f}\n", remedy ? "true" : "false", steps, spent() * 1e3 / steps);
}

template <typename Build> int corpus(int argc, char **argv, Build build) {
    bool remedy = false;
    double seconds = 3;
    long most = 1000000000, pairs = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--remedy")) remedy = true;
        else if (!strcmp(argv[i], "--small")) small_sizes = true;
        else if (!strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = atof(argv[++i]);
        else if (!strcmp(argv[i], "--steps") && i + 1 < argc) most = atol(argv[++i]);
        else if (!strcmp(argv[i], "--pairs") && i + 1 < argc) pairs = atol(argv[++i]);
        else return fprintf(stderr, "%s: unknown argument %s\n", argv[0], argv[i]), 2;
    }
    if (pairs == 0) {
        Step step = build(remedy);
        step();
        timed(remedy, step, seconds, most);
        return 0;
    }
    Step steps[] = {build(false), build(true)};
    for (const Step &step : steps) step();
    for (long pair = 0; pair < pairs; pair++)
        for (int with : {0, 1}) timed(with, steps[with], seconds, most);
    return 0;
}
