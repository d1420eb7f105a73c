// What lanes of a warp, warps of a block and blocks of a grid do together.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void shuffles(const int *in, int *out) {
    int i = threadIdx.x, x = in[i];
    int s = __shfl_sync(~0u, x, 3) + __shfl_up_sync(~0u, x, 2) * 3 + __shfl_down_sync(~0u, x, 5, 8) * 5;
    s += __shfl_xor_sync(~0u, x, 7, 16) * 7 + __shfl_sync(~0u, x, i + 1, 4);
    double d = __shfl_xor_sync(~0u, (double)x, 1);
    long long l = __shfl_down_sync(~0u, (long long)x << 20, 1);
    s += __ballot_sync(~0u, x & 1) + __any_sync(~0u, x > 5) + 2 * __all_sync(~0u, x > 5) + __activemask();
    out[i] = s + (int)d + (int)l;
}

#if __CUDA_ARCH__ >= 700
extern "C" __global__ void matches(const int *in, unsigned *out) {
    int i = threadIdx.x, predicate;
    unsigned s = __match_any_sync(~0u, in[i] & 3) + __match_all_sync(~0u, in[i] >> 31, &predicate);
    s += __match_any_sync(~0u, (long long)in[i] & 7);
    if (in[i] & 1) {
        __syncwarp(__ballot_sync(__activemask(), 1));
        s += __popc(__activemask());
    }
    out[i] = s + predicate + __fns(s, 4, 2);
}
#endif

#if __CUDA_ARCH__ >= 800
extern "C" __global__ void reductions(const int *in, int *out) {
    int i = threadIdx.x;
    out[i] = __reduce_add_sync(~0u, in[i]) + __reduce_min_sync(~0u, in[i]) + __reduce_max_sync(~0u, (unsigned)in[i]) +
             __reduce_and_sync(~0u, in[i]) + __reduce_or_sync(~0u, in[i]) + __reduce_xor_sync(~0u, in[i]);
}
#endif

extern "C" __global__ void barriers(const int *in, int *out) {
    __shared__ int shared[256];
    int i = threadIdx.x;
    shared[i] = in[i];
    __syncthreads();
    int s = shared[255 - i] + __syncthreads_count(in[i] & 1) + __syncthreads_and(in[i]) + __syncthreads_or(in[i] > 100);
    if (i < 64) asm volatile("barrier.sync 1, 64;" ::: "memory");
    asm volatile("bar.arrive 2, 256;" ::: "memory");
    __threadfence_block();
    __threadfence();
    __threadfence_system();
    out[i] = s;
}

extern "C" __global__ void groups(int *data, int *out) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    int v = data[block.thread_rank()];
    for (int step = tile.size() / 2; step > 0; step /= 2) v += tile.shfl_down(v, step);
    auto active = cg::coalesced_threads();
    if (tile.thread_rank() == 0) atomicAdd(out, v + active.size());
    block.sync();
}

__device__ volatile int lock_word;

extern "C" __global__ void spin(int *counter) {
    bool done = false;
    while (!done) {
        if (atomicCAS((int *)&lock_word, 0, 1) == 0) {
            *counter += 1;
            __threadfence();
            atomicExch((int *)&lock_word, 0);
            done = true;
        }
    }
}

extern "C" __global__ void clocks(long long *out) {
    long long start = clock64();
    unsigned smid, lane;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    __nanosleep(100);
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    out[threadIdx.x] = clock64() - start + smid + lane + now + clock();
}
