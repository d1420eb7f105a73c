// Attention backward on Hopper (sm_90a) for heads of 256 elements, whose gradients of K and V fill the registers of one block of
// threads with 64 keys: attention_backward_hopper.cu, which says what is computed, has twice as many.
//
// Two blocks of a cluster own 64 keys each and walk over the same queries. In each block of threads,
// - one warpgroup computes S^T and the weights P^T, and sums up dV = P^T dO;
// - the other computes dP^T and dS^T, with the weights that the first one leaves in shared memory, in float32, and sums up
//   dK = dS^T Q.
// P^T and dS^T are the A operands of these sums where they are, in registers, and B has all 256 columns: tensor cores read less
// from shared memory than with any other split. Both warpgroups have the same products to compute, and one computes exponentials while
// the other one's products run.
//
// dQ = dS K needs the keys of both blocks. The blocks exchange dS, and each computes half of the columns, a quarter for each
// warpgroup, for which it also holds that half of the other block's K. So the sums of dQ in memory are as few as with 128 keys in a
// block. Where the other form leaves them to the copy engine, here each thread adds from registers: no shared memory is left.
//
// The first warpgroup computes its quarter for a block of queries one block later, when dS has long come.
//
// Invariants, beside those of the other form:
// - The sums of dQ are in the order of registers: [head of queries][block of queries][8 columns][thread][4].
// - A block of threads writes to the other one's shared memory only behind its barrier `ds_empty`, and none ends before both have.
#include "attention_backward_hopper.cuh"

namespace attention {

// What else was tried: docs/results/attention-h200.md. The host knows M and N too (src/attention/backward.rs).
template <typename T_, Mask MASK_>
struct Config {
  using T = T_;
  static constexpr Mask MASK = MASK_;
  static constexpr int D = 256;
  static constexpr int M = 64;     // queries of a block
  static constexpr int KEYS = 64;  // of a block of threads
  static constexpr int BLOCKS = 2, N = KEYS * BLOCKS;  // blocks of threads of a cluster, and their keys
  static constexpr int Q_STAGES = 2, GO_STAGES = 1, SCORE_STAGES = 2;  // blocks of Q, of dO, and of dS in shared memory
  static constexpr int THREADS = 384;
  static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
  static constexpr int HALF = D / BLOCKS, PART = HALF / 2;  // columns of dQ of a block of threads, and of a warpgroup
  static constexpr int PANEL_BYTES = 64 * 128;              // 64 rows and columns: one swizzled panel
  static constexpr int TILE_BYTES = D / 64 * PANEL_BYTES, HALF_BYTES = TILE_BYTES / 2;
  static constexpr int WEIGHT_BYTES = M * KEYS * 4, SCORE_BYTES = BLOCKS * PANEL_BYTES, STATISTICS_BYTES = M * 4;
  static constexpr int SHARED_BYTES = 1024 + (2 + Q_STAGES + GO_STAGES) * TILE_BYTES + HALF_BYTES + WEIGHT_BYTES +
                                      SCORE_STAGES * SCORE_BYTES + (Q_STAGES + GO_STAGES) * STATISTICS_BYTES + 256;
  static_assert(SHARED_BYTES <= 227 * 1024);
};

// Where things are in shared memory: K and V of this block's keys, this block's half of the columns of the other one's K, the stages
// of Q and of dO, P^T in float32, the stages of dS, then the statistics of rows, and barriers.
template <class C>
struct Shared {
  uint32_t k, v, other, q, go, weights, ds, logs, deltas, barriers;
  __device__ __forceinline__ explicit Shared(uint32_t start)
      : k(start),
        v(k + C::TILE_BYTES),
        other(v + C::TILE_BYTES),
        q(other + C::HALF_BYTES),
        go(q + C::Q_STAGES * C::TILE_BYTES),
        weights(go + C::GO_STAGES * C::TILE_BYTES),
        ds(weights + C::WEIGHT_BYTES),
        logs(ds + C::SCORE_STAGES * C::SCORE_BYTES),
        deltas(logs + C::Q_STAGES * C::STATISTICS_BYTES),
        barriers(deltas + C::GO_STAGES * C::STATISTICS_BYTES) {}
  __device__ __forceinline__ uint32_t k_full() const { return barriers; }
  __device__ __forceinline__ uint32_t v_full() const { return barriers + 8; }
  __device__ __forceinline__ uint32_t weights_full() const { return barriers + 16; }
  __device__ __forceinline__ uint32_t weights_empty() const { return barriers + 24; }
  __device__ __forceinline__ uint32_t q_full(int stage) const { return barriers + 32 + 8 * stage; }
  __device__ __forceinline__ uint32_t q_empty(int stage) const { return q_full(stage) + 8 * C::Q_STAGES; }
  __device__ __forceinline__ uint32_t go_full(int stage) const { return q_full(2 * C::Q_STAGES + stage); }
  __device__ __forceinline__ uint32_t go_empty(int stage) const { return go_full(stage) + 8 * C::GO_STAGES; }
  __device__ __forceinline__ uint32_t ds_full(int stage) const { return go_full(2 * C::GO_STAGES + stage); }
  __device__ __forceinline__ uint32_t ds_empty(int stage) const { return ds_full(stage) + 8 * C::SCORE_STAGES; }

  // One thread initialises them all. Threads that have read with ordinary loads arrive one by one; where the tensor cores alone
  // have read, one thread of each warp of both blocks does.
  __device__ __forceinline__ void init() const {
    barrier_init(k_full(), 1);
    barrier_init(v_full(), 1);
    barrier_init(weights_full(), 128);
    barrier_init(weights_empty(), 128);
    for (int i = 0; i < C::Q_STAGES; ++i) {
      barrier_init(q_full(i), 1);
      barrier_init(q_empty(i), 256);
    }
    for (int i = 0; i < C::GO_STAGES; ++i) {
      barrier_init(go_full(i), 1);
      barrier_init(go_empty(i), 256);
    }
    for (int i = 0; i < C::SCORE_STAGES; ++i) {
      barrier_init(ds_full(i), 1);
      barrier_init(ds_empty(i), 8 * C::BLOCKS);
    }
    barrier_init_fence();
  }
};

template <class C>
__device__ __forceinline__ int cluster_now() {
  return block_now() / C::BLOCKS;
}

// Copies a tile of 64 rows and 256 columns, of which a map has half.
__device__ __forceinline__ void load_tile(uint32_t to, const CUtensorMap* map, uint32_t full, int row, int head, int batch) {
  tma_load(to, map, full, 0, row, 0, head, batch);
  tma_load(to + 2 * 64 * 128, map, full, 0, row, 2, head, batch);
}

// What one thread asks the copy engine for: the blocks of Q with their log-sum-exps, or those of dO with their sums.
struct Stream {
  const CUtensorMap* map;
  uint32_t rows, numbers, full;  // tiles, statistics; the barriers of the first stage, empty after full
  int which;                     // of the two statistics
};

template <class C, int STAGES>
__device__ __forceinline__ void produce(const Stream& to, const float* statistics, const Problem& p, const Tile& t) {
  int stage = 0, parity = 1;
  for_blocks<C::M>(p, nullptr, t, [&](int head, int m, uint32_t block) {
    uint32_t full = to.full + 8 * stage;
    barrier_wait(full + 8 * STAGES, parity);
    barrier_expect(full, C::TILE_BYTES + C::STATISTICS_BYTES);
    load_tile(to.rows + stage * C::TILE_BYTES, to.map, full, m * C::M, head, t.batch);
    bulk_load(to.numbers + stage * C::STATISTICS_BYTES, statistics + (2 * static_cast<size_t>(block) + to.which) * C::M,
              C::STATISTICS_BYTES, full);
    if (++stage == STAGES) stage = 0, parity ^= 1;
  });
}

// Writes a warpgroup's 64 rows of dK or dV, from `first_key` on.
template <typename T, int D>
__device__ __forceinline__ void write_keys(const Problem& p, const Tile& t, int first_key, const float (&values)[D / 2],
                                           void* gradient, float scale) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int key = first_key + first_row() + 8 * r;
    T* to = static_cast<T*>(gradient) + t.batch * p.key_batch + key * p.key_row + t.key_head * p.key_head;
#pragma unroll
    for (int j = 0; j < D / 8; j += 4) {
      uint32_t w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        w[i] = pack<T>(values[4 * (j + i) + 2 * r] * scale, values[4 * (j + i) + 2 * r + 1] * scale);
      quad_transpose(w, first_column() / 2);  // now each thread has 16 bytes of the row
      if (key < p.keys) *reinterpret_cast<uint4*>(to + 8 * j + 4 * first_column()) = make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
}

// A consumer warpgroup: the first, which sums up dV, or the second, which sums up dK.
template <class C, bool FIRST>
__device__ __forceinline__ void consume(const Problem& p, const Shared<C>& shared, const Tile& t, float* query_sums,
                                        void* gradient) {
  using T = typename C::T;
  constexpr int M = C::M, D = C::D, WARPGROUP = FIRST ? 0 : 1;

  // Descriptors of tiles. K and V as A of S^T and dP^T, with Q and dO as B; these transposed as B of dK and dV; dS as A of dQ, with K
  // transposed as B.
  constexpr uint32_t V_AT = C::TILE_BYTES, OTHER_AT = V_AT + C::TILE_BYTES, Q_AT = OTHER_AT + C::HALF_BYTES;
  constexpr uint32_t GO_AT = Q_AT + C::Q_STAGES * C::TILE_BYTES, WEIGHTS_AT = GO_AT + C::GO_STAGES * C::TILE_BYTES;
  constexpr uint32_t DS_AT = WEIGHTS_AT + C::WEIGHT_BYTES;
  uint32_t base = (shared.k & 0x3ffff) / 16;  // in a cluster, the bits above are the block's rank
  auto tile = [&](uint32_t at, uint32_t leading, uint32_t more) {
    return (static_cast<uint64_t>((1024 >> 4) | (1u << 30)) << 32) | (base + more + (at / 16 + (leading / 16 << 16)));
  };
  auto weights_at = [&] { return shared.weights + thread_now() % 128 * 16; };

  float sum[D / 2];  // of dV or dK
  int count = t.last - t.first, group = p.heads / p.key_heads, total = count * group;
  if (total == 0) {
#pragma unroll
    for (int i = 0; i < D / 2; ++i) sum[i] = 0.0f;
  } else {
    int m = t.first;
    uint32_t row_block = (t.batch * p.heads + t.key_head * group) * p.query_tiles + t.first;  // among all blocks of queries
    float dq[C::PART / 2];

    // This warpgroup's columns of dQ, from the keys of both blocks: its own first.
    auto multiply_dq = [&](int block) {
      int stage = block % C::SCORE_STAGES;
      barrier_wait(shared.ds_full(stage), block / C::SCORE_STAGES % 2);
      forget(dq);
      wgmma_fence();
      uint32_t rank = cluster_rank();
#pragma unroll
      for (int k = 0; k < C::N / 16; ++k) {
        bool own = k < C::KEYS / 16;
        uint32_t at = WARPGROUP * C::PANEL_BYTES + k % 4 * 16 * 128;
        uint64_t a = tile(DS_AT + k % 4 * 32, 0,
                          (own ? rank : rank ^ 1) * (C::PANEL_BYTES / 16) + stage * (C::SCORE_BYTES / 16));
        uint64_t b = own ? tile(at, 0, rank * (C::HALF_BYTES / 16)) : tile(OTHER_AT + at, 0, 0);
        Wgmma<T, C::PART>::template both_shared<0, 1>(dq, a, b, k != 0);
      }
      wgmma_commit();
    };
    // Adds them to the sums: of the block of queries before this one if `before`.
    auto dq_done = [&](int block, bool before) {
      hold(dq);
      if (first_lane()) {
        for (int rank = 0; rank < C::BLOCKS; ++rank)
          barrier_arrive_cluster(in_block(shared.ds_empty(block % C::SCORE_STAGES), rank));
      }
      __syncwarp();
      uint32_t of = before ? row_block - 1 - (m == t.first ? p.query_tiles - count : 0) : row_block;
      int part = cluster_rank() * 2 + WARPGROUP;
      float* to = query_sums + static_cast<size_t>(of) * (M * D) + part * (M * C::PART) + thread_now() % 128 * 4;
#pragma unroll
      for (int i = 0; i < C::PART / 8; ++i) add_four(to + i * 512, dq + 4 * i);
    };

    barrier_wait(shared.k_full(), 0);
    barrier_wait(shared.v_full(), 0);
    auto step = [&](int block, auto initial_flag) {
      constexpr bool initial = decltype(initial_flag)::value;
      bool overwrite = FIRST ? initial : block == 0;
      int q_stage = block % C::Q_STAGES, q_parity = block / C::Q_STAGES % 2;
      int go_stage = block % C::GO_STAGES, go_parity = block / C::GO_STAGES % 2;
      float s[M / 2];           // S^T, then P^T; or dP^T
      uint32_t factors[M / 4];  // P^T or dS^T, rounded
      barrier_wait(FIRST ? shared.q_full(q_stage) : shared.go_full(go_stage), FIRST ? q_parity : go_parity);
      forget(s);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < D / 16; ++k) {
        uint32_t at = k / 4 * C::PANEL_BYTES + k % 4 * 32;
        uint64_t a = tile((FIRST ? 0 : V_AT) + at, 0, 0);
        uint64_t b = tile((FIRST ? Q_AT : GO_AT) + at, 0, (FIRST ? q_stage : go_stage) * (C::TILE_BYTES / 16));
        Wgmma<T, M>::both_shared(s, a, b, k != 0);
      }
      wgmma_commit();
      wgmma_wait<0>();
      hold(s);

      if constexpr (FIRST) {
        weigh<C::MASK, M>(p, s, shared.logs + q_stage * C::STATISTICS_BYTES, t.key + cluster_rank() * C::KEYS, m * M);
        barrier_wait(shared.weights_empty(), block % 2 ^ 1);
        uint32_t to = weights_at();
#pragma unroll
        for (int i = 0; i < M / 8; ++i)
          asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * 128 * 16), "f"(s[4 * i]), "f"(s[4 * i + 1]),
                       "f"(s[4 * i + 2]), "f"(s[4 * i + 3])
                       : "memory");
        barrier_arrive(shared.weights_full());
        barrier_arrive(shared.q_empty(q_stage));
#pragma unroll
        for (int i = 0; i < M / 4; ++i) factors[i] = pack<T>(s[2 * i], s[2 * i + 1]);
        barrier_wait(shared.go_full(go_stage), go_parity);
      } else {
        float weights[M / 2];
        barrier_wait(shared.weights_full(), block % 2);
        uint32_t from = weights_at();
#pragma unroll
        for (int i = 0; i < M / 8; ++i)
          asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                       : "=f"(weights[4 * i]), "=f"(weights[4 * i + 1]), "=f"(weights[4 * i + 2]), "=f"(weights[4 * i + 3])
                       : "r"(from + i * 128 * 16)
                       : "memory");
        score_gradients<T, M>(weights, s, factors, shared.deltas + go_stage * C::STATISTICS_BYTES);

        int stage = block % C::SCORE_STAGES;
        barrier_wait(shared.ds_empty(stage), block / C::SCORE_STAGES % 2 ^ 1);
        uint32_t panel = shared.ds + stage * C::SCORE_BYTES + cluster_rank() * C::PANEL_BYTES;
        int thread = thread_now(), lane = thread % 32, warp = thread % 128 / 32;
        uint32_t to = panel + (lane / 16 * 8 + lane % 8) * 128 + (((2 * warp + lane / 8 % 2) ^ (lane % 8)) * 16);
#pragma unroll
        for (int j = 0; j < M / 16; ++j) store_transposed(to + j * 16 * 128, &factors[4 * j]);
        proxy_fence();
        named_sync(1, 128);
        // Only now are all weights in registers. Where threads arrived right behind their loads, a few gradients were wrong now and
        // then.
        barrier_arrive(shared.weights_empty());
        barrier_arrive(shared.go_empty(go_stage));
        if (thread_now() % 128 == 0) {
          uint32_t other = cluster_rank() ^ 1;
          barrier_expect(shared.ds_full(stage), C::PANEL_BYTES);
          cluster_copy(in_block(panel, other), panel, C::PANEL_BYTES, in_block(shared.ds_full(stage), other));
        }
        __syncwarp();
        barrier_wait(shared.q_full(q_stage), q_parity);
      }

      if constexpr (!initial) hold(sum);
      hold(factors);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < M / 16; ++k) {
        uint64_t b =
            tile((FIRST ? GO_AT : Q_AT) + k * 16 * 128, C::PANEL_BYTES, (FIRST ? go_stage : q_stage) * (C::TILE_BYTES / 16));
        Wgmma<T, D>::a_registers(sum, &factors[4 * k], b, !overwrite || k > 0);
      }
      wgmma_commit();
      constexpr bool HAS_DQ = !(FIRST && initial);
      if constexpr (HAS_DQ) {
        multiply_dq(FIRST ? block - 1 : block);
        wgmma_wait<1>();  // all but dQ
      } else {
        wgmma_wait<0>();
      }
      hold(sum);
      hold(factors);
      barrier_arrive(FIRST ? shared.go_empty(go_stage) : shared.q_empty(q_stage));
      if constexpr (HAS_DQ) {
        wgmma_wait<0>();
        dq_done(FIRST ? block - 1 : block, FIRST);
      }
      ++row_block;
      if (++m == t.last) m = t.first, row_block += p.query_tiles - count;
    };
    if constexpr (FIRST) step(0, Flag<true>{});
#pragma unroll 1
    for (int block = FIRST ? 1 : 0; block < total; ++block) step(block, Flag<false>{});
    if constexpr (FIRST) {
      multiply_dq(total - 1);
      wgmma_wait<0>();
      dq_done(total - 1, true);
    }
  }

  Tile again = tile_at<C>(p, nullptr, cluster_now<C>());
  write_keys<T, D>(p, again, again.key + cluster_rank() * C::KEYS, sum, gradient, FIRST ? 1.0f : p.scale);
}

template <class C>
__device__ __forceinline__ void gradient(const CUtensorMap& q_map, const CUtensorMap& k_map, const CUtensorMap& v_map,
                                         const CUtensorMap& go_map, const float* statistics, float* query_sums,
                                         void* key_gradient, void* value_gradient, const Problem& p) {
  extern __shared__ uint8_t memory[];
  auto start = [] {
    uint32_t address;
    asm volatile("mov.u32 %0, %1;" : "=r"(address) : "r"(shared_address(memory)));
    return Shared<C>((address + 1023) & ~1023u);
  };
  if (threadIdx.x == 0) {
    start().init();
    tma_prefetch(&q_map);
    tma_prefetch(&k_map);
    tma_prefetch(&v_map);
    tma_prefetch(&go_map);
  }
  cluster_sync();
  // What the roles need is computed in each, so that nothing is kept across the branches.
  int role = __shfl_sync(0xffffffff, thread_now() / 128, 0);
  if (role == 0) {
    registers_shrink<C::PRODUCER_REGISTERS>();
    Shared<C> shared = start();
    Tile t = tile_at<C>(p, nullptr, cluster_now<C>());
    int rank = cluster_rank(), key = t.key + rank * C::KEYS;
    int warp = __shfl_sync(0xffffffff, thread_now() / 32, 0);
    bool some = t.first < t.last;  // nobody waits for keys that no query sees
    if (some && warp == 2 && first_lane()) {
      barrier_expect(shared.k_full(), C::TILE_BYTES + C::HALF_BYTES);
      load_tile(shared.k, &k_map, shared.k_full(), key, t.key_head, t.batch);
      tma_load(shared.other, &k_map, shared.k_full(), 0, t.key + (rank ^ 1) * C::KEYS, rank * (C::HALF / 64), t.key_head, t.batch);
      produce<C, C::Q_STAGES>({&q_map, shared.q, shared.logs, shared.q_full(0), 0}, statistics, p, t);
    } else if (some && warp == 3 && first_lane()) {
      barrier_expect(shared.v_full(), C::TILE_BYTES);
      load_tile(shared.v, &v_map, shared.v_full(), key, t.key_head, t.batch);
      produce<C, C::GO_STAGES>({&go_map, shared.go, shared.deltas, shared.go_full(0), 1}, statistics, p, t);
    }
  } else if (role == 1) {
    registers_grow<C::CONSUMER_REGISTERS>();
    consume<C, true>(p, start(), tile_at<C>(p, nullptr, cluster_now<C>()), query_sums, value_gradient);
  } else {
    registers_grow<C::CONSUMER_REGISTERS>();
    consume<C, false>(p, start(), tile_at<C>(p, nullptr, cluster_now<C>()), query_sums, key_gradient);
  }
  cluster_sync();
}

// A block for each block of queries: rounds the sums, and writes them as rows.
template <class C>
__device__ __forceinline__ void finish(const float* query_sums, void* query_gradient, const Problem& p) {
  using T = typename C::T;
  int block = blockIdx.x, head = block / p.query_tiles, m = block % p.query_tiles;
  int quad = threadIdx.x % 4, first = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  const float4* from = reinterpret_cast<const float4*>(query_sums) + static_cast<long long>(block) * (C::M * C::D / 4);
#pragma unroll 1
  for (int at = threadIdx.x / 128; at < C::D / 32; at += 2) {  // 32 columns
    float4 x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = from[(4 * at + i) * 128 + threadIdx.x % 128];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        w[i] = r == 0 ? pack<T>(x[i].x * p.scale, x[i].y * p.scale) : pack<T>(x[i].z * p.scale, x[i].w * p.scale);
      quad_transpose(w, quad);
      int row = m * C::M + first + 8 * r;
      if (row >= p.queries) continue;
      T* to = const_cast<T*>(row_of_queries(static_cast<const T*>(query_gradient), p, head, row));
      *reinterpret_cast<uint4*>(to + 32 * at + 8 * quad) = make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
}

}  // namespace attention

#define BACKWARD(TYPE, NAME, MASK, MASK_NAME)                                                                        \
  extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)                                     \
      attention_gradient_##NAME##_d256_##MASK_NAME(                                                                  \
          const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,                      \
          const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap go_map, const TYPE*,        \
          const TYPE*, const TYPE*, const TYPE*, const float* statistics, float* query_sums, TYPE* key_gradient,     \
          TYPE* value_gradient, const __grid_constant__ attention::Problem problem) {                                \
    attention::gradient<attention::Config<TYPE, attention::MASK>>(q_map, k_map, v_map, go_map, statistics,           \
                                                                  query_sums, key_gradient, value_gradient, problem); \
  }
#define BACKWARD_OF(TYPE, NAME)                                                                                      \
  BACKWARD(TYPE, NAME, FULL, full)                                                                                   \
  BACKWARD(TYPE, NAME, CAUSAL, causal)                                                                               \
  BACKWARD(TYPE, NAME, WINDOW, window)                                                                               \
  extern "C" __global__ void attention_gradient_start_##NAME##_d256(                                                 \
      const TYPE* output, const TYPE* output_gradient, const float* log_sum_exps, float* statistics,                 \
      float* query_sums, const __grid_constant__ attention::Problem problem) {                                       \
    attention::start<attention::Config<TYPE, attention::FULL>>(output, output_gradient, log_sum_exps, statistics,    \
                                                               query_sums, problem, nullptr, 0);                     \
  }                                                                                                                  \
  extern "C" __global__ void attention_gradient_finish_##NAME##_d256(                                                \
      const float* query_sums, TYPE* query_gradient, const __grid_constant__ attention::Problem problem) {           \
    attention::finish<attention::Config<TYPE, attention::FULL>>(query_sums, query_gradient, problem);                \
  }
BACKWARD_OF(__nv_bfloat16, bf16)
BACKWARD_OF(__half, f16)
