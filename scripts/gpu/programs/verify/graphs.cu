// CUDA graphs in every way that changes how many kernels one launch runs: captured, built by hand, cloned, with child
// graphs, updated whole and node by node, with disabled nodes, from several threads.
#include "output.h"
#include <thread>

static const int n = 20000, blocks = (n + 255) / 256;
static long launches;

static void launch(cudaGraphExec_t graph, cudaStream_t stream, int times, int kernels) {
  for (int k = 0; k < times; k++, launches += kernels) CHECK(cudaGraphLaunch(graph, stream));
}

// `kernels` kernels, a copy and a set, captured from `stream`.
static cudaGraph_t capture(cudaStream_t stream, uint32_t *x, uint32_t *y, int kernels, uint32_t factor) {
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int k = 0; k < kernels; k++) mix<<<blocks, 256, 0, stream>>>(x, y, factor + 2 * k, n);
  CHECK(cudaMemsetAsync(y, 0x11, 64, stream));
  CHECK(cudaMemcpyAsync(y + 100, x, 400, cudaMemcpyDeviceToDevice, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

static cudaGraphNode_t add_mix(cudaGraph_t graph, cudaGraphNode_t *after, uint32_t *x, uint32_t *y, uint32_t factor) {
  int count = n;
  void *arguments[] = {&x, &y, &factor, &count};
  cudaKernelNodeParams params = {};
  params.func = (void *)mix;
  params.gridDim = dim3(blocks);
  params.blockDim = dim3(256);
  params.kernelParams = arguments;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddKernelNode(&node, graph, after, after ? 1 : 0, &params));
  return node;
}

int main() {
  uint32_t *x = random_device(n, 6), *y = random_device(n, 7), *sums;
  cudaStream_t stream;
  CHECK(cudaMalloc(&sums, blocks * sizeof *sums));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

  // Captured, launched often, with eager launches between.
  cudaGraph_t captured = capture(stream, x, y, 10, 3);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, captured, 0));
  for (int k = 0; k < 20; k++, launches++) {
    launch(exec, stream, 10, 10);
    mix<<<blocks, 256, 0, stream>>>(x, y, 5, n);
  }

  // The whole graph updated: same shape, other arguments.
  cudaGraph_t other = capture(stream, x, y, 10, 101);
  cudaGraphExecUpdateResultInfo info;
  CHECK(cudaGraphExecUpdate(exec, other, &info));
  launch(exec, stream, 15, 10);

  // Built by hand, with a child graph of two kernels that is in it twice.
  cudaGraph_t child, built;
  CHECK(cudaGraphCreate(&child, 0));
  cudaGraphNode_t first = add_mix(child, nullptr, x, y, 7);
  add_mix(child, &first, x, y, 9);
  CHECK(cudaGraphCreate(&built, 0));
  cudaGraphNode_t a, b, c = add_mix(built, nullptr, x, y, 11);
  CHECK(cudaGraphAddChildGraphNode(&a, built, &c, 1, child));
  cudaGraphNode_t d = add_mix(built, &a, x, y, 13);
  CHECK(cudaGraphAddChildGraphNode(&b, built, &d, 1, child));
  cudaGraphExec_t built_exec;
  CHECK(cudaGraphInstantiate(&built_exec, built, 0));
  CHECK(cudaGraphUpload(built_exec, stream));
  launch(built_exec, stream, 25, 6);

  // One node with another grid and factor; then one node disabled, and enabled again.
  int half = n / 2;
  uint32_t factor = 17;
  void *arguments[] = {&x, &y, &factor, &half};
  cudaKernelNodeParams params = {};
  params.func = (void *)mix;
  params.gridDim = dim3((half + 127) / 128);
  params.blockDim = dim3(128);
  params.kernelParams = arguments;
  CHECK(cudaGraphExecKernelNodeSetParams(built_exec, c, &params));
  launch(built_exec, stream, 5, 6);
  CHECK(cudaGraphNodeSetEnabled(built_exec, d, 0));
  launch(built_exec, stream, 4, 5);
  CHECK(cudaGraphNodeSetEnabled(built_exec, d, 1));
  launch(built_exec, stream, 3, 6);

  // A clone, instantiated with flags, launched into the null stream.
  cudaGraph_t clone;
  cudaGraphExec_t clone_exec;
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphClone(&clone, built));
  CHECK(cudaGraphInstantiateWithFlags(&clone_exec, clone, cudaGraphInstantiateFlagAutoFreeOnLaunch));
  launch(clone_exec, nullptr, 8, 6);
  CHECK(cudaDeviceSynchronize());

  // A graph that has no kernel at all.
  cudaGraph_t empty = capture(stream, x, y, 0, 1);
  cudaGraphExec_t empty_exec;
  CHECK(cudaGraphInstantiate(&empty_exec, empty, 0));
  launch(empty_exec, stream, 5, 0);
  CHECK(cudaStreamSynchronize(stream));

  // Four threads, each with its own graph over its own words.
  std::vector<std::thread> threads;
  uint32_t *own[4], *same = random_device(n, 8);
  for (int t = 0; t < 4; t++) own[t] = random_device(n, 10 + t);
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&, t] {
      cudaStream_t s;
      cudaGraph_t g;
      cudaGraphExec_t e;
      CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
      CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
      for (int k = 0; k < 3; k++) mix<<<blocks, 256, 0, s>>>(own[t], same, 2 * k + 3, n);
      CHECK(cudaStreamEndCapture(s, &g));
      CHECK(cudaGraphInstantiate(&e, g, 0));
      for (int k = 0; k < 200; k++) CHECK(cudaGraphLaunch(e, s));
      CHECK(cudaStreamSynchronize(s));
      CHECK(cudaGraphExecDestroy(e));
      CHECK(cudaGraphDestroy(g));
    });
  for (auto &t : threads) t.join();
  launches += 4 * 200 * 3;

  block_sums<<<blocks, 256, 1024>>>(x, sums, n), launches++;
  CHECK(cudaDeviceSynchronize());
  write_words(x, n);
  write_words(y, n);
  write_words(sums, blocks);
  for (auto &o : own) write_words(o, n);
  say_launches(launches);
}
