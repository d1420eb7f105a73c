// Asks cuOccupancyMaxActiveBlocksPerMultiprocessor about random launch configurations of every kernel in a cubin.
//
//   occupancy CUBIN ROWS SEED ANSWERS REFUSALS DEVICE
//
// ANSWERS gets the configurations that the driver answers, REFUSALS those that it refuses and with which error, DEVICE
// all attributes of the device. Block sizes are random, with multiples of 32 and the largest favoured; dynamic shared
// memory is random, and often just beside a value where one block more would fit.
#include "driver.h"

#define MAX_KERNELS 512

typedef struct {
  CUfunction handle;
  const char *name;
  int registers, fixed_shared, max_threads, local;
} Kernel;

static uint64_t state;

// Uniform in [low, high].
static int between(int low, int high) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return low + (int)((state >> 16) % (uint64_t)(high - low + 1));
}

static int attribute(CUfunction f, CUfunction_attribute which) {
  int value;
  CHECK(cuFuncGetAttribute(&value, which, f));
  return value;
}

static int block_size(const Kernel *k) {
  switch (between(0, 9)) {
    case 0: return k->max_threads;
    case 1: return between(0, 1100);
    case 2: case 3: return between(1, k->max_threads);
    default: return 32 * between(1, (k->max_threads + 31) / 32);
  }
}

// `per_sm`: shared memory of a multiprocessor; `reserved`: what the system takes of it for each block.
static int dynamic_shared(const Kernel *k, int limit, int per_sm, int reserved) {
  int most = limit - k->fixed_shared;
  switch (between(0, 9)) {
    case 0: case 1: return 0;
    case 2: return between(0, limit + 4096);
    case 3: return most;
    case 4: case 5: case 6: {
      int edge = per_sm / between(1, 32) - reserved - k->fixed_shared + between(-2, 2) * 64 + between(-1, 1);
      return edge < 0 ? 0 : edge > most ? most : edge;
    }
    default: return between(0, most);
  }
}

static void write_device(FILE *file, CUdevice device) {
  fprintf(file, "attribute,value\n");
  for (int a = 1; a < CU_DEVICE_ATTRIBUTE_MAX; a++) {
    int value;
    if (cuDeviceGetAttribute(&value, (CUdevice_attribute)a, device) == CUDA_SUCCESS) fprintf(file, "%d,%d\n", a, value);
  }
}

int main(int argc, char **argv) {
  if (argc != 7) return fprintf(stderr, "usage: occupancy CUBIN ROWS SEED ANSWERS REFUSALS DEVICE\n"), 2;
  int rows = atoi(argv[2]);
  state = strtoull(argv[3], NULL, 10) * 0x9e3779b97f4a7c15u + 1;
  FILE *answers = fopen(argv[4], "w"), *refusals = fopen(argv[5], "w"), *about = fopen(argv[6], "w");
  if (!answers || !refusals || !about) return perror("occupancy"), 1;

  CUcontext context;
  CUmodule module;
  CUdevice device = first_device(&context);
  write_device(about, device);
  int limit, per_sm, reserved;
  CHECK(cuDeviceGetAttribute(&limit, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device));
  CHECK(cuDeviceGetAttribute(&per_sm, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device));
  CHECK(cuDeviceGetAttribute(&reserved, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, device));

  Kernel kernels[MAX_KERNELS];
  CUfunction handles[MAX_KERNELS];
  unsigned count;
  CHECK(cuModuleLoad(&module, argv[1]));
  CHECK(cuModuleGetFunctionCount(&count, module));
  if (count > MAX_KERNELS) count = MAX_KERNELS;
  CHECK(cuModuleEnumerateFunctions(handles, count, module));
  for (unsigned i = 0; i < count; i++) {
    Kernel *k = &kernels[i];
    k->handle = handles[i];
    CHECK(cuFuncLoad(k->handle));  // loading is lazy, and attributes are known only afterwards
    CHECK(cuFuncGetName(&k->name, k->handle));
    k->registers = attribute(k->handle, CU_FUNC_ATTRIBUTE_NUM_REGS);
    k->fixed_shared = attribute(k->handle, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    k->max_threads = attribute(k->handle, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    k->local = attribute(k->handle, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  }

  fprintf(answers, "registers,static_shared,max_threads,block_threads,dynamic_shared,carveout,local,blocks,max_dynamic_shared\n");
  fprintf(refusals, "registers,static_shared,max_threads,block_threads,dynamic_shared,max_dynamic_shared,carveout,result\n");
  for (int written = 0, tries = 0; written < rows && tries < 4 * rows; tries++) {
    const Kernel *k = &kernels[between(0, (int)count - 1)];
    int block = block_size(k), dynamic = dynamic_shared(k, limit, per_sm, reserved);
    int carveout = between(0, 2) ? -1 : between(0, 20) * 5;
    // Three in four raise the dynamic limit as far as it goes; the others leave the kernel at 48 KiB in all.
    int most = between(0, 3) ? limit - k->fixed_shared : 49152 - k->fixed_shared, blocks = -1;
    CHECK(cuFuncSetAttribute(k->handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most));
    CHECK(cuFuncSetAttribute(k->handle, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, carveout));
    CUresult result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k->handle, block, (size_t)dynamic);
    if (result == CUDA_SUCCESS) {
      fprintf(answers, "%d,%d,%d,%d,%d,%d,%d,%d,%d\n", k->registers, k->fixed_shared, k->max_threads, block, dynamic, carveout,
              k->local, blocks, most);
      written++;
    } else {
      fprintf(refusals, "%d,%d,%d,%d,%d,%d,%d,%d\n", k->registers, k->fixed_shared, k->max_threads, block, dynamic, most,
              carveout, (int)result);
    }
  }
  return fclose(answers) | fclose(refusals) | fclose(about);
}
