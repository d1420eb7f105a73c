// Each scan of a lidar marks the cells of a fine grid that it hits; the number of cells that it hits first is kept.
//
// Cause: the whole grid, 2 GiB, is set to zero for each scan. Remedy: a cell holds the number of the last scan that hit it.
#include "corpus.h"

__device__ unsigned cell_of(unsigned point, unsigned scan, unsigned mask) {
    unsigned x = point * 2654435761u ^ scan * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    return (x ^ x >> 13) & mask;
}

__global__ void mark(unsigned *cells, unsigned mask, int points, unsigned scan, unsigned stamp, int *first_hits) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool is_first = i < points && atomicExch(&cells[cell_of(i, scan, mask)], stamp) != stamp;
    int count = __syncthreads_count(is_first);
    if (threadIdx.x == 0) atomicAdd(first_hits, count);
}

__global__ void keep(const int *first_hits, float *history, unsigned scan, int points) {
    history[scan % 1024] = float(*first_hits) / points;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        unsigned cells = sized(1l << 29, 1 << 12);
        int points = sized(1 << 20, 1 << 8);
        unsigned *grid = device_array<unsigned>(cells);
        int *first_hits = device_array<int>(1);
        float *history = device_array<float>(1024);
        auto scan = std::make_shared<unsigned>(0);
        return [=] {
            unsigned number = ++*scan;
            if (!remedy) CUDA(cudaMemsetAsync(grid, 0, cells * sizeof(unsigned)));
            CUDA(cudaMemsetAsync(first_hits, 0, sizeof(int)));
            mark<<<(points + 255) / 256, 256>>>(grid, cells - 1, points, number, remedy ? number : 1, first_hits);
            keep<<<1, 1>>>(first_hits, history, number, points);
        };
    });
}
