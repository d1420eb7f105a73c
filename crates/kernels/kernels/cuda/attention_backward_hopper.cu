// Attention backward on Hopper (sm_90a), after FlashAttention-3.
//
// The idea. With the saved log-sum-exp L of each row, weights are recomputed rather than stored:
//
//     P = exp(scale * Q K^T - L)    dV = P^T dO    dP = dO V^T    dS = P * (dP - rowsum(dO * O))
//     dQ = scale * dS K             dK = scale * dS^T Q
//
// A block of threads owns N keys of one head and walks over the queries that see them in blocks of M, for each head of
// queries that shares the keys. dK and dV stay in registers until the end; dQ of a block of queries is a sum over blocks of
// threads, which the copy engine makes in float32 in global memory. Three kernels:
// - `start` computes rowsum(dO * O) and clears the sums of dQ;
// - `gradient` does the work;
// - `finish` scales and rounds dQ.
//
// Everything is transposed: a warpgroup computes S^T and dP^T of its 64 keys, so that P^T and dS^T, rounded to 16 bits in
// place, are the A operands of dV and dK. Only dQ needs all keys: dS goes to shared memory, and each warpgroup computes a
// part of dQ^T = K^T dS^T.
//
// The order of products keeps the tensor cores busy while the other units work: dP runs while P is computed, dV while dS is
// computed and exchanged, dK while dQ leaves the registers.
//
// Invariants:
// - Rows of queries that lie outside, and rows that see no key, have the log-sum-exp +infinity in `statistics`: their weights
//   are zero. Keys that lie outside are masked.
// - `statistics` has for each block of queries the log-sum-exps (of base 2) of its rows, then their rowsum(dO * O).
// - The sums of dQ are in the order of registers: [head of queries][block of queries][warpgroup][register / 4][thread][4].
//   `finish` alone reads them.
#include "attention_backward_hopper.cuh"

namespace attention {

template <typename T_, int D_, Mask MASK_, int M_>
struct Config {
  using T = T_;
  static constexpr Mask MASK = MASK_;
  static constexpr int D = D_;          // elements of a head
  static constexpr int WARPGROUPS = 2;  // consumers, of 64 keys each
  static constexpr int N = 64 * WARPGROUPS;
  static constexpr int M = M_;          // queries of a block
  static constexpr int STAGES = 2;       // blocks of Q, of dO, and of dS in shared memory
  static constexpr int THREADS = 128 * (WARPGROUPS + 1);
  static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
  // A warpgroup's part of dQ^T: 64 elements of the head times PART queries.
  static constexpr int PART = M * D / 64 / WARPGROUPS;
  static constexpr int PART_BYTES = PART * 64 * 4;
  static constexpr int KEY_BYTES = N * D * 2, QUERY_BYTES = M * D * 2, SCORE_BYTES = M * N * 2, STATISTICS_BYTES = M * 4;
  static constexpr int SHARED_BYTES = 1024 + 2 * KEY_BYTES + 2 * STAGES * (QUERY_BYTES + STATISTICS_BYTES) +
                                      STAGES * SCORE_BYTES + WARPGROUPS * PART_BYTES + 256;
  static_assert(SHARED_BYTES <= 227 * 1024);
};

// Chosen by measurement: docs/results/attention-h200.md has what else was tried. The host knows M too
// (src/attention/backward.rs).
template <typename T, int D, Mask MASK>
struct Chosen;
template <typename T, Mask MASK>
struct Chosen<T, 64, MASK> : Config<T, 64, MASK, 128> {};
template <typename T, Mask MASK>
struct Chosen<T, 128, MASK> : Config<T, 128, MASK, 64> {};

// Where things are in shared memory: K and V, the stages of Q and of dO, two buffers of dS, dQ, then the statistics of rows
// with the same stages, and barriers. All tiles are multiples of 1024 bytes.
template <class C>
struct Shared {
  uint32_t k, v, q, go, ds, dq, logs, deltas, barriers;
  __device__ __forceinline__ explicit Shared(uint32_t start)
      : k(start),
        v(k + C::KEY_BYTES),
        q(v + C::KEY_BYTES),
        go(q + C::STAGES * C::QUERY_BYTES),
        ds(go + C::STAGES * C::QUERY_BYTES),
        dq(ds + C::STAGES * C::SCORE_BYTES),
        logs(dq + C::WARPGROUPS * C::PART_BYTES),
        deltas(logs + C::STAGES * C::STATISTICS_BYTES),
        barriers(deltas + C::STAGES * C::STATISTICS_BYTES) {}
  __device__ __forceinline__ uint32_t k_full() const { return barriers; }
  __device__ __forceinline__ uint32_t v_full() const { return barriers + 8; }
  __device__ __forceinline__ uint32_t ds_full() const { return barriers + 16; }
  __device__ __forceinline__ uint32_t dq_empty(int warpgroup) const { return barriers + 24 + 8 * warpgroup; }
  __device__ __forceinline__ uint32_t q_full(int stage) const { return barriers + 40 + 8 * stage; }
  __device__ __forceinline__ uint32_t q_empty(int stage) const { return q_full(stage) + 8 * C::STAGES; }
  __device__ __forceinline__ uint32_t go_full(int stage) const { return q_full(stage) + 16 * C::STAGES; }
  __device__ __forceinline__ uint32_t go_empty(int stage) const { return q_full(stage) + 24 * C::STAGES; }

  // One thread initialises them all. What is done is told by all threads of the consumers.
  __device__ __forceinline__ void init() const {
    constexpr int READERS = 128 * C::WARPGROUPS;
    barrier_init(k_full(), 1);
    barrier_init(v_full(), 1);
    barrier_init(ds_full(), READERS);
    for (int i = 0; i < C::WARPGROUPS; ++i) barrier_init(dq_empty(i), 1);
    for (int i = 0; i < C::STAGES; ++i) {
      barrier_init(q_full(i), 1);
      barrier_init(q_empty(i), READERS);
      barrier_init(go_full(i), 1);
      barrier_init(go_empty(i), READERS);
    }
    barrier_init_fence();
  }
};

// The barriers that tell a warpgroup's writer that its part of dQ lies in shared memory.
__device__ __forceinline__ uint32_t dq_full(int warpgroup) { return 1 + warpgroup; }

// What one thread asks the copy engine for: K, then the blocks of Q with their log-sum-exps, or V, then dO with its sums.
struct Stream {
  const CUtensorMap *key_map, *map;
  uint32_t keys, keys_full;     // K or V
  uint32_t rows, numbers, full; // Q or dO, statistics; the barriers of the first stage, empty after full
  int which;                    // of the two statistics
};

template <class C>
__device__ __forceinline__ void produce(const Stream& to, const float* statistics, const Problem& p, const PlannedTile* plan,
                                        const Tile& t) {
  barrier_expect(to.keys_full, C::KEY_BYTES);
  tma_load_rows(to.keys, to.key_map, to.keys_full, key_place<C::D>(p, plan, t.batch, t.key_head), t.key);
  int stage = 0, parity = 1;
  for_blocks<C::M>(p, plan, t, [&](int head, int m, uint32_t block) {
    uint32_t full = to.full + 8 * stage;
    barrier_wait(full + 8 * C::STAGES, parity);
    barrier_expect(full, C::QUERY_BYTES + C::STATISTICS_BYTES);
    tma_load_rows(to.rows + stage * C::QUERY_BYTES, to.map, full, query_place<C::D>(p, plan, t.batch, head), m * C::M);
    bulk_load(to.numbers + stage * C::STATISTICS_BYTES, statistics + (2 * static_cast<size_t>(block) + to.which) * C::M,
              C::STATISTICS_BYTES, full);
    if (++stage == C::STAGES) stage = 0, parity ^= 1;
  });
}

// One warp for each consumer warpgroup: adds its parts of dQ to the sums.
template <class C>
__device__ __forceinline__ void add_parts(float* sums, const Problem& p, const PlannedTile* plan, const Shared<C>& shared,
                                          const Tile& t, int warpgroup) {
  constexpr int ELEMENTS = C::PART * 64;
  for_blocks<C::M>(p, plan, t, [&](int, int, uint32_t block) {
    named_sync(dq_full(warpgroup), 128 + 32);
    if (first_lane()) {
      bulk_add(sums + (static_cast<size_t>(block) * C::WARPGROUPS + warpgroup) * ELEMENTS, shared.dq + warpgroup * C::PART_BYTES, C::PART_BYTES);
      bulk_wait_read();
      barrier_arrive(shared.dq_empty(warpgroup));
    }
    __syncwarp();
  });
  if (first_lane()) bulk_wait();
}

// A consumer warpgroup. Each thread holds parts of two rows of S^T (`r` = 0, 1), keys that are 8 apart: see wgmma's layout in
// hopper.cuh.
template <class C>
__device__ __forceinline__ void consume(const Problem& p, const PlannedTile* plan, const Shared<C>& shared, const Tile& t,
                                        void* key_gradient, void* value_gradient) {
  using T = typename C::T;
  constexpr int S = C::STAGES, M = C::M, N = C::N, D = C::D;
  int warpgroup = __shfl_sync(0xffffffff, thread_now() / 128, 0) - 1;
  int first_key = t.key + warpgroup * 64;
  Problem its = lengths(p, t.queries, t.keys);

  // Descriptors of tiles. K as A of S^T, transposed as A of dQ^T; V as A of dP^T; Q and dO as B of these, transposed as B of
  // dK and dV. Of dQ^T, warpgroups share out the elements of the head where there are 128, else the queries of the block.
  constexpr uint32_t V_AT = C::KEY_BYTES, Q_AT = 2 * C::KEY_BYTES, GO_AT = Q_AT + S * C::QUERY_BYTES;
  constexpr uint32_t DS_AT = GO_AT + S * C::QUERY_BYTES;
  uint32_t base = shared.k / 16;
  auto tile = [&](uint32_t at, uint32_t leading, uint32_t more) {
    return (static_cast<uint64_t>((1024 >> 4) | (1u << 30)) << 32) | (base + more + (at / 16 + (leading / 16 << 16)));
  };
  uint32_t keys_part = warpgroup * (64 * 128 / 16), column_part = D == 128 ? warpgroup * (N * 128 / 16) : 0;
  uint32_t query_part = D == 128 ? 0 : warpgroup * (C::PART * 128 / 16);
  // Where this thread stores dS^T: row lane % 8 of 8 queries of the warpgroup's panel, and the 8 keys of this lane's matrix.
  auto ds_store = [&] {
    int thread = thread_now(), lane = thread % 32, warp = thread % 128 / 32;
    uint32_t row = shared.ds + warpgroup * M * 128 + (lane / 16 * 8 + lane % 8) * 128;
    return row + (((2 * warp + lane / 8 % 2) ^ (lane % 8)) * 16);
  };
  auto dq_store = [&] { return shared.dq + warpgroup * C::PART_BYTES + thread_now() % 128 * 16; };

  float dk[D / 2], dv[D / 2];
  int total = (t.last - t.first) * (p.heads / p.key_heads);
  if (total == 0) {
#pragma unroll
    for (int i = 0; i < D / 2; ++i) dk[i] = dv[i] = 0.0f;
  } else {
    float s[M / 2], dp[M / 2];  // of S^T, then P^T; of dP^T
    uint32_t weights[M / 4];    // P^T, rounded
    int m = t.first;

    barrier_wait(shared.k_full(), 0);
    barrier_wait(shared.v_full(), 0);
#pragma unroll 1
    for (int block = 0; block < total; ++block) {
      int stage = block % S, parity = block / S % 2;
      barrier_wait(shared.q_full(stage), parity);
      forget(s);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < D / 16; ++k) {
        uint64_t a = tile(k / 4 * N * 128 + k % 4 * 32, 0, keys_part);
        uint64_t b = tile(Q_AT + k / 4 * M * 128 + k % 4 * 32, 0, stage * (C::QUERY_BYTES / 16));
        Wgmma<T, M>::both_shared(s, a, b, k != 0);
      }
      wgmma_commit();
      barrier_wait(shared.go_full(stage), parity);
      forget(dp);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < D / 16; ++k) {
        uint64_t a = tile(V_AT + k / 4 * N * 128 + k % 4 * 32, 0, keys_part);
        uint64_t b = tile(GO_AT + k / 4 * M * 128 + k % 4 * 32, 0, stage * (C::QUERY_BYTES / 16));
        Wgmma<T, M>::both_shared(dp, a, b, k != 0);
      }
      wgmma_commit();
      wgmma_wait<1>();  // S
      hold(s);

      weigh<C::MASK, M>(its, s, shared.logs + stage * C::STATISTICS_BYTES, first_key, m * M);
#pragma unroll
      for (int i = 0; i < M / 4; ++i) weights[i] = pack<T>(s[2 * i], s[2 * i + 1]);

      hold(dv);
      hold(weights);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < M / 16; ++k) {
        uint64_t b = tile(GO_AT + k * 16 * 128, M * 128, stage * (C::QUERY_BYTES / 16));
        Wgmma<T, D>::a_registers(dv, &weights[4 * k], b, block > 0 || k > 0);
      }
      wgmma_commit();
      wgmma_wait<1>();  // dP
      hold(dp);
      hold(s);

      uint32_t ds[M / 4];
      score_gradients<T, M>(s, dp, ds, shared.deltas + stage * C::STATISTICS_BYTES);
      uint32_t ds_to = ds_store();
#pragma unroll
      for (int j = 0; j < M / 16; ++j) store_transposed(ds_to + stage * C::SCORE_BYTES + j * 16 * 128, &ds[4 * j]);
      proxy_fence();
      barrier_arrive(shared.ds_full());
      barrier_wait(shared.ds_full(), stage);

      float dq[C::PART / 2];
      forget(dq);
      hold(dk);
      hold(ds);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < N / 16; ++k) {
        uint64_t a = tile(k * 16 * 128, 0, column_part);
        uint64_t b = tile(DS_AT + k / 4 * M * 128 + k % 4 * 32, 0, query_part + stage * (C::SCORE_BYTES / 16));
        Wgmma<T, C::PART>::template both_shared<1, 0>(dq, a, b, k != 0);
      }
      wgmma_commit();
#pragma unroll
      for (int k = 0; k < M / 16; ++k) {
        uint64_t b = tile(Q_AT + k * 16 * 128, M * 128, stage * (C::QUERY_BYTES / 16));
        Wgmma<T, D>::a_registers(dk, &ds[4 * k], b, block > 0 || k > 0);
      }
      wgmma_commit();
      wgmma_wait<1>();  // all but dK
      hold(dv);
      hold(dq);
      hold(weights);
      barrier_arrive(shared.go_empty(stage));
      barrier_wait(shared.dq_empty(warpgroup), stage ^ 1);
      uint32_t dq_to = dq_store();
#pragma unroll
      for (int i = 0; i < C::PART / 8; ++i)
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(dq_to + i * 128 * 16), "f"(dq[4 * i]),
                     "f"(dq[4 * i + 1]), "f"(dq[4 * i + 2]), "f"(dq[4 * i + 3])
                     : "memory");
      proxy_fence();
      named_arrive(dq_full(warpgroup), 128 + 32);
      wgmma_wait<0>();  // dK
      hold(dk);
      barrier_arrive(shared.q_empty(stage));
      if (++m == t.last) m = t.first;
    }
  }

  Tile again = tile_at<C>(p, plan, block_now());
  long long first_element = key_elements<D>(p, plan, again);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int key = again.key + warpgroup * 64 + first_row() + 8 * r;
    long long row = first_element + key * p.key_row;
    auto write = [&](const float* values, void* gradient, float scale) {
      T* to = static_cast<T*>(gradient) + row;
#pragma unroll
      for (int j = 0; j < D / 8; j += 4) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          w[i] = pack<T>(values[4 * (j + i) + 2 * r] * scale, values[4 * (j + i) + 2 * r + 1] * scale);
        quad_transpose(w, first_column() / 2);  // now each thread has 16 bytes of the row
        if (key < again.keys) *reinterpret_cast<uint4*>(to + 8 * j + 4 * first_column()) = make_uint4(w[0], w[1], w[2], w[3]);
      }
    };
    write(dk, key_gradient, p.scale);
    write(dv, value_gradient, 1.0f);
  }
}

template <class C>
__device__ __forceinline__ void gradient(const CUtensorMap& q_map, const CUtensorMap& k_map, const CUtensorMap& v_map,
                                         const CUtensorMap& go_map, const float* statistics, float* query_sums,
                                         void* key_gradient, void* value_gradient, const Problem& p,
                                         const PlannedTile* plan) {
  extern __shared__ uint8_t memory[];
  if (!exists(p, plan, block_now())) return;
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
  __syncthreads();
  // What both roles need is computed in each, so that nothing is kept across the branch.
  if (thread_now() < 128) {
    registers_shrink<C::PRODUCER_REGISTERS>();
    Shared<C> shared = start();
    Tile t = tile_at<C>(p, plan, block_now());
    int warp = __shfl_sync(0xffffffff, thread_now() / 32, 0);
    if (warp < C::WARPGROUPS) {
      add_parts<C>(query_sums, p, plan, shared, t, warp);
    } else if (warp == 2 && first_lane()) {
      produce<C>({&k_map, &q_map, shared.k, shared.k_full(), shared.q, shared.logs, shared.q_full(0), 0}, statistics, p, plan,
                 t);
    } else if (warp == 3 && first_lane()) {
      produce<C>({&v_map, &go_map, shared.v, shared.v_full(), shared.go, shared.deltas, shared.go_full(0), 1}, statistics, p,
                 plan, t);
    }
  } else {
    registers_grow<C::CONSUMER_REGISTERS>();
    consume<C>(p, plan, start(), tile_at<C>(p, plan, block_now()), key_gradient, value_gradient);
  }
}

// A block for each block of queries: reads the sums in their order, and turns them into rows.
template <class C>
__device__ __forceinline__ void finish(const float* query_sums, void* query_gradient, const Problem& p, const int2* starts,
                                       int sequences) {
  using T = typename C::T;
  constexpr int PITCH = C::D + 8, VECTORS = C::PART / 8;
  __shared__ alignas(16) T rows[C::M * PITCH];
  int block = blockIdx.x;
  Rows its = rows_of_block<C>(p, starts, sequences, block);
  int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  const float4* from = reinterpret_cast<const float4*>(query_sums) +
                       (static_cast<long long>(block) * C::WARPGROUPS + warpgroup) * VECTORS * 128 + threadIdx.x % 128;
  int element = (C::D == 128 ? warpgroup * 64 : 0) + warp * 16 + lane / 4;
  int query = (C::D == 128 ? 0 : warpgroup * C::PART) + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    float4 x = from[i * 128];
    T* to = rows + (query + 8 * i) * PITCH + element;
    to[0] = narrow<T>(x.x * p.scale);
    to[PITCH] = narrow<T>(x.y * p.scale);
    to[8] = narrow<T>(x.z * p.scale);
    to[PITCH + 8] = narrow<T>(x.w * p.scale);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < C::M * C::D / 8; i += 128 * C::WARPGROUPS) {
    int row = i / (C::D / 8), column = i % (C::D / 8) * 8;
    if (row >= its.count) continue;
    T* to = static_cast<T*>(query_gradient) + its.element + row * p.query_row;
    *reinterpret_cast<uint4*>(to + column) = *reinterpret_cast<const uint4*>(rows + row * PITCH + column);
  }
}

}  // namespace attention

// Q, K, V and dO are read through their maps; their addresses are parameters so that the host's order of work on buffers
// knows of them.
#define BACKWARD(TYPE, NAME, D, MASK, MASK_NAME)                                                                     \
  extern "C" __global__ void __launch_bounds__(attention::Chosen<TYPE, D, attention::MASK>::THREADS, 1)              \
      attention_gradient_##NAME##_d##D##_##MASK_NAME(                                                                \
          const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,                      \
          const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap go_map, const TYPE*,        \
          const TYPE*, const TYPE*, const TYPE*, const float* statistics, float* query_sums, TYPE* key_gradient,     \
          TYPE* value_gradient, const __grid_constant__ attention::Problem problem,                                  \
          const attention::PlannedTile* plan) {                                                                      \
    attention::gradient<attention::Chosen<TYPE, D, attention::MASK>>(q_map, k_map, v_map, go_map, statistics,        \
                                                                     query_sums, key_gradient, value_gradient,       \
                                                                     problem, plan);                                 \
  }
#define BACKWARD_OF(TYPE, NAME, D)                                                                                   \
  BACKWARD(TYPE, NAME, D, FULL, full)                                                                                \
  BACKWARD(TYPE, NAME, D, CAUSAL, causal)                                                                            \
  BACKWARD(TYPE, NAME, D, WINDOW, window)                                                                            \
  extern "C" __global__ void attention_gradient_start_##NAME##_d##D(                                                 \
      const TYPE* output, const TYPE* output_gradient, const float* log_sum_exps, float* statistics,                 \
      float* query_sums, const __grid_constant__ attention::Problem problem, const int2* starts, int sequences) {    \
    attention::start<attention::Chosen<TYPE, D, attention::FULL>>(output, output_gradient, log_sum_exps, statistics, \
                                                                  query_sums, problem, starts, sequences);           \
  }                                                                                                                  \
  extern "C" __global__ void attention_gradient_finish_##NAME##_d##D(                                                \
      const float* query_sums, TYPE* query_gradient, const __grid_constant__ attention::Problem problem,             \
      const int2* starts, int sequences) {                                                                           \
    attention::finish<attention::Chosen<TYPE, D, attention::FULL>>(query_sums, query_gradient, problem, starts,      \
                                                                   sequences);                                       \
  }
// One binary for each head dimension: DIM comes from the build script.
#define BACKWARD_TYPES(D) BACKWARD_OF(__nv_bfloat16, bf16, D) BACKWARD_OF(__half, f16, D)
BACKWARD_TYPES(DIM)
