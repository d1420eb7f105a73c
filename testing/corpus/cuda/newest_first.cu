// Messages arrive with the time at which they were sent. The newest come first, and the time of the thousandth is kept.
//
// Cause: thrust::sort merges, because it does not know what the program's own comparison means. Remedy: thrust::greater, with which
// it sorts by digits.
#include "corpus.h"

#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/sort.h>

struct SentLater {
    __host__ __device__ bool operator()(unsigned one, unsigned other) const { return one > other; }
};

__global__ void receive(unsigned *times, int count, unsigned step) {
    int message = blockIdx.x * blockDim.x + threadIdx.x;
    if (message >= count) return;
    unsigned mixed = (message + step * 0x9e3779b9u) * 0x85ebca6bu;
    mixed = (mixed ^ (mixed >> 15)) * 0xc2b2ae35u;
    times[message] = mixed ^ (mixed >> 16);
}

__global__ void keep(const unsigned *times, unsigned *thousandth) { *thousandth = times[999]; }

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int count = sized(1 << 24, 1 << 11);
        unsigned *times = device_array<unsigned>(count), *thousandth = device_array<unsigned>(1);
        auto number = std::make_shared<unsigned>(0);
        return [=] {
            receive<<<(count + 255) / 256, 256>>>(times, count, ++*number);
            if (remedy) thrust::sort(thrust::device, times, times + count, thrust::greater<unsigned>());
            else thrust::sort(thrust::device, times, times + count, SentLater());
            keep<<<1, 1>>>(times, thousandth);
        };
    });
}
