// CCCL: CUB's device-wide algorithms, Thrust on top of them, and the standard library in device code. Counted are the
// launches of `standard`: how many the algorithms take is theirs to know.
#include "check.h"
#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <cuda/atomic>
#include <cuda/std/array>
#include <cuda/std/complex>
#include <cuda/std/optional>
#include <thrust/device_vector.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>

struct Square {
    __host__ __device__ long long operator()(int x) const { return (long long)x * x; }
};

__device__ cuda::std::optional<int> halved(int x) {
    return x % 2 == 0 ? cuda::std::optional<int>(x / 2) : cuda::std::nullopt;
}

__global__ void standard(const int *in, int n, int *evens, float *magnitudes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    cuda::std::array<int, 2> pair = {in[i] % 8, 6};
    magnitudes[i] = cuda::std::norm(cuda::std::complex<float>(float(pair[0]), float(pair[1])));
    if (halved(in[i]).has_value()) cuda::atomic_ref<int, cuda::thread_scope_device>(*evens).fetch_add(1);
}

// Runs one of CUB's algorithms: it is asked for the size of its scratch memory first.
template <typename Algorithm> static void run(Algorithm algorithm) {
    size_t bytes = 0;
    CUDA(algorithm(nullptr, bytes));
    Device<char> scratch(bytes);
    CUDA(algorithm(scratch.data, bytes));
}

int main() {
    Random random{12};
    const int n = 20000;
    std::vector<int> in = random.integers<int>(n, 1000000), sorted = in, scanned(n);
    long long total = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        scanned[i] = int(total);
        total += in[i] % 1000;
        squares += (long long)in[i] * in[i];
    }
    std::sort(sorted.begin(), sorted.end());
    Device<int> device_in(in), out(n);

    Device<int> most(1);
    run([&](void *scratch, size_t &bytes) {
        return cub::DeviceReduce::Max(scratch, bytes, device_in.data, most.data, n);
    });
    EXPECT(most.host()[0] == sorted.back());

    std::vector<int> small(n);
    for (int i = 0; i < n; i++) small[i] = in[i] % 1000;
    Device<int> device_small(small);
    run([&](void *scratch, size_t &bytes) {
        return cub::DeviceScan::ExclusiveSum(scratch, bytes, device_small.data, out.data, n);
    });
    expect_equal("scan", out.host(), scanned);

    run([&](void *scratch, size_t &bytes) {
        return cub::DeviceRadixSort::SortKeys(scratch, bytes, device_in.data, out.data, n);
    });
    expect_equal("radix sort", out.host(), sorted);

    thrust::device_vector<int> vector(in.begin(), in.end());
    EXPECT(thrust::transform_reduce(vector.begin(), vector.end(), Square(), 0ll, thrust::plus<long long>()) == squares);
    thrust::sort(vector.begin(), vector.end(), thrust::greater<int>());
    std::vector<int> descending(n);
    thrust::copy(vector.begin(), vector.end(), descending.begin());
    std::reverse(sorted.begin(), sorted.end());
    expect_equal("thrust::sort", descending, sorted);

    int evens = 0;
    std::vector<float> norms(n);
    for (int i = 0; i < n; i++) {
        evens += in[i] % 2 == 0;
        norms[i] = float((in[i] % 8) * (in[i] % 8) + 36);
    }
    Device<int> device_evens(std::vector<int>{0});
    Device<float> magnitudes(n);
    LAUNCH(standard<<<160, 128>>>(device_in.data, n, device_evens.data, magnitudes.data));
    EXPECT(device_evens.host()[0] == evens);
    expect_equal("norms", magnitudes.host(), norms);
    return done();
}
