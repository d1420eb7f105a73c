// Attention forward on Hopper (sm_90a), after FlashAttention-3.
//
// The idea. A block of threads owns M queries of one head and walks over the keys in blocks of N, from the last to the
// first. Scores never leave the registers: each warpgroup multiplies 64 queries with N keys (wgmma), turns the scores into
// weights exp(score - maximum so far), rounds these to 16 bits in place, as the A operand of the product with V, and
// rescales its output when the maximum grows ("online softmax"). Memory traffic is Q, K, V and O alone.
//
// Matrix products take most of the time, exponentials nearly as much (the tensor cores do 4096 operations in a cycle, the
// exponential units 16), so both must run at once. Three things see to that:
// - Inside a warpgroup, the products Q K^T of this block and P V of the block before run while its weights are computed.
// - Between warpgroups, named barriers make them take turns at issuing products ("ping-pong"), so that one computes
//   exponentials while another multiplies. With 128 elements they fall into step without that.
// - One further warp, the producer, does nothing but ask the copy engine for tiles ahead of time; the registers that its
//   warpgroup does not need go to the others.
//
// Blocks are persistent: one for each multiprocessor, which takes tiles from a counter until there are none. While the
// consumers finish a tile, the producer already loads the next: each warpgroup's part of Q has barriers of its own, so that it
// does not wait for the others', and Q has two stages where shared memory has room. Where queries see unequal numbers of
// keys, long tiles come first, so that all blocks end at about the same time; tiles of `head_group` heads are interleaved, so
// that blocks that run at the same time read the same K and V from the L2 cache.
//
// The producer computes where a tile lies and hands that to the consumers, through shared memory, so that they spend no time on
// divisions by numbers of heads and tiles. Packed sequences are the same work with other tiles: attention_tiles.cuh.
//
// Of a causal mask, tiles end with the last query, so that the first may begin before query 0: no block of keys is walked for
// rows that are not there. A warpgroup lets those blocks go that none of its rows sees, and of the last block that it sees it
// computes no exponentials for the second half if that is hidden. All of this leaves the bits of results as they are.
//
// Invariants:
// - Producer and consumers walk through the same tiles and the same blocks of keys: barrier phases are counted, not told.
// - A row that has seen no key yet has the maximum -infinity; weights are then computed against 0, which makes them 0.
//   Only blocks that are masked can leave a row in that state.
// - Rows and keys that lie outside the tensors are read as zeros (TMA), masked, and not written.
#include "attention_tiles.cuh"

namespace attention {
using namespace hopper;

template <typename T_, int D_, Mask MASK_, int WARPGROUPS_, int N_, int Q_STAGES_>
struct Config {
  using T = T_;
  static constexpr Mask MASK = MASK_;
  static constexpr int D = D_;                    // elements of a head
  static constexpr int WARPGROUPS = WARPGROUPS_;  // consumers, of 64 queries each
  static constexpr int M = 64 * WARPGROUPS;
  static constexpr int N = N_;
  static constexpr int STAGES = 2;            // blocks of K, and of V, in shared memory
  static constexpr int Q_STAGES = Q_STAGES_;  // tiles of Q in shared memory
  static constexpr int THREADS = 128 * (WARPGROUPS + 1);
  // A thread starts with LAUNCH_REGISTERS; then the warpgroups share out exactly what the block was given. (`setmaxnreg`
  // waits for registers of its own block: asking for more in total would wait forever.)
  static constexpr int LAUNCH_REGISTERS = 65536 / THREADS / 8 * 8;
  static constexpr int PRODUCER_REGISTERS = WARPGROUPS == 3 ? 32 : 40;
  static constexpr int CONSUMER_REGISTERS = WARPGROUPS == 3 ? 160 : 232;
  static_assert(PRODUCER_REGISTERS + WARPGROUPS * CONSUMER_REGISTERS <= (WARPGROUPS + 1) * LAUNCH_REGISTERS);
  static constexpr int Q_BYTES = 64 * D * 2, BLOCK_BYTES = N * D * 2;  // of a warpgroup's queries, of a block
  // Keep an old maximum as long as weights relative to it stay below 2^8: the output is rescaled less often. It pays where
  // the output has many registers.
  static constexpr bool KEEP_MAXIMUM = D == 256;
  // Warpgroups take turns at issuing products, where that pays.
  static constexpr bool PING_PONG = D != 128;
};

// Chosen by measurement: docs/results/attention-h200.md has what else was tried. The host knows M, N and both STAGES too
// (src/attention/hopper.rs).
template <typename T, int D, Mask MASK>
struct Chosen;
template <typename T, Mask MASK>
struct Chosen<T, 64, MASK> : Config<T, 64, MASK, 3, 128, 2> {};
template <typename T, Mask MASK>
struct Chosen<T, 128, MASK> : Config<T, 128, MASK, 2, 128, 2> {};
template <typename T, Mask MASK>
struct Chosen<T, 256, MASK> : Config<T, 256, MASK, 2, 80, 1> {};

// Where things are in shared memory: Q, then the stages of K and of V, then barriers.
template <class C>
struct Shared {
  uint32_t q, k, v, barriers;
  __device__ __forceinline__ explicit Shared(uint32_t start)
      : q(start),
        k(q + C::Q_STAGES * C::WARPGROUPS * C::Q_BYTES),
        v(k + C::STAGES * C::BLOCK_BYTES),
        barriers(v + C::STAGES * C::BLOCK_BYTES) {}
  // Of each pair of barriers the first completes when something has come, the second when it is no longer needed.
  // Each warpgroup has its own part of Q, `part` of WARPGROUPS * Q_STAGES.
  __device__ __forceinline__ uint32_t q_full(int part) const { return barriers + 16 * part; }
  __device__ __forceinline__ uint32_t q_empty(int part) const { return q_full(part) + 8; }
  __device__ __forceinline__ uint32_t k_full(int stage) const { return q_full(C::WARPGROUPS * C::Q_STAGES) + 8 * stage; }
  __device__ __forceinline__ uint32_t k_empty(int stage) const { return k_full(stage) + 8 * C::STAGES; }
  __device__ __forceinline__ uint32_t v_full(int stage) const { return k_full(stage) + 16 * C::STAGES; }
  __device__ __forceinline__ uint32_t v_empty(int stage) const { return k_full(stage) + 24 * C::STAGES; }
  __device__ __forceinline__ uint32_t tiles() const { return k_full(4 * C::STAGES); }
  __device__ __forceinline__ uint32_t taken() const { return tiles() + 48; }  // tiles that are handed over

  // One thread initialises them all. What has come is told by one thread, what is done by one thread of each warp.
  __device__ __forceinline__ void init() const {
    constexpr int READERS = 4 * C::WARPGROUPS;
    for (int i = 0; i < C::WARPGROUPS * C::Q_STAGES; ++i) {
      barrier_init(q_full(i), 1);
      barrier_init(q_empty(i), 4);
    }
    for (int i = 0; i < C::STAGES; ++i) {
      barrier_init(k_full(i), 1);
      barrier_init(k_empty(i), READERS);
      barrier_init(v_full(i), 1);
      barrier_init(v_empty(i), READERS);
    }
    Queue::init(tiles(), READERS);
    barrier_init_fence();
  }
};

// One tile of work: queries [row, row + M) of one head, and the blocks of keys [first, last) that they see. Of packed sequences,
// `batch` is its place in the plan.
struct Tile {
  int row, head, batch, first, last;
  int queries, keys;  // of the sequence
};

// Tiles of queries of one head, of all sequences if they are packed.
__device__ __forceinline__ int tiles_of_head(const Problem& p, const PlannedTile* plan) {
  return plan ? plan->row : p.query_tiles;
}

template <class C>
__device__ __forceinline__ Tile tile_at(const Problem& p, const PlannedTile* plan, int index) {
  Tile t;
  int query_tiles = tiles_of_head(p, plan);
  int per_group = p.head_group * query_tiles;
  int group = index / per_group;
  int within = index - group * per_group;
  int heads = min(p.head_group, p.heads * p.batch - group * p.head_group);
  int q = within / heads;
  int head = group * p.head_group + (within - q * heads);
  t.queries = p.queries;
  t.keys = p.keys;
  if (plan) {
    const PlannedTile& its = plan[1 + q];
    t.row = its.row;
    t.queries = its.queries;
    t.keys = its.keys;
    t.batch = 1 + q;
    t.head = head;
  } else {
    if (C::MASK == CAUSAL) q = query_tiles - 1 - q;  // longest first
    t.row = C::MASK == CAUSAL ? p.queries - (query_tiles - q) * C::M : q * C::M;
    t.batch = head / p.heads;
    t.head = head - t.batch * p.heads;
  }
  Problem its = lengths(p, t.queries, t.keys);
  int begin, end, unused;
  seen<C::MASK>(its, t.row, begin, unused);
  seen<C::MASK>(its, min(t.row + C::M, t.queries) - 1, unused, end);
  t.first = begin / C::N;
  t.last = max(t.first, (end + C::N - 1) / C::N);
  return t;
}

// One thread: hands each tile over, asks for its Q, and for K and V block by block. `counters` are the tiles that were taken and the
// blocks of threads that are done; the last one resets both, for the next launch.
template <class C>
__device__ __forceinline__ void produce(const CUtensorMap& q_map, const CUtensorMap& k_map, const CUtensorMap& v_map,
                                        const Problem& p, const PlannedTile* plan, const Shared<C>& shared,
                                        unsigned* counters, int tiles) {
  constexpr int S = C::STAGES;
  // Tiles and blocks of keys so far: they decide stages and parities.
  uint32_t handed = 0, loaded = 0, blocks = 0;
  auto queue = [&] { return Queue{shared.tiles(), static_cast<int>(handed % 2), static_cast<int>(handed / 2 % 2)}; };
  for (int index = blockIdx.x, next; index < tiles; index = next) {
    Tile t = tile_at<C>(p, plan, index);
    queue().put(shared.taken(), {t.row, t.head, t.batch, t.first, t.last, t.queries, t.keys, 1});
    uint32_t handed_at = shared.taken() + 32 * (handed++ % 2);
    next = gridDim.x + atomicAdd(counters, 1u);
    if (t.first >= t.last) continue;
    int key_head = t.head / (p.heads / p.key_heads);
    auto load = [&](const CUtensorMap& map, uint32_t to, uint32_t full, uint32_t block, int n) {
      uint32_t stage = block % S;
      full += 8 * stage;
      barrier_wait(full + 8 * S, (block / S & 1) ^ 1);
      barrier_expect(full, C::BLOCK_BYTES);
      tma_load_rows(to + stage * C::BLOCK_BYTES, &map, full, key_place<C::D>(p, plan, t.batch, key_head), n * C::N);
    };
    // V of a block is needed after K of the next.
    int n = t.last - 1;
    load(k_map, shared.k, shared.k_full(0), blocks, n);
    // Read again, so that it takes no register in between.
    auto put = [&](int which) { return Queue::number(handed_at + 4 * which); };
    int row = put(0);
    Place of_queries = query_place<C::D>(p, plan, put(2), put(1));
#pragma unroll 1
    for (int i = 0; i < C::WARPGROUPS; ++i) {
      uint32_t part = loaded % C::Q_STAGES * C::WARPGROUPS + i;
      barrier_wait(shared.q_empty(part), loaded / C::Q_STAGES % 2 ^ 1);
      barrier_expect(shared.q_full(part), C::Q_BYTES);
      tma_load_rows(shared.q + part * C::Q_BYTES, &q_map, shared.q_full(part), of_queries, row + i * 64);
    }
    ++loaded;
#pragma unroll 1
    for (; n > t.first; --n, ++blocks) {
      load(k_map, shared.k, shared.k_full(0), blocks + 1, n - 1);
      load(v_map, shared.v, shared.v_full(0), blocks, n);
    }
    load(v_map, shared.v, shared.v_full(0), blocks++, n);
  }
  queue().put(shared.taken(), {});
  __threadfence();
  if (atomicAdd(counters + 1, 1u) == gridDim.x - 1) {
    counters[0] = 0;
    counters[1] = 0;
  }
}

// A consumer warpgroup. Each thread holds parts of two rows (`r` = 0, 1), 8 apart: see wgmma's layout in hopper.cuh.
template <class C>
__device__ __forceinline__ void consume(const Problem& p, const PlannedTile* plan, const Shared<C>& shared, void* output,
                                        float* log_sum_exps) {
  using T = typename C::T;
  constexpr int S = C::STAGES, N = C::N, D = C::D;
  int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0) - 1;
  int lane = threadIdx.x % 32, quad = lane % 4;
  int my_row = warpgroup * 64 + (threadIdx.x % 128) / 32 * 16 + lane / 4;

  uint64_t q_tile = tile_descriptor(shared.q + warpgroup * C::Q_BYTES, 0);
  uint64_t k_tile = tile_descriptor(shared.k, 0);
  uint64_t v_tile = tile_descriptor(shared.v, N * 128);
  int k_stage = 0, k_parity = 0, v_stage = 0, v_parity = 0, q_stage = 0, q_parity = 0;
  Queue queue{shared.tiles()};

  // Turns at issuing products, in the order of the warpgroups. The last one lets the first begin.
  auto await_turn = [&] {
    if (C::PING_PONG) named_sync(1 + warpgroup, 256);
  };
  auto pass_turn = [&] {
    if (C::PING_PONG) named_arrive(1 + (warpgroup + 1 == C::WARPGROUPS ? 0 : warpgroup + 1), 256);
  };
  if (warpgroup == C::WARPGROUPS - 1) pass_turn();

  for (;;) {
    queue.await();
    auto taken = [&](int which) { return Queue::number(shared.taken() + 32 * queue.slot + 4 * which); };
    if (!taken(7)) break;
    Tile t = {taken(0), 0, 0, taken(3), taken(4), taken(5), taken(6)};
    Problem its = lengths(p, t.queries, t.keys);
    float o[D / 2];
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < D / 2; ++i) o[i] = 0.0f;

    if (t.first < t.last) {
      float s[N / 2];             // scores, then weights
      uint32_t weights[N / 4];    // rounded
      float rescale[2];           // what earlier sums are multiplied by
      bool rescales = true;       // any of this warp's is not 1

      auto multiply_qk = [&] {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < D / 16; ++k) {
          uint64_t a = q_tile + q_stage * (C::WARPGROUPS * C::Q_BYTES / 16) + (k / 4) * (64 * 128 / 16) + (k % 4) * 2;
          uint64_t b = k_tile + k_stage * (C::BLOCK_BYTES / 16) + (k / 4) * (N * 128 / 16) + (k % 4) * 2;
          Wgmma<T, N>::both_shared(s, a, b, k != 0);
        }
        wgmma_commit();
      };
      auto multiply_pv = [&] {
        hold(o);
        hold(weights);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < N / 16; ++k) {
          uint64_t b = v_tile + v_stage * (C::BLOCK_BYTES / 16) + k * (16 * 128 / 16);
          Wgmma<T, D>::a_registers(o, &weights[4 * k], b, 1);
        }
        wgmma_commit();
      };
      auto v_done = [&] {
        if (lane == 0) barrier_arrive(shared.v_empty(v_stage));
        if (++v_stage == S) v_stage = 0, v_parity ^= 1;
      };
      auto await_pv = [&] {
        wgmma_wait<0>();
        hold(o);
        hold(weights);
        v_done();
      };
      auto k_done = [&] {
        if (lane == 0) barrier_arrive(shared.k_empty(k_stage));
        if (++k_stage == S) k_stage = 0, k_parity ^= 1;
      };
      auto mask = [&](int n) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          int begin, end;
          seen<C::MASK>(its, t.row + my_row + 8 * r, begin, end);
          begin -= n * N + 2 * quad;
          end -= n * N + 2 * quad;
#pragma unroll
          for (int i = 0; i < N / 4; ++i) {
            int column = i / 2 * 8 + i % 2;
            bool hidden = column >= end;
            if (C::MASK == WINDOW) hidden = hidden || column < begin;
            if (hidden) s[i / 2 * 4 + 2 * r + i % 2] = -INFINITY;
          }
        }
      };
      auto softmax = [&](auto masked_flag, auto first_flag, bool half) {
        constexpr bool masked = decltype(masked_flag)::value, first = decltype(first_flag)::value;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float m = first ? s[2 * r] : fmaxf(top[r], s[2 * r]);
          m = fmaxf(m, s[2 * r + 1]);
#pragma unroll
          for (int j = 1; j < N / 8; ++j) m = fmaxf(m, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
          m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 1));
          m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 2));
          if (C::KEEP_MAXIMUM && !first && (m - top[r]) * p.scale_log2 <= 8.0f) m = top[r];
          float finite = masked && m == -INFINITY ? 0.0f : m;
          float base = finite * p.scale_log2;
          rescale[r] = first ? 1.0f : exp2_fast((top[r] - finite) * p.scale_log2);
          top[r] = m;
          float add = 0.0f;
#pragma unroll
          for (int i = 0; i < N / 4; ++i) {
            float& x = s[i / 2 * 4 + 2 * r + i % 2];
            if (first && half && i >= N / 8) {
              x = 0.0f;
              continue;
            }
            x = exp2_fast(fmaf(x, p.scale_log2, -base));
            add += x;
          }
          sum[r] = first ? add : fmaf(sum[r], rescale[r], add);
        }
        if (C::KEEP_MAXIMUM) rescales = __any_sync(0xffffffff, rescale[0] != 1.0f || rescale[1] != 1.0f);
      };
      auto round_weights = [&] {
#pragma unroll
        for (int i = 0; i < N / 4; ++i) weights[i] = pack<T>(s[2 * i], s[2 * i + 1]);
      };

      // Blocks that none of this warpgroup's rows sees are let go.
      int from = t.row + warpgroup * 64, unused_begin, seen_end;
      seen<C::MASK>(its, min(from + 63, t.queries - 1), unused_begin, seen_end);
      if (from >= t.queries || from + 63 < 0) seen_end = 0;
      int last = max(t.first, min(t.last, (seen_end + N - 1) / N));
#pragma unroll 1
      for (int n = t.last - 1; n >= last; --n) {
        barrier_wait(shared.k_full(k_stage), k_parity);
        k_done();
        if (n > t.first) {
          await_turn();
          pass_turn();
        }
        barrier_wait(shared.v_full(v_stage), v_parity);
        v_done();
      }
      int part = q_stage * C::WARPGROUPS + warpgroup;
      barrier_wait(shared.q_full(part), q_parity);
      auto q_done = [&] {
        if (lane == 0) barrier_arrive(shared.q_empty(part));
        if (++q_stage == C::Q_STAGES) q_stage = 0, q_parity ^= 1;
      };
      if (last == t.first) {
        q_done();
      } else {
        // The last block, which lies partly outside or is masked, or not. With 128 elements it was slower to find out first.
        barrier_wait(shared.k_full(k_stage), k_parity);
        multiply_qk();
        wgmma_wait<0>();
        hold(s);
        k_done();
        if (C::MASK != FULL || C::D == 128 || last * N > t.keys) mask(last - 1);
        softmax(Flag<true>{}, Flag<true>{}, C::MASK == CAUSAL && seen_end - (last - 1) * N <= N / 2);
        round_weights();

        auto step = [&](int n, auto masked) {
          barrier_wait(shared.k_full(k_stage), k_parity);
          await_turn();
          hold(s);
          multiply_qk();
          barrier_wait(shared.v_full(v_stage), v_parity);
          multiply_pv();
          pass_turn();
          wgmma_wait<1>();
          hold(s);
          k_done();
          if (decltype(masked)::value) mask(n);
          softmax(masked, Flag<false>{}, false);
          await_pv();
          round_weights();
          if (!rescales) return;
#pragma unroll
          for (int i = 0; i < D / 2; ++i) o[i] *= rescale[(i / 2) % 2];
        };
        // All rows of this warpgroup see all of the blocks [full_first, full_last), and parts of the others.
        int full_first = t.first, full_last = t.keys / N;
        if (C::MASK != FULL) {
          int begin, end, unused;
          seen<C::MASK>(its, t.row + warpgroup * 64, unused, end);
          seen<C::MASK>(its, t.row + warpgroup * 64 + 63, begin, unused);
          full_last = max(end, 0) / N;
          full_first = max(t.first, (begin + N - 1) / N);
        }
        int n = last - 2;
        if (C::MASK != FULL) {
#pragma unroll 1
          for (; n >= max(full_last, t.first); --n) step(n, Flag<true>{});
        }
#pragma unroll 1
        for (; n >= full_first; --n) step(n, Flag<false>{});
        if (C::MASK == WINDOW) {
#pragma unroll 1
          for (; n >= t.first; --n) step(n, Flag<true>{});
        }
        q_done();

        barrier_wait(shared.v_full(v_stage), v_parity);
        multiply_pv();
        await_pv();
      }
    }

    t.row = taken(0), t.head = taken(1), t.batch = taken(2), t.queries = taken(5);
    queue.taken();
    long long first_element = t.batch * p.query_batch + t.head * p.query_head;
    long long first_sum = (static_cast<long long>(t.batch) * p.heads + t.head) * p.queries;
    if (plan) {
      int start = plan[t.batch].query;
      first_element = packed_elements<D>(rows_first<D>(p), start, t.queries, p.heads, t.head);
      first_sum = static_cast<long long>(start) * p.heads + t.head * t.queries;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 1);
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 2);
      float inverse = sum[r] == 0.0f ? 0.0f : 1.0f / sum[r];
      int row = t.row + my_row + 8 * r;
      bool inside = row < t.queries && (C::MASK != CAUSAL || row >= 0);
      T* to = static_cast<T*>(output) + first_element + row * p.query_row;
#pragma unroll
      for (int j = 0; j < D / 8; j += 4) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          w[i] = pack<T>(o[4 * (j + i) + 2 * r] * inverse, o[4 * (j + i) + 2 * r + 1] * inverse);
        quad_transpose(w, quad);  // now each thread has 16 bytes of the row
        if (inside) *reinterpret_cast<uint4*>(to + 8 * (j + quad)) = make_uint4(w[0], w[1], w[2], w[3]);
      }
      if (inside && quad == 0) log_sum_exps[first_sum + row] = log_sum_exp(p, top[r], sum[r]);
    }
  }
}

template <class C>
__device__ __forceinline__ void forward(const CUtensorMap& q_map, const CUtensorMap& k_map, const CUtensorMap& v_map,
                                        void* output, float* log_sum_exps, unsigned* counters, const Problem& p,
                                        const PlannedTile* plan) {
  extern __shared__ uint8_t memory[];
  Shared<C> shared((shared_address(memory) + 1023) & ~1023u);
  int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    shared.init();
    tma_prefetch(&q_map);
    tma_prefetch(&k_map);
    tma_prefetch(&v_map);
  }
  __syncthreads();
  int tiles = tiles_of_head(p, plan) * p.heads * p.batch;
  if (warpgroup == 0) {
    registers_shrink<C::PRODUCER_REGISTERS>();
    if (threadIdx.x == 0) produce<C>(q_map, k_map, v_map, p, plan, shared, counters, tiles);
  } else {
    registers_grow<C::CONSUMER_REGISTERS>();
    consume<C>(p, plan, shared, output, log_sum_exps);
  }
}

}  // namespace attention

// Q, K and V are read through their maps; their addresses are parameters so that the host's order of work on buffers
// knows of them.
#define ATTENTION(TYPE, NAME, D, MASK, MASK_NAME)                                                                    \
  extern "C" __global__ void __launch_bounds__(attention::Chosen<TYPE, D, attention::MASK>::THREADS, 1)              \
      attention_hopper_##NAME##_d##D##_##MASK_NAME(                                                                  \
          const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,                      \
          const __grid_constant__ CUtensorMap v_map, const TYPE*, const TYPE*, const TYPE*, TYPE* output,            \
          float* log_sum_exps, unsigned* counters, const __grid_constant__ attention::Problem problem,               \
          const attention::PlannedTile* plan) {                                                                      \
    attention::forward<attention::Chosen<TYPE, D, attention::MASK>>(q_map, k_map, v_map, output, log_sum_exps,       \
                                                                    counters, problem, plan);                        \
  }
#define ATTENTION_MASKS(TYPE, NAME, D)   \
  ATTENTION(TYPE, NAME, D, FULL, full)     \
  ATTENTION(TYPE, NAME, D, CAUSAL, causal) \
  ATTENTION(TYPE, NAME, D, WINDOW, window)
// One binary for each head dimension: DIM comes from the build script.
#define ATTENTION_OF(D) ATTENTION_MASKS(__nv_bfloat16, bf16, D) ATTENTION_MASKS(__half, f16, D)
ATTENTION_OF(DIM)
