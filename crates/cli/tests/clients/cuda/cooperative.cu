// Cooperative groups: a grid that synchronises, tiles that reduce and scan, threads that happen to run together.
#include "check.h"
#include <algorithm>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

// Each step needs the neighbours' values of the step before: wrong unless the whole grid waits.
__global__ void diffuse(int *values, int *next, int n, int steps) {
    cg::grid_group grid = cg::this_grid();
    for (int step = 0; step < steps; step++) {
        for (size_t i = grid.thread_rank(); i < size_t(n); i += grid.size())
            next[i] = (values[(i + n - 1) % n] + 2 * values[i] + values[(i + 1) % n]) & 0xffff;
        grid.sync();
        int *swap = values;
        values = next;
        next = swap;
    }
}

template <int Size> __global__ void tiles(const int *in, int *sums, int *scans, int *largest) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<Size>(block);
    int i = int(block.group_index().x * block.size() + block.thread_rank());
    int sum = cg::reduce(tile, in[i], cg::plus<int>());
    int most = cg::reduce(tile, in[i], cg::greater<int>());
    scans[i] = cg::inclusive_scan(tile, in[i], cg::plus<int>());
    if (tile.thread_rank() == 0) {
        sums[i / Size] = sum;
        largest[i / Size] = most;
    }
}

// One atomic for all the threads that want one: their ranks give each its place.
__global__ void append_odd(const int *in, int n, int *out, int *used) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || in[i] % 2 == 0) return;
    cg::coalesced_group odd = cg::coalesced_threads();
    int base = 0;
    if (odd.thread_rank() == 0) base = atomicAdd(used, int(odd.size()));
    out[odd.shfl(base, 0) + odd.thread_rank()] = in[i];
}

// Groups of those with the same key in a warp.
__global__ void count_alike(const int *keys, int *alike) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    auto same = cg::labeled_partition(warp, keys[i]);
    alike[i] = int(same.size());
}

int main() {
    Random random{2};
    const int n = 5000, steps = 6;
    std::vector<int> values = random.integers<int>(n, 1 << 16), right = values;
    for (int step = 0; step < steps; step++) {
        std::vector<int> next(n);
        for (int i = 0; i < n; i++)
            next[i] = (right[(i + n - 1) % n] + 2 * right[i] + right[(i + 1) % n]) & 0xffff;
        right = next;
    }
    Device<int> a(values), b(n);
    int blocks = 0, processors = 0, count = n, rounds = steps;
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, diffuse, 128, 0));
    CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    EXPECT(blocks * processors >= 8);
    void *arguments[] = {&a.data, &b.data, &count, &rounds};
    LAUNCH(CUDA(cudaLaunchCooperativeKernel((void *)diffuse, 8, 128, arguments, 0, nullptr)));
    expect_equal("diffuse", a.host(), right);

    // More blocks than can be resident must be refused.
    EXPECT(cudaLaunchCooperativeKernel((void *)diffuse, blocks * processors + 1, 128, arguments, 0, nullptr) ==
           cudaErrorCooperativeLaunchTooLarge);
    (void)cudaGetLastError();

    const int m = 4096, size = 16;
    std::vector<int> in = random.integers<int>(m, 1000), sums(m / size), scans(m), largest(m / size);
    for (int i = 0; i < m; i++) {
        sums[i / size] += in[i];
        scans[i] = sums[i / size];
        largest[i / size] = std::max(largest[i / size], in[i]);
    }
    Device<int> device_in(in), device_sums(m / size), device_scans(m), device_largest(m / size);
    LAUNCH(tiles<size><<<m / 256, 256>>>(device_in.data, device_sums.data, device_scans.data, device_largest.data));
    expect_equal("sums", device_sums.host(), sums);
    expect_equal("scans", device_scans.host(), scans);
    expect_equal("largest", device_largest.host(), largest);

    Device<int> out(m), used(std::vector<int>{0});
    LAUNCH(append_odd<<<m / 128, 128>>>(device_in.data, m, out.data, used.data));
    std::vector<int> odd, found = out.host();
    for (int value : in)
        if (value % 2) odd.push_back(value);
    EXPECT(used.host()[0] == int(odd.size()));
    found.resize(odd.size());
    std::sort(odd.begin(), odd.end());
    std::sort(found.begin(), found.end());
    expect_equal("odd", found, odd);

    std::vector<int> keys = random.integers<int>(m, 7), alike(m);
    for (int i = 0; i < m; i++)
        for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++) alike[i] += keys[j] == keys[i];
    Device<int> device_keys(keys), device_alike(m);
    LAUNCH(count_alike<<<m / 64, 64>>>(device_keys.data, device_alike.data));
    expect_equal("alike", device_alike.host(), alike);
    return done();
}
