// Asynchronous copies as programs have them: cooperative groups, cuda::barrier, cuda::pipeline, bulk copies.
//
// Every kernel sums the same: out[block][thread] = sum over tiles i of in[block][i][(thread + i) % width], where width is
// the number of threads that sum. `scripts/device-code.sh` compiles this file.

#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;

// Barriers and pipelines in shared memory are made by the kernels themselves.
#pragma nv_diag_suppress static_var_with_dynamic_init

extern "C" __global__ void group_copy(const int *in, int *out, int tiles) {
  extern __shared__ int tile[];
  auto block = cg::this_thread_block();
  int sum = 0;
  for (int i = 0; i < tiles; i++) {
    cg::memcpy_async(block, tile, in + (blockIdx.x * tiles + i) * blockDim.x, sizeof(int) * blockDim.x);
    cg::wait(block);
    sum += tile[(threadIdx.x + i) % blockDim.x];
    block.sync();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void barrier_copy(const int *in, int *out, int tiles) {
  extern __shared__ int tile[];
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  auto block = cg::this_thread_block();
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  block.sync();
  int sum = 0;
  for (int i = 0; i < tiles; i++) {
    cuda::memcpy_async(block, tile, in + (blockIdx.x * tiles + i) * blockDim.x, cuda::aligned_size_t<4>(sizeof(int) * blockDim.x), bar);
    bar.arrive_and_wait();
    sum += tile[(threadIdx.x + i) % blockDim.x];
    bar.arrive_and_wait();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void pipeline_copy(const int *in, int *out, int tiles) {
  extern __shared__ int tile[];
  auto block = cg::this_thread_block();
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto pipe = cuda::make_pipeline(block, &state);
  int sum = 0;
  auto fetch = [&](int i) {
    pipe.producer_acquire();
    cuda::memcpy_async(block, tile + (i % 2) * blockDim.x, in + (blockIdx.x * tiles + i) * blockDim.x, sizeof(int) * blockDim.x, pipe);
    pipe.producer_commit();
  };
  fetch(0);
  for (int i = 0; i < tiles; i++) {
    if (i + 1 < tiles) fetch(i + 1);
    pipe.consumer_wait();
    sum += tile[(i % 2) * blockDim.x + (threadIdx.x + i) % blockDim.x];
    pipe.consumer_release();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Half of the warps produce, the others consume.
extern "C" __global__ void split_pipeline(const int *in, int *out, int tiles) {
  extern __shared__ int tile[];
  auto block = cg::this_thread_block();
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  int half = blockDim.x / 2;
  auto role = threadIdx.x < half ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipe = cuda::make_pipeline(block, &state, role);
  if (role == cuda::pipeline_role::producer) {
    for (int i = 0; i < tiles; i++) {
      pipe.producer_acquire();
      cuda::memcpy_async(tile + (i % 2) * half + threadIdx.x, in + (blockIdx.x * tiles + i) * half + threadIdx.x, sizeof(int), pipe);
      pipe.producer_commit();
    }
  } else {
    int sum = 0, me = threadIdx.x - half;
    for (int i = 0; i < tiles; i++) {
      pipe.consumer_wait();
      sum += tile[(i % 2) * half + (me + i) % half];
      pipe.consumer_release();
    }
    out[blockIdx.x * half + me] = sum;
  }
}

#if __CUDA_ARCH__ >= 900
// One thread has the whole tile copied, and the barrier counts its bytes.
extern "C" __global__ void bulk_copy(const int *in, int *out, int tiles) {
  extern __shared__ __align__(16) int tile[];
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  if (threadIdx.x == 0) {
    init(&bar, blockDim.x);
    cuda::device::experimental::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  int sum = 0;
  for (int i = 0; i < tiles; i++) {
    cuda::barrier<cuda::thread_scope_block>::arrival_token token;
    unsigned bytes = sizeof(int) * blockDim.x;
    if (threadIdx.x == 0) {
      cuda::device::memcpy_async_tx(tile, in + (blockIdx.x * tiles + i) * blockDim.x,
                                    cuda::aligned_size_t<16>(bytes), bar);
      token = cuda::device::barrier_arrive_tx(bar, 1, bytes);
    } else {
      token = bar.arrive();
    }
    bar.wait(std::move(token));
    sum += tile[(threadIdx.x + i) % blockDim.x];
    bar.arrive_and_wait();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
#endif
