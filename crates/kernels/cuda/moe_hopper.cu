// The products of a mixture of experts on Hopper (sm_90a): the rows of all experts in one launch, each expert with its weights.
//
//     up:    H = silu(X Gate^T) * (X Up^T)     rows gathered from the tokens, SwiGLU before the only store
//     down:  Y = H Down^T
//
// The idea. A tile is 128 rows of one expert and 256 rows of its weights: for `up` 128 rows of Gate and the same 128 of Up, so
// that one thread holds both factors of each element of H. Two consumer warpgroups multiply 64 rows each with all 256 (wgmma
// m64n256k16). A producer warpgroup fills a ring of stages ahead of them: the copy engine brings weights and H, and the threads of
// the warpgroup gather the rows of tokens, 16 bytes at a time, straight into the swizzled tile. No copy of X in the order of
// experts is ever made.
//
// Blocks are persistent: one for each multiprocessor, which takes tiles from a counter until there are none. That keeps the tiles
// in work at any time next to each other, so that their rows and weights are found in the L2 cache. (With a fixed stride, blocks
// drift apart, because tiles with few rows take less time, and `up` reads four times the bytes from memory.) BAND tiles of rows
// are multiplied with all weights before the next BAND begin.
//
// Invariants:
// - Producer and consumers walk through the same tiles and the same steps of K: barrier phases are counted, not told.
// - Rows beyond a tile's own repeat its last one, or belong to another expert: they are computed, and not written. A warpgroup
//   that has no row of its own multiplies nothing, but keeps the pace of the barriers.
// - Elements beyond the ends of rows and columns of tensors are read as zeros.
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
constexpr int A_BYTES = TILE_ROWS * STEP * 2, B_BYTES = WEIGHTS * STEP * 2;
constexpr int PRODUCER_REGISTERS = 56, CONSUMER_REGISTERS = 224;
static_assert(PRODUCER_REGISTERS + 2 * CONSUMER_REGISTERS <= 3 * (65536 / THREADS / 8 * 8));

enum Product { UP, DOWN };

// What differs between the two products.
template <typename T_, Product PRODUCT_>
struct Config {
  using T = T_;
  static constexpr Product PRODUCT = PRODUCT_;
  static constexpr int COLUMNS = PRODUCT == UP ? WEIGHTS / 2 : WEIGHTS;  // of the result, in a tile
  // Elements of a row that is multiplied, and of one that results.
  __device__ __forceinline__ static int depth(const Problem& p) { return PRODUCT == UP ? p.dim : p.hidden; }
  __device__ __forceinline__ static int width(const Problem& p) { return PRODUCT == UP ? p.hidden : p.dim; }
};

// What a product reads and writes.
template <typename T>
struct Operands {
  const CUtensorMap& weights;
  const CUtensorMap& h;   // down
  const T* x;             // up
  const int* row_tokens;  // up: the token of each row
  const Tile* tiles;
  unsigned* counters;  // tiles that were taken, and blocks that are done: zeros between launches
  T* output;
};

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

// The order of tiles: bands of BAND tiles of rows, each with all columns.
struct Order {
  const Tile* tiles;
  int row_tiles, column_tiles;
  template <class C>
  __device__ __forceinline__ static Order of(const Tile* tiles, const Problem& p) {
    return {tiles, load_tile(tiles, 0).row, (C::width(p) + C::COLUMNS - 1) / C::COLUMNS};
  }
  __device__ __forceinline__ int count() const { return row_tiles * column_tiles; }
  __device__ __forceinline__ Tile at(int index, int& column_tile) const {
    int band = index / (BAND * column_tiles), within = index - band * BAND * column_tiles;
    int height = min(BAND, row_tiles - band * BAND);
    column_tile = within / height;
    return load_tile(tiles, 1 + band * BAND + within - column_tile * height);
  }
};

// All threads of the producer warpgroup if rows are gathered, one warp if the copy engine brings them too.
template <class C>
__device__ __forceinline__ void produce(const Operands<typename C::T>& operands, const Problem& p, const Shared& shared) {
  constexpr int GATHERS = TILE_ROWS / 16;
  int depth = C::depth(p), thread = threadIdx.x, unit = thread % 8, line = thread / 8;
  Order order = Order::of<C>(operands.tiles, p);
  Queue queue{shared.tiles()};
  Place place;
  for (int mine = blockIdx.x;;) {
    if (thread == 0) {
      Queue ahead = queue;
      ahead.put(mine);
      if (mine < order.count()) mine = gridDim.x + atomicAdd(operands.counters, 1u);
    }
    int index = queue.take(), column_tile;
    if (index >= order.count()) break;
    Tile tile = order.at(index, column_tile);
    // This thread brings unit `unit` of 16 bytes of the rows `line`, `line` + 16, ...
    const typename C::T* from[GATHERS];
    if (C::PRODUCT == UP) {
#pragma unroll
      for (int i = 0; i < GATHERS; ++i) {
        int row = tile.row + min(line + 16 * i, tile.rows - 1);
        from[i] = operands.x + static_cast<long long>(__ldg(operands.row_tokens + row)) * depth + 8 * unit;
      }
    }
#pragma unroll 1
    for (int k = 0; k < depth; k += STEP) {
      uint32_t full = shared.full(place.stage), a = shared.a + place.stage * A_BYTES;
      barrier_wait(shared.empty(place.stage), place.parity ^ 1);
      if (thread == 0) {
        barrier_expect(full, C::PRODUCT == UP ? B_BYTES : A_BYTES + B_BYTES);
        tma_load(shared.b + place.stage * B_BYTES, &operands.weights, full, k, column_tile * C::COLUMNS, 0, tile.expert, 0);
        if (C::PRODUCT == DOWN) tma_load(a, &operands.h, full, k, tile.row, 0, 0, 0);
      }
      if (C::PRODUCT == UP) {
        uint32_t to = a + line * 128 + (unit ^ line % 8) * 16, given = k + 8 * unit < depth ? 16 : 0;
#pragma unroll
        for (int i = 0; i < GATHERS; ++i)
          gather_load(to + i * 16 * 128, given ? from[i] + k : operands.x, given);
        gather_arrive(full);
      }
      place.next();
    }
  }
  if (thread == 0) {
    __threadfence();
    if (atomicAdd(operands.counters + 1, 1u) == gridDim.x - 1) operands.counters[0] = operands.counters[1] = 0;
  }
}

// A consumer warpgroup. Each thread holds parts of two rows (`r` = 0, 1), 8 apart: see wgmma's layout in hopper.cuh.
template <class C>
__device__ __forceinline__ void consume(const Operands<typename C::T>& operands, const Problem& p, const Shared& shared) {
  using T = typename C::T;
  constexpr int VALUES = C::COLUMNS / 2;  // of a thread, in the result
  int depth = C::depth(p), width = C::width(p);
  int first_row = (__shfl_sync(0xffffffff, threadIdx.x / 128, 0) - 1) * 64;
  int lane = threadIdx.x % 32, quad = lane % 4;
  int my_row = first_row + threadIdx.x % 128 / 32 * 16 + lane / 4;
  uint64_t a_tile = tile_descriptor(shared.a + first_row * 128, 0), b_tile = tile_descriptor(shared.b, 0);
  Order order = Order::of<C>(operands.tiles, p);
  Queue queue{shared.tiles()};
  Place place;
  for (int index, column_tile; (index = queue.take()) < order.count();) {
    Tile tile = order.at(index, column_tile);
    bool multiplies = first_row < tile.rows;
    float d[WEIGHTS / 2];
    forget(d);
#pragma unroll 1
    for (int k = 0; k < depth; k += STEP) {
      barrier_wait(shared.full(place.stage), place.parity);
      if (multiplies) {
        if (C::PRODUCT == UP) proxy_fence();  // rows were gathered by ordinary writes
        hold(d);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < STEP / 16; ++i) {
          uint64_t a = a_tile + place.stage * (A_BYTES / 16) + 2 * i, b = b_tile + place.stage * (B_BYTES / 16) + 2 * i;
          Wgmma<T, WEIGHTS>::both_shared(d, a, b, (k | i) != 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        hold(d);
      }
      if (lane == 0) barrier_arrive(shared.empty(place.stage));
      place.next();
    }
    if (!multiplies) continue;

    if (C::PRODUCT == UP) {
#pragma unroll
      for (int i = 0; i < VALUES; ++i) d[i] = swiglu(d[i], d[VALUES + i]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int row = my_row + 8 * r;
      T* to = operands.output + static_cast<long long>(tile.row + row) * width;
#pragma unroll
      for (int j = 0; j < VALUES / 4; j += 4) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = pack<T>(d[4 * (j + i) + 2 * r], d[4 * (j + i) + 2 * r + 1]);
        quad_transpose(w, quad);  // now each thread has 16 bytes of the row
        int column = column_tile * C::COLUMNS + 8 * (j + quad);
        if (row < tile.rows && column < width) *reinterpret_cast<uint4*>(to + column) = make_uint4(w[0], w[1], w[2], w[3]);
      }
    }
  }
}

template <class C>
__device__ __forceinline__ void multiply(const Operands<typename C::T>& operands, const Problem& p) {
  extern __shared__ uint8_t memory[];
  Shared shared((shared_address(memory) + 1023) & ~1023u);
  int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(shared.full(i), C::PRODUCT == UP ? 129 : 1);  // one announces bytes, 128 gather
      barrier_init(shared.empty(i), 8);
    }
    Queue::init(shared.tiles(), C::PRODUCT == UP ? 12 : 9);
    barrier_init_fence();
    tma_prefetch(&operands.weights);
    if (C::PRODUCT == DOWN) tma_prefetch(&operands.h);
  }
  __syncthreads();
  if (warpgroup == 0) {
    registers_shrink<PRODUCER_REGISTERS>();
    if (C::PRODUCT == UP || threadIdx.x < 32) produce<C>(operands, p, shared);
  } else {
    registers_grow<CONSUMER_REGISTERS>();
    consume<C>(operands, p, shared);
  }
}

}  // namespace moe

// Weights and H are read through maps; their addresses are parameters so that the host's order of work on buffers knows of
// them.
#define MOE(TYPE, NAME)                                                                                                  \
  extern "C" __global__ void __launch_bounds__(moe::THREADS, 1)                                                          \
      moe_up_hopper_##NAME(const __grid_constant__ CUtensorMap weight_map, const TYPE*, const TYPE* x,                   \
                           const int* row_tokens, const moe::Tile* tiles, unsigned* counters, TYPE* h,                   \
                           const __grid_constant__ moe::Problem problem) {                                               \
    moe::multiply<moe::Config<TYPE, moe::UP>>({weight_map, weight_map, x, row_tokens, tiles, counters, h}, problem);     \
  }                                                                                                                      \
  extern "C" __global__ void __launch_bounds__(moe::THREADS, 1)                                                          \
      moe_down_hopper_##NAME(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap h_map,  \
                             const TYPE*, const TYPE*, const moe::Tile* tiles, unsigned* counters, TYPE* y,              \
                             const __grid_constant__ moe::Problem problem) {                                             \
    moe::multiply<moe::Config<TYPE, moe::DOWN>>({weight_map, h_map, nullptr, nullptr, tiles, counters, y}, problem);     \
  }
MOE(__nv_bfloat16, bf16)
MOE(__half, f16)
