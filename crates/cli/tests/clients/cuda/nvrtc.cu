// NVRTC, asked for machine code of the device's own architecture in every spelling, and for PTX.
#include <nvrtc.h>

#include <string>
#include <vector>

#include "check.h"

static void nvrtc(nvrtcResult result, const char *call) {
  if (result == NVRTC_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", call, nvrtcGetErrorString(result));
  std::exit(1);
}
#define NVRTC(call) nvrtc(call, #call)

static const char *SOURCE = "extern \"C\" __global__ void triple(int *value) { *value *= 3; }";

// The code that comes of the options: of a cubin, or PTX.
static std::vector<char> compile(const std::vector<const char *> &options, bool cubin) {
  nvrtcProgram program;
  NVRTC(nvrtcCreateProgram(&program, SOURCE, "triple.cu", 0, nullptr, nullptr));
  NVRTC(nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data()));
  size_t bytes = 0;
  if (!cubin) {
    // What was compiled for a virtual architecture has no machine code.
    NVRTC(nvrtcGetCUBINSize(program, &bytes));
    EXPECT(bytes == 0);
  }
  NVRTC(cubin ? nvrtcGetCUBINSize(program, &bytes) : nvrtcGetPTXSize(program, &bytes));
  std::vector<char> code(bytes);
  NVRTC(cubin ? nvrtcGetCUBIN(program, code.data()) : nvrtcGetPTX(program, code.data()));
  NVRTC(nvrtcDestroyProgram(&program));
  return code;
}

int main() {
  cudaDeviceProp properties;
  CUDA(cudaGetDeviceProperties(&properties, 0));
  std::string architecture =
      "sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
  std::string long_form = "--gpu-architecture=" + architecture, short_form = "-arch=" + architecture;
  std::vector<std::vector<char>> codes = {
      compile({long_form.c_str(), "--std=c++17"}, true),
      compile({short_form.c_str()}, true),
      compile({"-arch", architecture.c_str()}, true),
      compile({"--gpu-architecture=compute_80"}, false),
  };
  int *value, expected = 1;
  CUDA(cudaMallocManaged(&value, sizeof *value));
  *value = 1;
  for (const std::vector<char> &code : codes) {
    cudaLibrary_t library;
    cudaKernel_t kernel;
    CUDA(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUDA(cudaLibraryGetKernel(&kernel, library, "triple"));
    void *arguments[] = {&value};
    CUDA(cudaLaunchKernel(reinterpret_cast<const void *>(kernel), dim3(1), dim3(1), arguments, 0, nullptr));
    CUDA(cudaDeviceSynchronize());
    ++launched;
    expected *= 3;
    EXPECT(*value == expected);
    CUDA(cudaLibraryUnload(library));
  }
  return done();
}
