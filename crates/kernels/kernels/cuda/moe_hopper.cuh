// What the Hopper products of a mixture of experts have in common, forward and backward: a ring of stages between a producer
// warpgroup and two consumer warpgroups, persistent blocks that take tiles from a counter, and how results are stored.
//
// A stage holds 128 rows and 64 columns of A, and 256 by 64 of B, of 16 bits each. An operand whose rows run along K (its elements
// of one k are contiguous in memory) lies in panels of 64 by 64 elements, which wgmma transposes.
#pragma once
#include "hopper.cuh"
#include "moe.cuh"

namespace moe {
using namespace hopper;

// Chosen by measurement: docs/results/moe-h200.md has what else was tried. The host knows them too (src/moe/hopper.rs).
constexpr int STAGES = 4;
constexpr int BAND = 16;      // tiles of rows
constexpr int STEP = 64;      // elements along K of a stage: 128 bytes, what the swizzle handles
constexpr int WEIGHTS = 256;  // rows of weights of a tile
constexpr int THREADS = 384;
constexpr int PANEL = 64, PANEL_BYTES = PANEL * STEP * 2;
constexpr int A_BYTES = TILE_ROWS * STEP * 2, B_BYTES = WEIGHTS * STEP * 2;
constexpr int PRODUCER_REGISTERS = 56, CONSUMER_REGISTERS = 224;
static_assert(PRODUCER_REGISTERS + 2 * CONSUMER_REGISTERS <= 3 * (65536 / THREADS / 8 * 8));

// Where things are in shared memory: stages of rows, then of weights, then barriers.
struct Shared {
  uint32_t a, b, barriers;
  __device__ __forceinline__ explicit Shared(uint32_t start)
      : a(start), b(a + STAGES * A_BYTES), barriers(b + STAGES * B_BYTES) {}
  __device__ __forceinline__ uint32_t full(int stage) const { return barriers + 8 * stage; }
  __device__ __forceinline__ uint32_t empty(int stage) const { return barriers + 8 * (STAGES + stage); }
  __device__ __forceinline__ uint32_t tiles() const { return empty(STAGES); }
};

// A stage of the ring, and the parity of its barriers.
struct Place {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

// Indices of tiles, which blocks take from a counter: the producer's side, for its thread 0.
struct Tickets {
  unsigned* counters;  // tiles that were taken, and blocks that are done: zeros between launches
  int mine = blockIdx.x;
  // Hands this block's index to all warps, and takes the next.
  __device__ __forceinline__ void pass(Queue ahead, int count) {
    ahead.put(mine);
    if (mine < count) mine = gridDim.x + atomicAdd(counters, 1u);
  }
  __device__ __forceinline__ void end() {
    __threadfence();
    if (atomicAdd(counters + 1, 1u) == gridDim.x - 1) counters[0] = counters[1] = 0;
  }
};

// The 64 rows of a tile that a consumer warpgroup multiplies, and the thread's place in them. Each thread holds parts of two
// rows (`r` = 0, 1), 8 apart: see wgmma's layout in hopper.cuh.
struct Part {
  int first_row = (__shfl_sync(0xffffffff, threadIdx.x / 128, 0) - 1) * 64;
  int lane = threadIdx.x % 32, quad = lane % 4;
  int my_row = first_row + threadIdx.x % 128 / 32 * 16 + lane / 4;
};

// Rounds the 16 values of four blocks of columns from `j` on, of row `r`, and gives each thread 16 contiguous bytes: columns
// 8 * (j + quad) to 8 * (j + quad) + 7.
template <typename T, int COUNT>
__device__ __forceinline__ uint4 line_of(const float (&d)[COUNT], int j, int r, int quad) {
  uint32_t w[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) w[i] = pack<T>(d[4 * (j + i) + 2 * r], d[4 * (j + i) + 2 * r + 1]);
  quad_transpose(w, quad);
  return make_uint4(w[0], w[1], w[2], w[3]);
}

// Stores COLUMNS values of row `r`, from the `FIRST`-th on, to a row of memory from `column` on, which ends at `width`.
template <int COLUMNS, int FIRST, typename T, int COUNT>
__device__ __forceinline__ void store(const float (&d)[COUNT], int r, T* row, int column, int width, bool inside, int quad) {
#pragma unroll
  for (int j = 0; j < COLUMNS / 8; j += 4) {
    uint4 line = line_of<T>(d, FIRST / 8 + j, r, quad);
    int at = column + 8 * (j + quad);
    if (inside && at < width) *reinterpret_cast<uint4*>(row + at) = line;
  }
}

// Transposes 8 x 8 elements of 16 bits among the threads of a warp: thread l holds row l / 4, columns 2 (l % 4) + {0, 1}.
__device__ __forceinline__ uint32_t transpose(uint32_t elements) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(elements));
  return result;
}

// Runs a block: `C` says how to `produce` and `consume`.
template <class C, class Operands>
__device__ __forceinline__ void run(const Operands& operands, const Problem& p) {
  extern __shared__ uint8_t memory[];
  Shared shared((shared_address(memory) + 1023) & ~1023u);
  int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(shared.full(i), C::GATHERS ? 129 : 1);  // one announces bytes, 128 gather
      barrier_init(shared.empty(i), 8);
    }
    Queue::init(shared.tiles(), C::GATHERS ? 12 : 9);
    barrier_init_fence();
    C::prefetch(operands);
  }
  __syncthreads();
  if (warpgroup == 0) {
    registers_shrink<PRODUCER_REGISTERS>();
    if (C::GATHERS || threadIdx.x < 32) C::produce(operands, p, shared);
  } else {
    registers_grow<CONSUMER_REGISTERS>();
    C::consume(operands, p, shared);
  }
}

}  // namespace moe
