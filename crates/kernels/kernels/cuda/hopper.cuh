// Hopper's own instructions (sm_90a), one thin function each: barriers that count bytes (mbarrier), the bulk tensor
// copy engine (TMA), matrix products of a warpgroup (wgmma), and registers that move between warpgroups (setmaxnreg).
//
// How they work together. One thread of a *producer* warp asks the copy engine for a tile and names an mbarrier; the
// engine writes the tile to shared memory and counts the bytes on that barrier. The *consumer* warpgroups (4 warps each)
// wait for the barrier's phase to complete, give the tensor cores descriptors of the tile, and go on with other work:
// wgmma is asynchronous too. When the products that read a tile have retired, the consumers arrive on a second barrier,
// which tells the producer that the tile's memory is free. Nobody copies through registers and no `__syncthreads` is
// needed in the loop.
//
// Rules that are easy to break, each kept here or by the caller:
// - Registers of a wgmma in flight (accumulators, and A where it comes from registers) must not be touched before
//   `wgmma_wait`. The compiler must know it: `hold` keeps it from moving an access across.
// - Every tile in shared memory is 1024-byte aligned and 128-byte swizzled: within each block of 8 rows of 128 bytes,
//   the 16-byte unit u of row r lies at unit u ^ r. TMA writes it so and wgmma reads it so; nothing else touches it.
// - `setmaxnreg` acts for whole warpgroups and needs `__launch_bounds__(threads, 1)`.
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

namespace hopper {

// Address of shared memory as the 32-bit number that PTX takes.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- mbarrier -------------------------------------------------------------------------------------------------------
// A barrier in shared memory that completes a phase when `arrivals` threads have arrived and all bytes that were
// announced have been written. Waiting names the parity (0, 1, 0, ...) of the phase that must have completed.

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives and announces `bytes` that copies will write.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Hands numbers from one thread to others of its block, through two slots of 20 bytes of shared memory from `start`, 8-byte
// aligned. Each warp of the readers takes each number.
struct Queue {
  uint32_t start;
  int slot = 0, parity = 0;

  __device__ __forceinline__ uint32_t full() const { return start + 8 * slot; }
  __device__ __forceinline__ uint32_t empty() const { return start + 16 + 8 * slot; }
  __device__ __forceinline__ uint32_t value() const { return start + 32 + 4 * slot; }

  __device__ __forceinline__ static void init(uint32_t start, uint32_t warps) {
    for (int i = 0; i < 2; ++i) {
      barrier_init(start + 8 * i, 1);
      barrier_init(start + 16 + 8 * i, warps);
    }
  }
  __device__ __forceinline__ void put(int number) {
    barrier_wait(empty(), parity ^ 1);
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(value()), "r"(number) : "memory");
    barrier_arrive(full());
    next();
  }
  __device__ __forceinline__ int take() {
    barrier_wait(full(), parity);
    int number;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(number) : "r"(value()) : "memory");
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty());
    next();
    return number;
  }
  // The same of eight numbers, which lie behind the queue at `at`, aligned to 16 bytes.
  __device__ __forceinline__ void put(uint32_t at, const int (&numbers)[8]) {
    barrier_wait(empty(), parity ^ 1);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(at + 32 * slot + 4 * i), "r"(numbers[i]) : "memory");
    barrier_arrive(full());
    next();
  }
  // Waits for them; until `taken`, each can be read again and again.
  __device__ __forceinline__ void await() const { barrier_wait(full(), parity); }
  __device__ __forceinline__ static int number(uint32_t at) {
    int number;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(number) : "r"(at) : "memory");
    return number;
  }
  __device__ __forceinline__ void taken() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty());
    next();
  }
  __device__ __forceinline__ void next() {
    slot ^= 1;
    parity ^= slot == 0;
  }
};

// ---- clusters -------------------------------------------------------------------------------------------------------
// Blocks of threads of a cluster run at the same time and reach each other's shared memory, by addresses that `in_block`
// makes of their own.

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// The address of what lies at `address` in the block of this rank.
__device__ __forceinline__ uint32_t in_block(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
// Waits until all threads of the cluster have come here.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// Arrives on a barrier of any block of the cluster. It orders no ordinary accesses to memory of other blocks, which would take
// a fence of the whole GPU: use it for what wgmma and the copy engine read and write.
__device__ __forceinline__ void barrier_arrive_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Copies `bytes` of shared memory to another block, and counts them on a barrier there.
__device__ __forceinline__ void cluster_copy(uint32_t destination, uint32_t source, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
               "r"(source), "r"(bytes), "r"(barrier)
               : "memory");
}

// Named barriers order warpgroups among each other: `sync` waits until `threads` have synced or arrived.
__device__ __forceinline__ void named_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- TMA ------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void tma_prefetch(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Copies the box at the five coordinates (innermost first) to shared memory; elements outside the tensor become zero.
__device__ __forceinline__ void tma_load(uint32_t destination, const CUtensorMap* map, uint32_t barrier, int c0, int c1,
                                         int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// Copies `bytes` (a multiple of 16, both addresses aligned to 16) to shared memory.
__device__ __forceinline__ void bulk_load(uint32_t destination, const void* source, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
               "l"(source), "r"(bytes), "r"(barrier)
               : "memory");
}

// Adds `bytes` of float32 in shared memory to float32 in global memory, element by element, each addition atomic.
__device__ __forceinline__ void bulk_add(float* destination, uint32_t source, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(destination),
               "r"(source), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Adds four float32 to global memory from registers, each addition atomic.
__device__ __forceinline__ void add_four(float* destination, const float* values) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(destination), "f"(values[0]), "f"(values[1]),
               "f"(values[2]), "f"(values[3])
               : "memory");
}
// Waits until the additions that this thread asked for have read shared memory, or have been made.
__device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Copies 16 bytes to shared memory through the ordinary path, of which `given` (0 to 16) are read and the others are zero. A
// gather: each thread names an address of its own, and swizzles it itself.
__device__ __forceinline__ void gather_load(uint32_t destination, const void* source, uint32_t given) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(given) : "memory");
}
// Arrives when all gathers of this thread so far have been written: one of the barrier's arrivals. They are ordinary writes:
// who gives them to wgmma needs a `proxy_fence` after it has waited.
__device__ __forceinline__ void gather_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Makes this thread's ordinary stores to shared memory visible to the copy engine and to wgmma. A barrier must follow.
__device__ __forceinline__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Stores four 8 x 8 matrices of 16-bit elements, transposed: lane l names with `address` row l % 8 of matrix l / 8 as it
// will lie in memory, and holds of matrix i, in values[i], column l / 4 of rows 2(l%4) + {0, 1}.
__device__ __forceinline__ void store_transposed(uint32_t address, const uint32_t* values) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(values[0]),
               "r"(values[1]), "r"(values[2]), "r"(values[3])
               : "memory");
}

// ---- registers ------------------------------------------------------------------------------------------------------

template <int REGISTERS>
__device__ __forceinline__ void registers_grow() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void registers_shrink() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// ---- wgmma ----------------------------------------------------------------------------------------------------------
// D (64 x N, float32, registers) += A (64 x 16) * B (16 x N). Thread t of the warpgroup (warp w = t / 32, lane l = t % 32)
// holds of D, for each block j of 8 columns, d[4j .. 4j+3]: row 16w + l/4, columns 8j + 2(l%4) + {0, 1}, then the same
// columns of row 8 further down. A from registers has the same form, two elements to a register: columns 2(l%4) + {0, 1}
// of both rows, then the columns 8 further right. So two column blocks of a D, rounded to 16 bits, are one A.

// What a descriptor of a 128-byte swizzled tile holds beside its address. `leading` is the distance in bytes between
// panels of 64 elements where rows run along K (B transposed); it is not used otherwise. Groups of 8 rows are 1024 bytes
// apart.
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t address, uint32_t leading) {
  uint32_t low = ((address & 0x3ffff) >> 4) | ((leading >> 4) << 16);
  uint32_t high = (1024 >> 4) | (1u << 30);
  return (static_cast<uint64_t>(high) << 32) | low;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `PENDING` of the committed groups are in flight.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// The compiler neither moves accesses to `values` across this nor keeps copies of them.
template <int COUNT>
__device__ __forceinline__ void hold(float (&values)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(values[i])::"memory");
}
template <int COUNT>
__device__ __forceinline__ void hold(uint32_t (&values)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

// The values are no longer needed: the next product overwrites them.
template <int COUNT>
__device__ __forceinline__ void forget(float (&values)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "=f"(values[i])::"memory");
}

// The accumulators of one wgmma, in groups of 8: text for the instruction and operands for the compiler.
#define HOPPER_TEXT_1 "%0, %1, %2, %3, %4, %5, %6, %7"
#define HOPPER_TEXT_2 HOPPER_TEXT_1 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define HOPPER_TEXT_3 HOPPER_TEXT_2 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define HOPPER_TEXT_4 HOPPER_TEXT_3 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define HOPPER_TEXT_5 HOPPER_TEXT_4 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define HOPPER_TEXT_6 HOPPER_TEXT_5 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define HOPPER_TEXT_7 HOPPER_TEXT_6 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define HOPPER_TEXT_8 HOPPER_TEXT_7 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define HOPPER_TEXT_9 HOPPER_TEXT_8 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define HOPPER_TEXT_10 HOPPER_TEXT_9 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define HOPPER_TEXT_11 HOPPER_TEXT_10 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define HOPPER_TEXT_12 HOPPER_TEXT_11 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define HOPPER_TEXT_16                                                                                             \
  HOPPER_TEXT_12 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define HOPPER_EIGHT(i)                                                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define HOPPER_REGS_2 HOPPER_EIGHT(0), HOPPER_EIGHT(8)
#define HOPPER_REGS_3 HOPPER_REGS_2, HOPPER_EIGHT(16)
#define HOPPER_REGS_4 HOPPER_REGS_3, HOPPER_EIGHT(24)
#define HOPPER_REGS_5 HOPPER_REGS_4, HOPPER_EIGHT(32)
#define HOPPER_REGS_6 HOPPER_REGS_5, HOPPER_EIGHT(40)
#define HOPPER_REGS_7 HOPPER_REGS_6, HOPPER_EIGHT(48)
#define HOPPER_REGS_8 HOPPER_REGS_7, HOPPER_EIGHT(56)
#define HOPPER_REGS_9 HOPPER_REGS_8, HOPPER_EIGHT(64)
#define HOPPER_REGS_10 HOPPER_REGS_9, HOPPER_EIGHT(72)
#define HOPPER_REGS_11 HOPPER_REGS_10, HOPPER_EIGHT(80)
#define HOPPER_REGS_12 HOPPER_REGS_11, HOPPER_EIGHT(88)
#define HOPPER_REGS_16 HOPPER_REGS_12, HOPPER_EIGHT(96), HOPPER_EIGHT(104), HOPPER_EIGHT(112), HOPPER_EIGHT(120)

template <typename T, int N>
struct Wgmma;

// `both_shared`: A and B by descriptor, each with K innermost, or M (TRANSPOSE_A) and N (TRANSPOSE_B). `a_registers`: A from
// registers, B with N innermost. `accumulate` 0 overwrites D. GROUPS is N / 16; P0 .. P5 number the operands after the
// accumulators.
#define HOPPER_WGMMA(TYPE, NAME, N, GROUPS, P0, P1, P2, P3, P4, P5)                                                  \
  template <>                                                                                                        \
  struct Wgmma<TYPE, N> {                                                                                            \
    template <int TRANSPOSE_A = 0, int TRANSPOSE_B = 0>                                                              \
    __device__ __forceinline__ static void both_shared(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {  \
      asm volatile(                                                                                                  \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %" #P2 ", 0;\n"                                                          \
          "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" HOPPER_TEXT_##GROUPS "}, %" #P0 ", %" #P1 \
          ", p, 1, 1, %" #P3 ", %" #P4 ";\n}\n"                                                                     \
          : HOPPER_REGS_##GROUPS                                                                                     \
          : "l"(a), "l"(b), "r"(accumulate), "n"(TRANSPOSE_A), "n"(TRANSPOSE_B));                                    \
    }                                                                                                                \
    __device__ __forceinline__ static void a_registers(float (&d)[N / 2], const uint32_t* a, uint64_t b,             \
                                                       int accumulate) {                                             \
      asm volatile(                                                                                                  \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %" #P5 ", 0;\n"                                                          \
          "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" HOPPER_TEXT_##GROUPS "}, {%" #P0      \
          ", %" #P1 ", %" #P2 ", %" #P3 "}, %" #P4 ", p, 1, 1, 1;\n}\n"                                              \
          : HOPPER_REGS_##GROUPS                                                                                     \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                                    \
    }                                                                                                                \
  };
#define HOPPER_WGMMA_BOTH(...) \
  HOPPER_WGMMA(__nv_bfloat16, "bf16", __VA_ARGS__) HOPPER_WGMMA(__half, "f16", __VA_ARGS__)
HOPPER_WGMMA_BOTH(32, 2, 16, 17, 18, 19, 20, 21)
HOPPER_WGMMA_BOTH(48, 3, 24, 25, 26, 27, 28, 29)
HOPPER_WGMMA_BOTH(64, 4, 32, 33, 34, 35, 36, 37)
HOPPER_WGMMA_BOTH(80, 5, 40, 41, 42, 43, 44, 45)
HOPPER_WGMMA_BOTH(96, 6, 48, 49, 50, 51, 52, 53)
HOPPER_WGMMA_BOTH(112, 7, 56, 57, 58, 59, 60, 61)
HOPPER_WGMMA_BOTH(128, 8, 64, 65, 66, 67, 68, 69)
HOPPER_WGMMA_BOTH(144, 9, 72, 73, 74, 75, 76, 77)
HOPPER_WGMMA_BOTH(160, 10, 80, 81, 82, 83, 84, 85)
HOPPER_WGMMA_BOTH(176, 11, 88, 89, 90, 91, 92, 93)
HOPPER_WGMMA_BOTH(192, 12, 96, 97, 98, 99, 100, 101)
HOPPER_WGMMA_BOTH(256, 16, 128, 129, 130, 131, 132, 133)

}  // namespace hopper
