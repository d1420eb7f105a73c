// The ways in which a CUDA program's step is launched, for scheduling.py, which writes these macros into public programs: the
// variable WAY says `serial` (as the program does it), `graph` (the step as a CUDA graph of one stream), `streams` (by hand) or
// `branches` (a CUDA graph of these streams).
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

namespace ways {
enum { LANES = 4 };

inline bool is(const char *way) {
  const char *wanted = getenv("WAY");
  return wanted && !strcmp(wanted, way);
}

inline void check(cudaError_t result) {
  if (result != cudaSuccess) {
    fprintf(stderr, "ways.h: %s\n", cudaGetErrorString(result));
    exit(1);
  }
}

struct Ways {
  bool graph = is("graph") || is("branches"), streams = is("streams") || is("branches");
  cudaStream_t lanes[LANES] = {};
  cudaEvent_t begun = nullptr, ended[LANES] = {};
  cudaGraphExec_t step = nullptr;

  Ways() {
    // A graph cannot be captured from the legacy stream, into which the program launches.
    if (!graph && !streams) return;
    for (int lane = 0; lane < LANES; lane++) {
      check(cudaStreamCreateWithFlags(&lanes[lane], cudaStreamNonBlocking));
      check(cudaEventCreateWithFlags(&ended[lane], cudaEventDisableTiming));
    }
    check(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
  }

  cudaStream_t lane(int number) { return lanes[streams ? number : 0]; }

  // A program's next loop has another step.
  void restart() {
    if (step) check(cudaGraphExecDestroy(step));
    step = nullptr;
  }

  // All lanes go on behind the first one.
  void fork() {
    if (!streams) return;
    check(cudaEventRecord(begun, lanes[0]));
    for (int lane = 1; lane < LANES; lane++) check(cudaStreamWaitEvent(lanes[lane], begun, 0));
  }

  // The first lane goes on behind all others.
  void join() {
    if (!streams) return;
    for (int lane = 1; lane < LANES; lane++) {
      check(cudaEventRecord(ended[lane], lanes[lane]));
      check(cudaStreamWaitEvent(lanes[0], ended[lane], 0));
    }
  }

  // Whether the kernels of this step have to be launched: a graph has them.
  bool begin() {
    if (graph && step) {
      check(cudaGraphLaunch(step, lanes[0]));
      return false;
    }
    if (graph) check(cudaStreamBeginCapture(lanes[0], cudaStreamCaptureModeRelaxed));
    return true;
  }

  void end() {
    if (!graph) return;
    cudaGraph_t captured;
    check(cudaStreamEndCapture(lanes[0], &captured));
    check(cudaGraphInstantiate(&step, captured, 0));
    check(cudaGraphLaunch(step, lanes[0]));
  }
};

inline Ways &all() {
  static Ways ways;
  return ways;
}
} // namespace ways

#define LANE(number) ways::all().lane(number)
#define FORK ways::all().fork();
#define JOIN ways::all().join();
#define SEAM JOIN FORK
