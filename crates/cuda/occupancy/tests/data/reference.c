/* Prints what NVIDIA's own occupancy calculator answers for random kernels on every compute capability that the crate
 * knows: the file reference.csv beside this one. The header comes with any CUDA toolkit, and needs no GPU:
 *
 *     cc -I TOOLKIT/include reference.c -o reference && ./reference > reference.csv
 */
#include <stdint.h>
#include <stdio.h>

#include "cuda_occupancy.h"

static uint64_t state = 0x9e3779b97f4a7c15u;

static uint32_t below(uint32_t limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) % limit);
}

struct device { int major, minor, threads, shared_kib, reserved; };

static const struct device devices[] = {
    {7, 5, 1024, 64, 0},    {8, 0, 2048, 164, 1024}, {8, 6, 1536, 100, 1024}, {8, 7, 1536, 164, 1024},
    {8, 9, 1536, 100, 1024}, {9, 0, 2048, 228, 1024}, {10, 0, 2048, 228, 1024}, {10, 1, 1536, 228, 1024},
    {10, 3, 2048, 228, 1024}, {11, 0, 1536, 228, 1024}, {12, 0, 1536, 100, 1024}, {12, 1, 1536, 100, 1024},
};

int main(void) {
    printf("major,minor,registers,static_shared,max_dynamic_shared,barriers,block_threads,dynamic_shared,carveout,blocks\n");
    for (unsigned d = 0; d < sizeof devices / sizeof *devices; d++) {
        const struct device *device = &devices[d];
        const int optin = device->shared_kib * 1024 - device->reserved;
        cudaOccDeviceProp properties = {0};
        properties.computeMajor = device->major;
        properties.computeMinor = device->minor;
        properties.maxThreadsPerBlock = 1024;
        properties.maxThreadsPerMultiprocessor = device->threads;
        properties.regsPerBlock = properties.regsPerMultiprocessor = 65536;
        properties.warpSize = 32;
        properties.sharedMemPerBlock = 49152;
        properties.sharedMemPerMultiprocessor = device->shared_kib * 1024;
        properties.numSms = 100;
        properties.sharedMemPerBlockOptin = optin;
        properties.reservedSharedMemPerBlock = device->reserved;
        for (int i = 0; i < 250; i++) {
            cudaOccFuncAttributes kernel = {0};
            cudaOccDeviceState preference = {CACHE_PREFER_NONE, below(2) ? -1 : (int)below(101)};
            cudaOccResult result;
            const int threads = 1 + below(below(2) ? 1024 : 256);
            kernel.maxThreadsPerBlock = 1024;
            kernel.numRegs = below(256);
            kernel.sharedSizeBytes = below(2) ? 0 : below(49153);
            kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
            kernel.maxDynamicSharedSizeBytes =
                below(2) ? 49152 - kernel.sharedSizeBytes : below(optin - kernel.sharedSizeBytes + 1);
            kernel.numBlockBarriers = below(4) ? 1 : below(17);
            const size_t dynamic = below(3) ? below(kernel.maxDynamicSharedSizeBytes + 1) : 0;
            if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &properties, &kernel, &preference, threads, dynamic))
                return 1;
            printf("%d,%d,%d,%zu,%zu,%d,%d,%zu,%d,%d\n", device->major, device->minor, kernel.numRegs,
                   kernel.sharedSizeBytes, kernel.maxDynamicSharedSizeBytes, kernel.numBlockBarriers, threads, dynamic,
                   preference.carveoutConfig, result.activeBlocksPerMultiprocessor);
        }
    }
    return 0;
}
