// The driver API in C: modules and libraries, functions and kernels, arguments both ways, every launch call, graphs built
// with driver calls, two contexts. Same contract as output.h.
//
//   driver_api CUBIN PTX       (driver_kernels.cu)
#include "../driver.h"

#define N 30000
#define BLOCKS ((N + 127) / 128)

static CUdeviceptr x, y;
static int n = N;
static unsigned factor;
static void *arguments[] = {&x, &y, &factor, &n};
static long launches;

static CUdeviceptr random_device(uint64_t seed) {
  static uint32_t words[N];
  CUdeviceptr memory;
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int i = 0; i < N; i++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    words[i] = (uint32_t)(state >> 32) | 1;
  }
  CHECK(cuMemAlloc(&memory, sizeof words));
  CHECK(cuMemcpyHtoD(memory, words, sizeof words));
  return memory;
}

static void write_words(CUdeviceptr memory) {
  static uint32_t words[N];
  CHECK(cuMemcpyDtoH(words, memory, sizeof words));
  fwrite(words, sizeof words, 1, stdout);
}

// `times` launches of `f` by each launch call that takes it.
static void launch_all_ways(CUfunction f, CUstream stream, int times) {
  struct {
    CUdeviceptr x, y;
    unsigned factor;
    int n;
  } packed;
  size_t packed_bytes = sizeof packed;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_bytes, CU_LAUNCH_PARAM_END};
  CUlaunchConfig config = {.gridDimX = BLOCKS, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1,
                           .hStream = stream};
  for (int k = 0; k < times; k++, launches += 3) {
    factor = 2 * k + 3;
    CHECK(cuLaunchKernel(f, BLOCKS, 1, 1, 128, 1, 1, 0, stream, arguments, NULL));
    packed.x = x, packed.y = y, packed.factor = factor + 2, packed.n = n;
    CHECK(cuLaunchKernel(f, BLOCKS, 1, 1, 128, 1, 1, 0, stream, NULL, extra));
    CHECK(cuLaunchKernelEx(&config, f, arguments, NULL));
  }
}

static void launch_cooperative(CUfunction f, CUstream stream, int times) {
  CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
  CUlaunchConfig config = {.gridDimX = 40, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 2, .blockDimZ = 1,
                           .hStream = stream, .attrs = &attribute, .numAttrs = 1};
  for (int k = 0; k < times; k++, launches += 2) {
    factor = 2 * k + 5;
    CHECK(cuLaunchCooperativeKernel(f, 40, 1, 1, 128, 1, 1, 0, stream, arguments));
    CHECK(cuLaunchKernelEx(&config, f, arguments, NULL));
  }
}

// A kernel node takes a function or a library's kernel, each by its own name.
static void launch_graph(CUfunction f, CUkernel kernel, CUstream stream) {
  CUgraph graph;
  CUgraphNode nodes[3];
  CUgraphExec exec;
  CUDA_KERNEL_NODE_PARAMS params = {.func = f, .kern = kernel, .gridDimX = BLOCKS, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128,
                                    .blockDimY = 1, .blockDimZ = 1, .kernelParams = arguments};
  CHECK(cuGraphCreate(&graph, 0));
  for (int k = 0; k < 3; k++) {
    factor = 2 * k + 7;
    CHECK(cuGraphAddKernelNode(&nodes[k], graph, k ? &nodes[k - 1] : NULL, k ? 1 : 0, &params));
  }
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  for (int k = 0; k < 10; k++, launches += 3) CHECK(cuGraphLaunch(exec, stream));
  CHECK(cuStreamSynchronize(stream));
  factor = 31;
  CHECK(cuGraphExecKernelNodeSetParams(exec, nodes[1], &params));
  for (int k = 0; k < 5; k++, launches += 3) CHECK(cuGraphLaunch(exec, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
}

int main(int argc, char **argv) {
  if (argc != 3) return fprintf(stderr, "usage: driver_api CUBIN PTX\n"), 2;
  CUcontext context, second;
  CUdevice device = first_device(&context);
  CUmodule cubin, ptx;
  CUlibrary library;
  CUkernel kernel;
  CUfunction f, from_ptx, of_kernel, cooperative;
  CUstream stream;
  CHECK(cuModuleLoad(&cubin, argv[1]));
  CHECK(cuModuleLoad(&ptx, argv[2]));
  CHECK(cuLibraryLoadFromFile(&library, argv[1], NULL, NULL, 0, NULL, NULL, 0));
  CHECK(cuModuleGetFunction(&f, cubin, "mix"));
  CHECK(cuModuleGetFunction(&cooperative, cubin, "rotate"));
  CHECK(cuModuleGetFunction(&from_ptx, ptx, "mix"));
  CHECK(cuLibraryGetKernel(&kernel, library, "mix"));
  CHECK(cuKernelGetFunction(&of_kernel, kernel));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  x = random_device(1), y = random_device(2);
  launch_all_ways(f, stream, 100);
  launch_all_ways((CUfunction)kernel, stream, 100);
  CHECK(cuStreamSynchronize(stream));
  launch_all_ways(of_kernel, CU_STREAM_LEGACY, 50);
  launch_all_ways(from_ptx, NULL, 50);
  CHECK(cuCtxSynchronize());
  launch_all_ways(f, CU_STREAM_PER_THREAD, 50);
  CHECK(cuCtxSynchronize());
  launch_cooperative(cooperative, stream, 20);
  CHECK(cuCtxSynchronize());
  launch_graph(f, NULL, stream);
  launch_graph(NULL, kernel, stream);
  write_words(x);

  // A module that goes: its handles may come again for other functions.
  for (int k = 0; k < 5; k++) {
    CUmodule again;
    CUfunction g;
    CHECK(cuModuleLoad(&again, argv[k % 2 + 1]));
    CHECK(cuModuleGetFunction(&g, again, k % 2 ? "rotate" : "mix"));
    if (k % 2) launch_cooperative(g, stream, 3);
    else launch_all_ways(g, stream, 3);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuModuleUnload(again));
  }
  write_words(x);

  // A second context has its own module, stream and memory.
  CUdeviceptr first_x = x;
  CHECK(cuCtxCreate(&second, NULL, 0, device));
  CHECK(cuModuleLoad(&cubin, argv[1]));
  CHECK(cuModuleGetFunction(&f, cubin, "mix"));
  CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  x = random_device(3), y = random_device(4);
  launch_all_ways(f, stream, 40);
  launch_all_ways((CUfunction)kernel, stream, 40);
  CHECK(cuCtxSynchronize());
  write_words(x);
  CHECK(cuCtxDestroy(second));
  CHECK(cuCtxSetCurrent(context));
  write_words(first_x);
  fprintf(stderr, "launches %ld\n", launches);
  return 0;
}
