// What allocating and freeing device memory costs, what a free waits for, and how much memory is held: memory MODE [ARGUMENT]
//
//   pairs         for each size: nanoseconds of an allocation, of a free, and of both (medians), with nothing else to do
//   worked        the same, with a memset of the block between
//   waits         for each size: milliseconds of a free of unused memory while a kernel spins for 20 ms, and whether it was waited for
//   loop THREADS  microseconds of a step of a program that allocates what it needs in each step (median of a thread)
//   random SEED   random allocations and frees: most bytes that the program had, most bytes in use on the device (NVML), milliseconds
//
// Each line of the output is a JSON object.
#include "driver.h"
#include <dlfcn.h>
#include <pthread.h>

static CUcontext context;
static double tick_ns;

static CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr address;
  CHECK(cuMemAlloc(&address, bytes));
  return address;
}

static void pairs(int worked) {
  enum { MOST = 2000 };
  static double alloc[MOST], release[MOST], both[MOST];
  for (size_t bytes = 256; bytes <= (size_t)1 << 30; bytes *= 4) {
    int count = 0;
    double begun = monotonic_ns();
    for (int round = -2; count < MOST && (count < 9 || monotonic_ns() - begun < 5e7); round++) {
      uint64_t start = ticks();
      CUdeviceptr address = allocate(bytes);
      uint64_t allocated = ticks();
      if (worked) {
        CHECK(cuMemsetD8Async(address, 1, bytes, NULL));
        CHECK(cuCtxSynchronize());
      }
      uint64_t freeing = ticks();
      CHECK(cuMemFree(address));
      uint64_t end = ticks();
      if (round < 0) continue;
      alloc[count] = (allocated - start) * tick_ns;
      release[count] = (end - freeing) * tick_ns;
      both[count] = alloc[count] + release[count];
      count++;
    }
    printf("{\"bytes\": %zu, \"allocate\": %.0f, \"free\": %.0f, \"both\": %.0f}\n", bytes, quantile(sorted(alloc, count), 0.5),
           quantile(sorted(release, count), 0.5), quantile(sorted(both, count), 0.5));
  }
}

static const char *spin_ptx =
    ".version 8.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin(.param .u64 word, .param .u64 ns) {\n"
    ".reg .pred %p; .reg .b32 %r; .reg .b64 %d<5>;\n"
    "ld.param.u64 %d1, [word]; ld.param.u64 %d2, [ns]; mov.u64 %d3, %globaltimer; add.u64 %d2, %d2, %d3;\n"
    "again: mov.u64 %d3, %globaltimer; setp.lt.u64 %p, %d3, %d2; @%p bra again;\n"
    "mov.u32 %r, 1; st.global.u32 [%d1], %r; ret; }\n";

static void waits(void) {
  CUmodule module;
  CUfunction spin;
  CUstream stream;
  void *host;
  CHECK(cuModuleLoadData(&module, spin_ptx));
  CHECK(cuModuleGetFunction(&spin, module, "spin"));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemAllocHost(&host, 4));
  volatile uint32_t *word = host;
  for (size_t bytes = 256; bytes <= (size_t)256 << 20; bytes *= 32) {
    CUdeviceptr address = allocate(bytes), where = (CUdeviceptr)host;
    uint64_t ns = 20000000;
    void *parameters[] = {&where, &ns};
    *word = 0;
    CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    double start = monotonic_ns();
    CHECK(cuMemFree(address));
    double took = monotonic_ns() - start;
    int is_done = *word == 1;
    CHECK(cuCtxSynchronize());
    printf("{\"bytes\": %zu, \"milliseconds\": %.3f, \"waited\": %s}\n", bytes, took / 1e6, is_done ? "true" : "false");
  }
}

enum { STEPS = 300 };
static double steps[64][STEPS];

static void *loop(void *number) {
  static const size_t sizes[] = {4 << 10, 256 << 10, 1 << 20, 16 << 20, 64 << 20};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  CUstream stream;
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int step = 0; step < STEPS; step++) {
    double start = monotonic_ns();
    CUdeviceptr blocks[SIZES];
    for (int i = 0; i < SIZES; i++) blocks[i] = allocate(sizes[i]);
    for (int i = 0; i < SIZES; i++) CHECK(cuMemsetD8Async(blocks[i], step, sizes[i], stream));
    for (int i = 0; i < SIZES; i++) CHECK(cuMemFree(blocks[i]));
    steps[(size_t)number][step] = (monotonic_ns() - start) / 1e3;
  }
  return NULL;
}

static void loops(int threads) {
  pthread_t ids[64];
  for (size_t i = 0; i < (size_t)threads; i++) pthread_create(&ids[i], NULL, loop, (void *)i);
  double sum = 0;
  for (int i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    sum += quantile(sorted(steps[i] + STEPS / 10, STEPS - STEPS / 10), 0.5);
  }
  printf("{\"threads\": %d, \"step_us\": %.1f}\n", threads, sum / threads);
}

// Bytes in use on the device, as NVML sees them: asking the driver has it give memory back.
static uint64_t in_use(void) {
  static int (*info)(void *, uint64_t *);
  static void *device;
  if (!info) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!nvml) exit(2);
    int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*first)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    info = (int (*)(void *, uint64_t *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    if (init() || first(0, &device)) exit(2);
  }
  uint64_t total_free_used[3];
  if (info(device, total_free_used)) exit(2);
  return total_free_used[2];
}

static uint64_t state;

static uint64_t chance(void) {
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return state * 0x2545f4914f6cdd1dull >> 16;
}

// 256 bytes to 256 MiB: each power of two is as likely as another.
static size_t some_bytes(void) {
  size_t power = (size_t)256 << chance() % 20;
  return power + chance() % power / 256 * 256;
}

static void random_program(uint64_t seed) {
  enum { OPERATIONS = 6000, SIZES = 60, MOST_LIVE = 400 };
  static CUdeviceptr address[MOST_LIVE];
  static size_t bytes[MOST_LIVE];
  size_t sizes[SIZES], live = 0, peak = 0, held = 0;
  int count = 0;
  state = seed * 0x9e3779b97f4a7c15ull | 1;
  for (int i = 0; i < SIZES; i++) sizes[i] = some_bytes();
  CHECK(cuMemFree(allocate(256)));
  uint64_t before = in_use();
  double busy = 0;
  for (int i = 0; i < OPERATIONS; i++) {
    // The program grows and shrinks.
    int wanted = 20 + (int)(MOST_LIVE - 40) * (i % 1500) / 1500;
    int allocates = count < 10 || (count < wanted && chance() % 3 > 0 && count < MOST_LIVE);
    double start = monotonic_ns();
    if (allocates) {
      bytes[count] = chance() % 10 ? sizes[chance() % SIZES] : some_bytes();
      address[count] = allocate(bytes[count]);
      live += bytes[count++];
    } else {
      int which = (int)(chance() % (uint64_t)count);
      CHECK(cuMemFree(address[which]));
      live -= bytes[which];
      count--;
      address[which] = address[count], bytes[which] = bytes[count];
    }
    busy += monotonic_ns() - start;
    if (live > peak) peak = live;
    if (allocates) {
      uint64_t now = in_use() - before;
      if (now > held) held = now;
    }
  }
  printf("{\"seed\": %llu, \"peak\": %zu, \"in_use\": %zu, \"milliseconds\": %.1f}\n", (unsigned long long)seed, peak, held, busy / 1e6);
}

int main(int count, char **words) {
  const char *mode = count > 1 ? words[1] : "";
  int number = count > 2 ? atoi(words[2]) : 1;
  first_device(&context);
  tick_ns = ns_per_tick();
  if (!strcmp(mode, "pairs")) pairs(0);
  else if (!strcmp(mode, "worked")) pairs(1);
  else if (!strcmp(mode, "waits")) waits();
  else if (!strcmp(mode, "loop") && number > 0 && number <= 64) loops(number);
  else if (!strcmp(mode, "random")) random_program((uint64_t)number);
  else return fprintf(stderr, "usage: memory pairs|worked|waits|loop THREADS|random SEED\n"), 2;
  return 0;
}
