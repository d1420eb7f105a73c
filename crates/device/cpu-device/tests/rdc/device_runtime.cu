// What device code asks of the device runtime: launches, copies, fills, errors, and conditions of graphs.

extern "C" __global__ void add(unsigned *sum, unsigned value) { atomicAdd(sum, value); }

extern "C" __global__ void scale(unsigned *sum, unsigned factor) { *sum *= factor; }

// Two children for each thread, and one behind all of them.
extern "C" __global__ void parent(unsigned *sum, unsigned factor) {
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  add<<<2, 3>>>(sum, threadIdx.x + 1);
  add<<<1, 1, 0, stream>>>(sum, 100);
  cudaStreamDestroy(stream);
  if (blockIdx.x == 0 && threadIdx.x == 0) scale<<<1, 1, 0, cudaStreamTailLaunch>>>(sum, factor);
}

// A tree: each grid launches two of the next level, and behind them a tail that must find all of its subtree done.
extern "C" __global__ void check_subtree(unsigned *sum, unsigned *wrong, unsigned before, unsigned depth) {
  if (*sum - before != (2u << depth) - 1) atomicAdd(wrong, 1);
}

extern "C" __global__ void tree(unsigned *sum, unsigned *wrong, unsigned depth) {
  unsigned before = atomicAdd(sum, 1);
  if (depth == 0) return;
  tree<<<1, 1>>>(sum, wrong, depth - 1);
  tree<<<1, 1>>>(sum, wrong, depth - 1);
  check_subtree<<<1, 1, 0, cudaStreamTailLaunch>>>(sum, wrong, before, depth);
}

// A chain of grids, each launched by the one before.
extern "C" __global__ void chain(unsigned *sum, unsigned length) {
  ++*sum;
  if (length > 1) chain<<<1, 1, 0, cudaStreamTailLaunch>>>(sum, length - 1);
}

// errors[0]: of a launch with too many threads; [1]: of the call after the error was taken.
extern "C" __global__ void refused(unsigned *errors) {
  add<<<1, 2048>>>(errors, 1);
  errors[0] = cudaGetLastError();
  errors[1] = cudaGetLastError();
  errors[2] = cudaGetErrorString(cudaErrorInvalidConfiguration)[0];
}

extern "C" __global__ void copies(unsigned *words) {
  cudaMemsetAsync(words, 0x11, 8, 0);
  cudaMemcpyAsync(words + 4, words, 8, cudaMemcpyDeviceToDevice, 0);
  cudaMemsetAsync(words, 0x22, 4, 0);
}

extern "C" __global__ void out_of_bounds_child(unsigned *sum) { sum[1 << 20] = 1; }

extern "C" __global__ void faulty_parent(unsigned *sum) { out_of_bounds_child<<<1, 1>>>(sum); }

extern "C" __global__ void waits(unsigned *sum) { __cudaDeviceSynchronizeDeprecationAvoidance(); }

extern "C" __global__ void set(cudaGraphConditionalHandle condition, unsigned value) {
  cudaGraphSetConditional(condition, value);
}

extern "C" __global__ void count_down(cudaGraphConditionalHandle condition, unsigned *left) {
  cudaGraphSetConditional(condition, --*left);
}
