// The products of a mixture of experts on Hopper (sm_90a): the rows of all experts in one launch, each expert with its weights.
//
//     up:               H = silu(X Gate^T) * (X Up^T)     rows gathered from the tokens, SwiGLU before the only store
//     down:             Y = H Down^T
//     hidden gradient:  dH = dO Down                      rows gathered; SwiGLU's gradient before the only store
//     token gradient:   dX = [dG dU] [Gate; Up]
//
// The idea. A tile is 128 rows of one expert and 256 rows of its weights: for `up` 128 rows of Gate and the same 128 of Up, so
// that one thread holds both factors of each element of H. Two consumer warpgroups multiply 64 rows each with all 256 (wgmma
// m64n256k16). A producer warpgroup fills a ring of stages ahead of them: the copy engine brings weights and H, and the threads of
// the warpgroup gather the rows of tokens, 16 bytes at a time, straight into the swizzled tile. No copy of X in the order of
// experts is ever made. Gradients multiply with the same weights, the other way round: 64 rows and 256 columns of them are four
// panels, which wgmma transposes.
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
#include "moe_hopper.cuh"

namespace moe {

enum Kind { UP, DOWN, HIDDEN_GRADIENT, TOKEN_GRADIENT };

// What a product reads and writes.
template <typename T>
struct Operands {
  const CUtensorMap& weights;
  const CUtensorMap& rows;  // down, token gradient: what is multiplied, if it lies in the order of rows
  const T* tokens;          // up, hidden gradient: the tokens, or the gradients of their outputs
  const int* row_tokens;    // up, hidden gradient: the token of each row
  const Tile* tiles;
  unsigned* counters;
  T* output;
  T* projections;  // up: null, or where G and U go, [rows, 2, hidden]; hidden gradient: G and U
  // Of the hidden gradient alone:
  const float* gate_weights;
  const int* row_choices;
  T* weighted;           // H times the weight of its row
  float* weight_parts;  // [rows, tiles of columns]: their sums are the gradients of weights
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

template <typename T, Kind KIND>
struct Product {
  static constexpr bool GATHERS = KIND == UP || KIND == HIDDEN_GRADIENT;
  static constexpr bool TRANSPOSES = KIND == HIDDEN_GRADIENT || KIND == TOKEN_GRADIENT;  // the weights
  static constexpr int COLUMNS = KIND == UP ? WEIGHTS / 2 : WEIGHTS;                     // of the result, in a tile

  // Elements of a row that is multiplied, and of one that results.
  __device__ __forceinline__ static int depth(const Problem& p) {
    return GATHERS ? p.dim : KIND == DOWN ? p.hidden : 2 * p.hidden;
  }
  __device__ __forceinline__ static int width(const Problem& p) { return GATHERS ? p.hidden : p.dim; }

  __device__ __forceinline__ static void prefetch(const Operands<T>& operands) {
    tma_prefetch(&operands.weights);
    if (!GATHERS) tma_prefetch(&operands.rows);
  }

  // All threads of the producer warpgroup if rows are gathered, one warp if the copy engine brings them too.
  __device__ __forceinline__ static void produce(const Operands<T>& operands, const Problem& p, const Shared& shared) {
    constexpr int LINES = TILE_ROWS / 16;
    int depth = Product::depth(p), thread = threadIdx.x, unit = thread % 8, line = thread / 8;
    Order order = Order::of<Product>(operands.tiles, p);
    Queue queue{shared.tiles()};
    Tickets tickets{operands.counters};
    Place place;
    for (;;) {
      if (thread == 0) tickets.pass(queue, order.count());
      int index = queue.take(), column_tile;
      if (index >= order.count()) break;
      Tile tile = order.at(index, column_tile);
      // This thread brings unit `unit` of 16 bytes of the rows `line`, `line` + 16, ...
      const T* from[LINES];
      if (GATHERS) {
#pragma unroll
        for (int i = 0; i < LINES; ++i) {
          int row = tile.row + min(line + 16 * i, tile.rows - 1);
          from[i] = operands.tokens + static_cast<long long>(__ldg(operands.row_tokens + row)) * depth + 8 * unit;
        }
      }
#pragma unroll 1
      for (int k = 0; k < depth; k += STEP) {
        uint32_t full = shared.full(place.stage), a = shared.a + place.stage * A_BYTES, b = shared.b + place.stage * B_BYTES;
        barrier_wait(shared.empty(place.stage), place.parity ^ 1);
        if (thread == 0) {
          int column = column_tile * COLUMNS;
          barrier_expect(full, GATHERS ? B_BYTES : A_BYTES + B_BYTES);
          if (TRANSPOSES) {
#pragma unroll
            for (int i = 0; i < WEIGHTS / PANEL; ++i)
              tma_load(b + i * PANEL_BYTES, &operands.weights, full, column + i * PANEL, k, 0, tile.expert, 0);
          } else {
            tma_load(b, &operands.weights, full, k, column, 0, tile.expert, 0);
          }
          if (!GATHERS) tma_load(a, &operands.rows, full, k, tile.row, 0, 0, 0);
        }
        if (GATHERS) {
          uint32_t to = a + line * 128 + (unit ^ line % 8) * 16, given = k + 8 * unit < depth ? 16 : 0;
#pragma unroll
          for (int i = 0; i < LINES; ++i)
            gather_load(to + i * 16 * 128, given ? from[i] + k : operands.tokens, given);
          gather_arrive(full);
        }
        place.next();
      }
    }
    if (thread == 0) tickets.end();
  }

  // A consumer warpgroup.
  __device__ __forceinline__ static void consume(const Operands<T>& operands, const Problem& p, const Shared& shared) {
    // Descriptors count in 16 bytes: what a step of 16 along K is away in the weights.
    constexpr int B_STEP = TRANSPOSES ? 16 * 128 / 16 : 2;
    int depth = Product::depth(p), width = Product::width(p);
    Part part;
    uint64_t a_tile = tile_descriptor(shared.a + part.first_row * 128, 0), b_tile = tile_descriptor(shared.b, PANEL_BYTES);
    Order order = Order::of<Product>(operands.tiles, p);
    Queue queue{shared.tiles()};
    Place place;
    for (int index, column_tile; (index = queue.take()) < order.count();) {
      Tile tile = order.at(index, column_tile);
      bool multiplies = part.first_row < tile.rows;
      float d[WEIGHTS / 2];
      forget(d);
#pragma unroll 1
      for (int k = 0; k < depth; k += STEP) {
        barrier_wait(shared.full(place.stage), place.parity);
        if (multiplies) {
          if (GATHERS) proxy_fence();  // rows were gathered by ordinary writes
          hold(d);
          wgmma_fence();
#pragma unroll
          for (int i = 0; i < STEP / 16; ++i) {
            uint64_t a = a_tile + place.stage * (A_BYTES / 16) + 2 * i;
            uint64_t b = b_tile + place.stage * (B_BYTES / 16) + B_STEP * i;
            Wgmma<T, WEIGHTS>::template both_shared<0, TRANSPOSES>(d, a, b, (k | i) != 0);
          }
          wgmma_commit();
          wgmma_wait<0>();
          hold(d);
        }
        if (part.lane == 0) barrier_arrive(shared.empty(place.stage));
        place.next();
      }
      if (!multiplies) continue;
      int column = column_tile * COLUMNS;
      if constexpr (KIND == HIDDEN_GRADIENT) {
        swiglu_gradient(operands, d, tile, part, column, width, order.column_tiles);
      } else {
        finish(operands, d, tile, part, column, width);
      }
    }
  }

  // Writes a tile of a product; of `up`, what results from SwiGLU, and what it came from if that is to be kept.
  __device__ __forceinline__ static void finish(const Operands<T>& operands, float (&d)[WEIGHTS / 2], const Tile& tile,
                                                const Part& part, int column, int width) {
    if (KIND == UP && operands.projections) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        int row = part.my_row + 8 * r;
        T* to = operands.projections + static_cast<long long>(tile.row + row) * 2 * width;
        store<COLUMNS, 0>(d, r, to, column, width, row < tile.rows, part.quad);
        store<COLUMNS, WEIGHTS - COLUMNS>(d, r, to + width, column, width, row < tile.rows, part.quad);
      }
    }
    if (KIND == UP) {
#pragma unroll
      for (int i = 0; i < COLUMNS / 2; ++i) d[i] = swiglu(d[i], d[(COLUMNS / 2 + i) % (WEIGHTS / 2)]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int row = part.my_row + 8 * r;
      T* to = operands.output + static_cast<long long>(tile.row + row) * width;
      store<COLUMNS, 0>(d, r, to, column, width, row < tile.rows, part.quad);
    }
  }

  // From the gradient of H, but for the weight of its row, and G and U: writes the gradients of G and U, H times the weight, and
  // this tile's part of the weight's gradient.
  __device__ __forceinline__ static void swiglu_gradient(const Operands<T>& operands, const float (&d)[WEIGHTS / 2],
                                                         const Tile& tile, const Part& part, int column, int width,
                                                         int column_tiles) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int row = part.my_row + 8 * r;
      bool inside = row < tile.rows;
      long long at = tile.row + row;
      float weight = inside ? __ldg(operands.gate_weights + __ldg(operands.row_choices + at)) : 0.0f, sum = 0.0f;
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        constexpr int LINES = WEIGHTS / 64;
        int first = column + half * (WEIGHTS / 2) + 8 * part.quad;
        uint4 gates[LINES] = {}, ups[LINES] = {};  // all are asked for before the first is used
#pragma unroll
        for (int i = 0; i < LINES; ++i) {
          if (!inside || first + 32 * i >= width) continue;
          gates[i] = __ldg(reinterpret_cast<const uint4*>(operands.projections + at * 2 * width + first + 32 * i));
          ups[i] = __ldg(reinterpret_cast<const uint4*>(operands.projections + (at * 2 + 1) * width + first + 32 * i));
        }
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
          int j = 4 * line, its = first + 32 * line;
          bool is = inside && its < width;
          uint32_t g[4] = {gates[line].x, gates[line].y, gates[line].z, gates[line].w}, h[4];
          uint32_t u[4] = {ups[line].x, ups[line].y, ups[line].z, ups[line].w};
          quad_transpose(g, part.quad);
          quad_transpose(u, part.quad);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            int value = 4 * (j + i) + 2 * r;
            float low = half ? d[WEIGHTS / 4 + value] : d[value], high = half ? d[WEIGHTS / 4 + value + 1] : d[value + 1];
            float2 gate = unpack<T>(g[i]), up = unpack<T>(u[i]);
            SwigluGradient first(gate.x, up.x, low, weight), second(gate.y, up.y, high, weight);
            sum += first.of_weight + second.of_weight;
            g[i] = pack<T>(first.of_gate, second.of_gate);
            u[i] = pack<T>(first.of_up, second.of_up);
            h[i] = pack<T>(first.weighted, second.weighted);
          }
          quad_transpose(g, part.quad);
          quad_transpose(u, part.quad);
          quad_transpose(h, part.quad);
          if (is) {
            *reinterpret_cast<uint4*>(operands.output + at * 2 * width + its) = make_uint4(g[0], g[1], g[2], g[3]);
            *reinterpret_cast<uint4*>(operands.output + (at * 2 + 1) * width + its) = make_uint4(u[0], u[1], u[2], u[3]);
            *reinterpret_cast<uint4*>(operands.weighted + at * width + its) = make_uint4(h[0], h[1], h[2], h[3]);
          }
        }
      }
      sum += __shfl_xor_sync(0xffffffff, sum, 1);
      sum += __shfl_xor_sync(0xffffffff, sum, 2);
      if (inside && part.quad == 0) operands.weight_parts[at * column_tiles + column / WEIGHTS] = sum;
    }
  }
};

}  // namespace moe

// Weights and rows are read through maps; their addresses are parameters so that the host's order of work on buffers knows of
// them.
#define MOE(TYPE, NAME)                                                                                                    \
  extern "C" __global__ void __launch_bounds__(moe::THREADS, 1)                                                            \
      moe_up_hopper_##NAME(const __grid_constant__ CUtensorMap weight_map, const TYPE*, const TYPE* x,                     \
                           const int* row_tokens, const moe::Tile* tiles, unsigned* counters, TYPE* h, TYPE* projections,  \
                           const __grid_constant__ moe::Problem problem) {                                                 \
    moe::Operands<TYPE> operands{weight_map, weight_map, x, row_tokens, tiles, counters, h, projections};                  \
    moe::run<moe::Product<TYPE, moe::UP>>(operands, problem);                                                              \
  }                                                                                                                        \
  extern "C" __global__ void __launch_bounds__(moe::THREADS, 1)                                                            \
      moe_down_hopper_##NAME(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap h_map,    \
                             const TYPE*, const TYPE*, const moe::Tile* tiles, unsigned* counters, TYPE* y,                \
                             const __grid_constant__ moe::Problem problem) {                                               \
    moe::Operands<TYPE> operands{weight_map, h_map, nullptr, nullptr, tiles, counters, y};                                 \
    moe::run<moe::Product<TYPE, moe::DOWN>>(operands, problem);                                                            \
  }                                                                                                                        \
  extern "C" __global__ void __launch_bounds__(moe::THREADS, 1) moe_hidden_gradient_hopper_##NAME(                         \
      const __grid_constant__ CUtensorMap weight_map, const TYPE*, const TYPE* output_gradient, const int* row_tokens,     \
      const moe::Tile* tiles, unsigned* counters, TYPE* projection_gradient, TYPE* projections, const float* gate_weights, \
      const int* row_choices, TYPE* weighted, float* weight_parts, const __grid_constant__ moe::Problem problem) {         \
    moe::Operands<TYPE> operands{weight_map,          weight_map,  output_gradient, row_tokens,  tiles,    counters,       \
                                 projection_gradient, projections, gate_weights,    row_choices, weighted, weight_parts};  \
    moe::run<moe::Product<TYPE, moe::HIDDEN_GRADIENT>>(operands, problem);                                                 \
  }                                                                                                                        \
  extern "C" __global__ void __launch_bounds__(moe::THREADS, 1) moe_token_gradient_hopper_##NAME(                          \
      const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap gradient_map, const TYPE*,       \
      const TYPE*, const moe::Tile* tiles, unsigned* counters, TYPE* dx, const __grid_constant__ moe::Problem problem) {   \
    moe::Operands<TYPE> operands{weight_map, gradient_map, nullptr, nullptr, tiles, counters, dx};                         \
    moe::run<moe::Product<TYPE, moe::TOKEN_GRADIENT>>(operands, problem);                                                  \
  }
MOE(__nv_bfloat16, bf16)
MOE(__half, f16)
