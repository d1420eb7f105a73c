// A CUPTI injection that counts and times kernels: the other opinion that APEX is compared with.
//
// The driver loads it into a program at cuInit when CUDA_INJECTION64_PATH names it. It enables one kind of activity,
// CONCURRENT_KERNEL, with which CUPTI reports each kernel, those inside CUDA graphs too. At exit it writes
// $CUPTI_COUNT_DIR/<pid>.csv: for every kernel and launch shape how often it ran, how many of those runs came from
// graphs, and the quantiles of its durations. Its last line says how many records CUPTI itself dropped.
#include "statistics.h"
#include <cupti.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <unistd.h>
#include <vector>

namespace {

constexpr size_t buffer_bytes = 8 << 20;

using Shape = std::tuple<std::string, int, int, int, int, int, int, int>;  // name, grid, block, dynamic shared

struct Seen {
  unsigned long long count = 0, in_graphs = 0;
  std::vector<double> nanoseconds;
};

std::mutex guard;
std::map<Shape, Seen> *seen = new std::map<Shape, Seen>;  // never destroyed: CUPTI's thread may outlive `main`
unsigned long long dropped;

void check(CUptiResult result, const char *what) {
  if (result == CUPTI_SUCCESS) return;
  const char *text = "?";
  cuptiGetResultString(result, &text);
  std::fprintf(stderr, "cupti_count: %s: %s\n", what, text);
}

void CUPTIAPI requested(uint8_t **buffer, size_t *size, size_t *records) {
  *buffer = static_cast<uint8_t *>(std::aligned_alloc(8, buffer_bytes));
  *size = *buffer ? buffer_bytes : 0;
  *records = 0;
}

void CUPTIAPI completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t, size_t valid) {
  std::lock_guard<std::mutex> lock(guard);
  CUpti_Activity *record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && record->kind != CUPTI_ACTIVITY_KIND_KERNEL) continue;
    CUpti_ActivityKernel10 k = *reinterpret_cast<CUpti_ActivityKernel10 *>(record);  // the record is packed: its fields cannot be referred to
    Seen &entry = (*seen)[Shape(k.name ? k.name : "?", int{k.gridX}, int{k.gridY}, int{k.gridZ}, int{k.blockX}, int{k.blockY},
                                int{k.blockZ}, int{k.dynamicSharedMemory})];
    entry.count++;
    entry.in_graphs += k.graphNodeId != 0;
    entry.nanoseconds.push_back(static_cast<double>(k.end - k.start));
  }
  size_t lost = 0;
  if (cuptiActivityGetNumDroppedRecords(context, stream, &lost) == CUPTI_SUCCESS) dropped += lost;
  std::free(buffer);
}

void finish() {
  check(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "flush");
  std::lock_guard<std::mutex> lock(guard);
  const char *directory = std::getenv("CUPTI_COUNT_DIR");
  std::string path = std::string(directory ? directory : ".") + "/" + std::to_string(getpid()) + ".csv";
  FILE *file = std::fopen(path.c_str(), "w");
  if (!file) return std::perror(path.c_str());
  std::fprintf(file, "name,grid_x,grid_y,grid_z,block_x,block_y,block_z,dynamic_shared,count,in_graphs,p10_ns,median_ns,p90_ns\n");
  for (auto &[shape, entry] : *seen) {
    Sorted durations = sorted(entry.nanoseconds.data(), entry.nanoseconds.size());
    auto &[name, gx, gy, gz, bx, by, bz, shared] = shape;
    std::fprintf(file, "\"%s\",%d,%d,%d,%d,%d,%d,%d,%llu,%llu,%.0f,%.0f,%.0f\n", name.c_str(), gx, gy, gz, bx, by, bz, shared,
                 entry.count, entry.in_graphs, quantile(durations, 0.1), quantile(durations, 0.5), quantile(durations, 0.9));
  }
  std::fprintf(file, "# dropped %llu\n", dropped);
  std::fclose(file);
}

}  // namespace

// The driver calls this by name.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  check(cuptiActivityRegisterCallbacks(requested, completed), "register callbacks");
  check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "enable CONCURRENT_KERNEL");
  std::atexit(finish);
  return 1;
}
