// The gradients of a mixture of experts' weights on Hopper (sm_90a), all experts in one launch:
//
//     up weights:    [dGate; dUp] = (X^T [dG dU])^T    both [rows of the expert, ...], X gathered from the tokens
//     down weights:  dDown = dO^T (w H)                dO gathered, with the weights of rows in H
//
// K runs over the rows of an expert, so that both operands have rows along K: they lie in panels, which wgmma transposes. One of
// them lies in the order of rows in memory, and the copy engine brings it; the threads of the producer warpgroup gather the other.
// A tile is 128 x 256 elements of one expert's result. What is gathered is always the narrow side, because a gather of 256
// columns takes longer than the product; so the gradient of the up weights comes out transposed, and `movmatrix` turns it on the
// way to memory. moe_hopper.cu says how tiles are taken.
//
// Invariants:
// - Rows beyond an expert's last are zeros in both operands, whatever memory holds there: the last step of K, if it is not full,
//   is gathered in both.
// - An expert without rows has gradients of zero, which are written.
// - Elements beyond the ends of rows of tensors are read as zeros.
#include "moe_hopper.cuh"

namespace moe {

enum Kind { UP, DOWN };

template <typename T>
struct Operands {
  const CUtensorMap& map;  // of what lies in the order of rows
  const T* rows;           // the same
  const T* tokens;         // what is gathered: [tokens, dim]
  const int* row_tokens;   // the token of each row
  const Span* spans;       // of each expert
  unsigned* counters;
  T* output;
};

// The order of tiles: expert by expert; of each, bands of BAND tiles of rows with all columns.
struct Order {
  int experts, row_tiles, column_tiles;
  __device__ __forceinline__ int count() const { return experts * row_tiles * column_tiles; }
  __device__ __forceinline__ int at(int index, int& row_tile, int& column_tile) const {
    int expert = index / (row_tiles * column_tiles), its = index - expert * row_tiles * column_tiles;
    int band = its / (BAND * column_tiles), within = its - band * BAND * column_tiles;
    int height = min(BAND, row_tiles - band * BAND);
    column_tile = within / height;
    row_tile = band * BAND + within - column_tile * height;
    return expert;
  }
};

// One operand of a tile: columns from `column` on, of which `width` exist, in WIDE / 64 panels from address `to` on.
template <int WIDE>
struct Panels {
  static constexpr int UNITS = WIDE / 8, LINES_AT_ONCE = 128 / UNITS, ROUNDS = STEP / LINES_AT_ONCE;
  int column, width;
  // Asks the copy engine for STEP rows.
  __device__ __forceinline__ void copy(uint32_t to, const CUtensorMap& map, uint32_t full, int row) const {
#pragma unroll
    for (int i = 0; i < WIDE / PANEL; ++i) tma_load(to + i * PANEL_BYTES, &map, full, column + i * PANEL, row, 0, 0, 0);
  }
  // The line of the STEP whose row the lane knows, for its warp: `gather` asks the first 16 lanes.
  __device__ __forceinline__ static int line_of_lane() {
    constexpr int OF_WARP = 32 / UNITS;
    int lane = threadIdx.x % 16;
    return threadIdx.x / 32 * OF_WARP + lane % OF_WARP + lane / OF_WARP * LINES_AT_ONCE;
  }
  // This thread's share of `rows` rows of `from`, the others of the STEP being zeros: 16 bytes of one row in each round.
  // `known` is the row of line `line_of_lane()`.
  template <typename T>
  __device__ __forceinline__ void gather(uint32_t to, const T* from, int rows, int known) const {
    constexpr int OF_WARP = 32 / UNITS;
    int unit = threadIdx.x % UNITS, line = threadIdx.x / UNITS, its = column + 8 * unit;
    uint32_t panel = to + unit / 8 * PANEL_BYTES;
#pragma unroll(WIDE == TILE_ROWS ? ROUNDS : 4)
    for (int i = 0; i < ROUNDS; ++i, line += LINES_AT_ONCE) {
      long long row = __shfl_sync(0xffffffff, known, i * OF_WARP + threadIdx.x % 32 / UNITS);
      bool given = line < rows && its < width;
      gather_load(panel + line * 128 + (unit % 8 ^ line % 8) * 16, given ? from + row * width + its : from, given ? 16 : 0);
    }
  }
};

// Stores 64 x WEIGHTS values of a warpgroup transposed: element (row, column) goes to to[column * height + row]. Rows begin at
// `row` for this warp, and end at `height`, a multiple of 8; columns begin at `column` and end at `width`.
template <typename T, int COUNT>
__device__ __forceinline__ void store_transposed(const float (&d)[COUNT], T* to, int row, int height, int column, int width,
                                                 int lane) {
  int quad = lane % 4, its_row = row + 8 * (quad % 2);
#pragma unroll
  for (int j = 0; j < WEIGHTS / 8; j += 2) {
    uint32_t w[4];  // of two blocks of 8 columns, rows 0 to 7 and 8 to 15
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int value = 4 * (j + i / 2) + 2 * (i % 2);
      w[i] = transpose(pack<T>(d[value], d[value + 1]));
    }
    quad_transpose(w, quad);  // now each thread has 16 bytes of a column
    int its_column = column + 8 * (j + quad / 2) + lane / 4;
    if (its_row < height && its_column < width)
      *reinterpret_cast<uint4*>(to + static_cast<long long>(its_column) * height + its_row) = make_uint4(w[0], w[1], w[2], w[3]);
  }
}

template <typename T, Kind KIND>
struct Product {
  static constexpr bool GATHERS = true;

  // Columns of a tile's result; the gathered operand has `dim` of them.
  __device__ __forceinline__ static int width(const Problem& p) { return KIND == UP ? 2 * p.hidden : p.hidden; }
  __device__ __forceinline__ static Order order(const Problem& p) {
    return {p.experts, (p.dim + TILE_ROWS - 1) / TILE_ROWS, (width(p) + WEIGHTS - 1) / WEIGHTS};
  }
  __device__ __forceinline__ static void prefetch(const Operands<T>& operands) { tma_prefetch(&operands.map); }

  __device__ __forceinline__ static void produce(const Operands<T>& operands, const Problem& p, const Shared& shared) {
    Order order = Product::order(p);
    Queue queue{shared.tiles()};
    Tickets tickets{operands.counters};
    Place place;
    for (;;) {
      if (threadIdx.x == 0) tickets.pass(queue, order.count());
      int index = queue.take(), row_tile, column_tile;
      if (index >= order.count()) break;
      Span span = operands.spans[order.at(index, row_tile, column_tile)];
      Panels<TILE_ROWS> left{row_tile * TILE_ROWS, p.dim};
      Panels<WEIGHTS> right{column_tile * WEIGHTS, width(p)};
      // The token of this lane's row of the step at `k`. It is read one step ahead.
      auto token_at = [&](int k) {
        int line = k + left.line_of_lane();
        return line < span.rows ? __ldg(operands.row_tokens + span.row + line) : 0;
      };
      int token = token_at(0);
#pragma unroll 1
      for (int k = 0; k < span.rows; k += STEP) {
        uint32_t full = shared.full(place.stage), a = shared.a + place.stage * A_BYTES, b = shared.b + place.stage * B_BYTES;
        int rows = span.rows - k;
        barrier_wait(shared.empty(place.stage), place.parity ^ 1);
        if (threadIdx.x == 0) {
          if (rows >= STEP) {
            barrier_expect(full, B_BYTES);
            right.copy(b, operands.map, full, span.row + k);
          } else {
            barrier_arrive(full);
          }
        }
        left.gather(a, operands.tokens, rows, token);
        if (rows < STEP) right.gather(b, operands.rows, rows, span.row + k + right.line_of_lane());
        gather_arrive(full);
        token = token_at(k + STEP);
        place.next();
      }
    }
    if (threadIdx.x == 0) tickets.end();
  }

  __device__ __forceinline__ static void consume(const Operands<T>& operands, const Problem& p, const Shared& shared) {
    constexpr int K_STEP = 16 * 128 / 16;  // 16 rows of a panel, in 16 bytes
    int width = Product::width(p);
    Part part;
    uint64_t a_tile = tile_descriptor(shared.a + part.first_row / PANEL * PANEL_BYTES, PANEL_BYTES);
    uint64_t b_tile = tile_descriptor(shared.b, PANEL_BYTES);
    Order order = Product::order(p);
    Queue queue{shared.tiles()};
    Place place;
    for (int index, row_tile, column_tile; (index = queue.take()) < order.count();) {
      int expert = order.at(index, row_tile, column_tile), rows = operands.spans[expert].rows;
      bool multiplies = row_tile * TILE_ROWS + part.first_row < p.dim;
      float d[WEIGHTS / 2];
      forget(d);
#pragma unroll 1
      for (int k = 0; k < rows; k += STEP) {
        barrier_wait(shared.full(place.stage), place.parity);
        if (multiplies) {
          proxy_fence();  // ordinary writes have gathered
          hold(d);
          wgmma_fence();
#pragma unroll
          for (int i = 0; i < STEP / 16; ++i) {
            uint64_t a = a_tile + place.stage * (A_BYTES / 16) + K_STEP * i;
            uint64_t b = b_tile + place.stage * (B_BYTES / 16) + K_STEP * i;
            Wgmma<T, WEIGHTS>::template both_shared<1, 1>(d, a, b, (k | i) != 0);
          }
          wgmma_commit();
          wgmma_wait<0>();
          hold(d);
        }
        if (part.lane == 0) barrier_arrive(shared.empty(place.stage));
        place.next();
      }
      if (!multiplies) continue;
      if (rows == 0) {
#pragma unroll
        for (int i = 0; i < WEIGHTS / 2; ++i) d[i] = 0.0f;
      }
      T* to = operands.output + static_cast<long long>(expert) * p.dim * width;
      int row = row_tile * TILE_ROWS + part.my_row;
      if (KIND == UP) {
        store_transposed(d, to, row - part.lane / 4, p.dim, column_tile * WEIGHTS, width, part.lane);
      } else {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          store<WEIGHTS, 0>(d, r, to + static_cast<long long>(row + 8 * r) * width, column_tile * WEIGHTS, width,
                            row + 8 * r < p.dim, part.quad);
      }
    }
  }
};

}  // namespace moe

// `rows` is read through the map too.
#define MOE(TYPE, NAME, WHICH, KIND)                                                                                        \
  extern "C" __global__ void __launch_bounds__(moe::THREADS, 1) moe_##WHICH##_gradient_hopper_##NAME(                       \
      const __grid_constant__ CUtensorMap map, const TYPE* rows, const TYPE* tokens, const int* row_tokens,                 \
      const moe::Span* spans, unsigned* counters, TYPE* gradient, const __grid_constant__ moe::Problem problem) {           \
    moe::run<moe::Product<TYPE, moe::KIND>>(moe::Operands<TYPE>{map, rows, tokens, row_tokens, spans, counters, gradient},  \
                                            problem);                                                                       \
  }
MOE(__nv_bfloat16, bf16, up, UP)
MOE(__nv_bfloat16, bf16, down, DOWN)
MOE(__half, f16, up, UP)
MOE(__half, f16, down, DOWN)
