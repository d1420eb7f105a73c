// What the launch API has beyond grid and block: cooperative grids, clusters, programmatic dependent launch, launch
// attributes; and memory beyond cudaMalloc: stream-ordered pools and (little) managed memory.
#include "output.h"
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// Every round, each word takes in a word of another block: wrong without the barrier of the whole grid.
__global__ void rounds(uint32_t *x, uint32_t *y, int n, int count) {
  cg::grid_group grid = cg::this_grid();
  for (int r = 0; r < count; r++) {
    for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = x[(i * 7 + 13 * r) % n] * 31u + i;
    grid.sync();
    for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] = y[(i + 1) % n];
    grid.sync();
  }
}

// Each block reads its neighbour's shared memory within the cluster.
__global__ void neighbours(uint32_t *x) {
  __shared__ uint32_t own;
  cg::cluster_group cluster = cg::this_cluster();
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) own = x[i];
  cluster.sync();
  uint32_t other = *cluster.map_shared_rank(&own, (cluster.block_rank() + 1) % cluster.num_blocks());
  x[i] = x[i] * 33u + other;
  cluster.sync();
}

int main() {
  const int n = 65536;
  uint32_t *x = random_device(n, 3), *y = random_device(n, 4), *managed, *pool;
  cudaStream_t stream;
  long launches = 0;
  CHECK(cudaStreamCreate(&stream));

  int count = n, times = 4;
  void *arguments[] = {&x, &y, &count, &times};
  for (int k = 0; k < 10; k++, launches++)
    CHECK(cudaLaunchCooperativeKernel((const void *)rounds, dim3(66), dim3(256), arguments, 0, stream));

  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attribute[2] = {};
  config.gridDim = dim3(n / 128);
  config.blockDim = dim3(128);
  config.stream = stream;
  config.attrs = attribute;
  config.numAttrs = 1;
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  for (unsigned size = 1; size <= 8; size *= 2, launches++) {
    attribute[0].val.clusterDim = {size, 1, 1};
    CHECK(cudaLaunchKernelEx(&config, neighbours, x));
  }
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  attribute[1].id = cudaLaunchAttributePriority;
  attribute[1].val.priority = 0;
  config.numAttrs = 2;
  for (uint32_t k = 0; k < 20; k++, launches++) CHECK(cudaLaunchKernelEx(&config, mix, x, (const uint32_t *)y, 2 * k + 1, n));
  config.numAttrs = 0;
  for (uint32_t k = 0; k < 20; k++, launches++) CHECK(cudaLaunchKernelEx(&config, mix, x, (const uint32_t *)y, 2 * k + 1, n));

  for (int k = 0; k < 30; k++, launches++) {
    CHECK(cudaMallocAsync(&pool, n * sizeof *pool, stream));
    CHECK(cudaMemcpyAsync(pool, x, n * sizeof *pool, cudaMemcpyDeviceToDevice, stream));
    mix<<<n / 256, 256, 0, stream>>>(pool, y, 5, n);
    CHECK(cudaMemcpyAsync(x, pool, n * sizeof *pool, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaFreeAsync(pool, stream));
  }
  CHECK(cudaStreamSynchronize(stream));

  CHECK(cudaMallocManaged(&managed, 4096 * sizeof *managed));
  auto words = random_words(4096, 5);
  for (int i = 0; i < 4096; i++) managed[i] = words[i];
  mix<<<16, 256, 0, stream>>>(managed, x, 9, 4096), launches++;
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < 4096; i++) managed[i] ^= 0x55;
  mix<<<16, 256, 0, stream>>>(managed, x, 9, 4096), launches++;
  CHECK(cudaStreamSynchronize(stream));
  std::fwrite(managed, sizeof *managed, 4096, stdout);
  write_words(x, n);
  say_launches(launches);
}
