// What a driver answers to launches that no device can run, and what becomes of a texture object that is destroyed
// behind the launch that reads it. One line for each question; scripts/gpu/differential.sh runs it.
//
// The driver is opened by name, so nothing but the CUDA runtime is linked.

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

template <typename Function>
Function driver(const char* symbol) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW);
  void* found = library ? dlsym(library, symbol) : nullptr;
  if (!found) {
    std::printf("no %s\n", symbol);
    std::exit(1);
  }
  return reinterpret_cast<Function>(found);
}

const char* name(CUresult code) {
  const char* text = nullptr;
  static auto get = driver<CUresult (*)(CUresult, const char**)>("cuGetErrorName");
  return get(code, &text) == CUDA_SUCCESS && text ? text : "?";
}

const char* module_text = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry large() .maxntid 128 { ret; }
.visible .entry slow(.param .u64 out, .param .u64 texture, .param .u64 rounds)
{
  .reg .b64 %d<5>;
  .reg .b32 %r<8>;
  .reg .pred %p;
  ld.param.u64 %d0, [out];
  ld.param.u64 %d1, [texture];
  ld.param.u64 %d2, [rounds];
again:
  nanosleep.u32 100000;
  sub.u64 %d2, %d2, 1;
  setp.ne.u64 %p, %d2, 0;
  @%p bra again;
  mov.u32 %r0, %tid.x;
  tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%d1, {%r0}];
  mad.wide.u32 %d0, %r0, 4, %d0;
  st.global.u32 [%d0], %r1;
  ret;
}
)";

__global__ void nothing() {}

void driver_launches(CUmodule module) {
  static auto get = driver<CUresult (*)(CUfunction*, CUmodule, const char*)>("cuModuleGetFunction");
  static auto launch = driver<CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                           CUstream, void**, void**)>("cuLaunchKernel");
  static auto cooperative = driver<CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                                unsigned, CUstream, void**)>("cuLaunchCooperativeKernel");
  static auto attribute =
      driver<CUresult (*)(CUfunction, CUfunction_attribute, int)>("cuFuncSetAttribute");
  static auto wait = driver<CUresult (*)()>("cuCtxSynchronize");
  struct Case {
    const char* what;
    unsigned grid[3], block[3], shared;
  };
  const Case cases[] = {
      {"one thread", {1, 1, 1}, {1, 1, 1}, 0},
      {"block (2048,1,1)", {1, 1, 1}, {2048, 1, 1}, 0},
      {"block (1024,2,1)", {1, 1, 1}, {1024, 2, 1}, 0},
      {"block (1,1025,1)", {1, 1, 1}, {1, 1025, 1}, 0},
      {"block (1,1,65)", {1, 1, 1}, {1, 1, 65}, 0},
      {"block (32,32,2)", {1, 1, 1}, {32, 32, 2}, 0},
      {"block (0,1,1)", {1, 1, 1}, {0, 1, 1}, 0},
      {"block (1,1,0)", {1, 1, 1}, {1, 1, 0}, 0},
      {"grid (2147483647,1,1)", {2147483647u, 1, 1}, {1, 1, 1}, 0},
      {"grid (2147483648,1,1)", {2147483648u, 1, 1}, {1, 1, 1}, 0},
      {"grid (4294967295,1,1)", {4294967295u, 1, 1}, {1, 1, 1}, 0},
      {"grid (1,65535,1)", {1, 65535, 1}, {1, 1, 1}, 0},
      {"grid (1,65536,1)", {1, 65536, 1}, {1, 1, 1}, 0},
      {"grid (1,1,65536)", {1, 1, 65536}, {1, 1, 1}, 0},
      {"grid (0,1,1)", {0, 1, 1}, {1, 1, 1}, 0},
      {"grid (1,0,1)", {1, 0, 1}, {1, 1, 1}, 0},
      {"grid (1,1,0)", {1, 1, 0}, {1, 1, 1}, 0},
      {"shared memory 49152", {1, 1, 1}, {1, 1, 1}, 49152},
      {"shared memory 49153", {1, 1, 1}, {1, 1, 1}, 49153},
      {"shared memory 300000", {1, 1, 1}, {1, 1, 1}, 300000},
      {"shared memory 4294967295", {1, 1, 1}, {1, 1, 1}, 4294967295u},
      {"grid (0,1,1), block (2048,1,1)", {0, 1, 1}, {2048, 1, 1}, 0},
      {"grid (1,65536,1), block (2048,1,1)", {1, 65536, 1}, {2048, 1, 1}, 0},
      {"block (2048,1,1), shared memory 300000", {1, 1, 1}, {2048, 1, 1}, 300000},
  };
  CUfunction kernel = nullptr, bounded = nullptr;
  get(&kernel, module, "nothing");
  get(&bounded, module, "large");
  for (const Case& c : cases) {
    // Seconds on a GPU, too long anywhere else.
    if (c.grid[0] == 2147483647u && std::getenv("SKIP_LONG")) continue;
    CUresult code = launch(kernel, c.grid[0], c.grid[1], c.grid[2], c.block[0], c.block[1], c.block[2], c.shared, nullptr,
                           nullptr, nullptr);
    const char* launched = name(code);
    std::printf("cuLaunchKernel, %s: %s, then cuCtxSynchronize: ", c.what, launched);
    std::fflush(stdout);
    std::printf("%s\n", name(wait()));
  }
  std::printf("cuLaunchKernel, .maxntid 128, block (129,1,1): %s\n",
              name(launch(bounded, 1, 1, 1, 129, 1, 1, 0, nullptr, nullptr, nullptr)));
  std::printf("cuLaunchKernel, null function: %s\n",
              name(launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr)));
  for (int bytes : {-1, 0, 49152, 166912, 232448, 232449, 300000}) {
    std::printf("cuFuncSetAttribute, MAX_DYNAMIC_SHARED_SIZE_BYTES %d: %s\n", bytes,
                name(attribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)));
  }
  std::printf("cuLaunchCooperativeKernel, grid (1000000,1,1): %s\n",
              name(cooperative(kernel, 1000000, 1, 1, 1, 1, 1, 0, nullptr, nullptr)));
  std::printf("cuLaunchCooperativeKernel, block (2048,1,1): %s\n",
              name(cooperative(kernel, 1, 1, 1, 2048, 1, 1, 0, nullptr, nullptr)));
  std::printf("cuLaunchCooperativeKernel, grid (0,1,1): %s\n",
              name(cooperative(kernel, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr)));
  std::printf("afterwards: %s\n", name(wait()));
}

void runtime_launches() {
  auto show = [](const char* what) {
    cudaError_t last = cudaGetLastError(), again = cudaGetLastError(), after = cudaDeviceSynchronize();
    std::printf("%s: cudaGetLastError %s, again %s, cudaDeviceSynchronize %s\n", what, cudaGetErrorName(last),
                cudaGetErrorName(again), cudaGetErrorName(after));
  };
  nothing<<<1, 2048>>>();
  show("<<<1, 2048>>>");
  nothing<<<1, dim3(1024, 2, 1)>>>();
  show("<<<1, (1024,2,1)>>>");
  nothing<<<1, dim3(1, 1, 65)>>>();
  show("<<<1, (1,1,65)>>>");
  nothing<<<1, 0>>>();
  show("<<<1, 0>>>");
  nothing<<<0, 1>>>();
  show("<<<0, 1>>>");
  nothing<<<2147483648u, 1>>>();
  show("<<<2147483648, 1>>>");
  nothing<<<dim3(1, 65536), 1>>>();
  show("<<<(1,65536), 1>>>");
  nothing<<<dim3(1, 1, 65536), 1>>>();
  show("<<<(1,1,65536), 1>>>");
  nothing<<<1, 1, 300000>>>();
  show("<<<1, 1, 300000>>>");
  nothing<<<1, 1, 49153>>>();
  show("<<<1, 1, 49153>>>");
  nothing<<<0, 2048>>>();
  show("<<<0, 2048>>>");
  nothing<<<1, 1>>>();
  show("<<<1, 1>>>");
}

// The texture object, and with `also_memory` what it reads, is destroyed while the kernel that reads it still sleeps.
void destroyed_texture(CUmodule module, bool also_memory) {
  static auto get = driver<CUresult (*)(CUfunction*, CUmodule, const char*)>("cuModuleGetFunction");
  static auto launch = driver<CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                           CUstream, void**, void**)>("cuLaunchKernel");
  static auto query = driver<CUresult (*)(CUstream)>("cuStreamQuery");
  static auto wait = driver<CUresult (*)()>("cuCtxSynchronize");
  static auto allocate = driver<CUresult (*)(CUdeviceptr*, size_t)>("cuMemAlloc_v2");
  static auto release = driver<CUresult (*)(CUdeviceptr)>("cuMemFree_v2");
  static auto up = driver<CUresult (*)(CUdeviceptr, const void*, size_t)>("cuMemcpyHtoD_v2");
  static auto down = driver<CUresult (*)(void*, CUdeviceptr, size_t)>("cuMemcpyDtoH_v2");
  static auto create = driver<CUresult (*)(CUtexObject*, const CUDA_RESOURCE_DESC*, const CUDA_TEXTURE_DESC*,
                                           const CUDA_RESOURCE_VIEW_DESC*)>("cuTexObjectCreate");
  static auto destroy = driver<CUresult (*)(CUtexObject)>("cuTexObjectDestroy");
  std::vector<unsigned> texels(64), results(64, 0xa5a5a5a5);
  for (unsigned i = 0; i < 64; ++i) texels[i] = 0x1000 + i * 77;
  CUdeviceptr memory = 0, out = 0;
  allocate(&memory, 256);
  allocate(&out, 256);
  up(memory, texels.data(), 256);
  up(out, results.data(), 256);
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = memory;
  resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
  resource.res.linear.numChannels = 1;
  resource.res.linear.sizeInBytes = 256;
  CUDA_TEXTURE_DESC sampler = {};
  sampler.flags = CU_TRSF_READ_AS_INTEGER;
  CUtexObject texture = 0, second = 0;
  std::printf("texture destroyed behind a launch%s: create %s", also_memory ? ", with its memory" : "",
              name(create(&texture, &resource, &sampler, nullptr)));
  CUfunction kernel = nullptr;
  get(&kernel, module, "slow");
  // About half a second.
  unsigned long long rounds = 5000;
  void* arguments[] = {&out, &texture, &rounds};
  std::printf(", launch %s", name(launch(kernel, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr)));
  std::printf(", query %s", name(query(nullptr)));
  std::printf(", destroy %s", name(destroy(texture)));
  std::printf(", query %s", name(query(nullptr)));
  if (also_memory) std::printf(", free %s, query %s", name(release(memory)), name(query(nullptr)));
  else {
    // Another object may take its place.
    resource.res.linear.devPtr = out;
    std::printf(", create another %s (%s handle)", name(create(&second, &resource, &sampler, nullptr)),
                second == texture ? "the same" : "another");
  }
  std::printf(", synchronize %s", name(wait()));
  std::printf(", download %s", name(down(results.data(), out, 256)));
  unsigned right = 0, zero = 0, untouched = 0;
  for (unsigned i = 0; i < 64; ++i) {
    right += results[i] == texels[i];
    zero += results[i] == 0;
    untouched += results[i] == 0xa5a5a5a5;
  }
  std::printf(": %u of 64 right, %u zero, %u untouched\n", right, zero, untouched);
}

void destroyed_twice() {
  static auto destroy = driver<CUresult (*)(CUtexObject)>("cuTexObjectDestroy");
  std::printf("cuTexObjectDestroy of a handle that is none: %s\n", name(destroy(0x123456789)));
}

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  cudaFree(nullptr);
  static auto load = driver<CUresult (*)(CUmodule*, const void*)>("cuModuleLoadData");
  cudaDeviceProp properties = {};
  cudaGetDeviceProperties(&properties, 0);
  std::printf("%s\n", properties.name);
  CUmodule module = nullptr;
  std::printf("cuModuleLoadData: %s\n", name(load(&module, module_text)));
  driver_launches(module);
  runtime_launches();
  destroyed_texture(module, false);
  destroyed_texture(module, true);
  destroyed_twice();
}
