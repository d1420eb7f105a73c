// Ranks of pages: each page adds up the ranks of the 64 pages that refer to it, and shares its own out. The references came in
// no order.
//
// Cause: a page's references are a linked list, and each leads to the next somewhere in memory. Remedy: they lie side by side.
#include "corpus.h"

constexpr int REFERENCES = 64;

__device__ int referring(int page, int reference, int pages) {
    unsigned mixed = (page * REFERENCES + reference) * 2654435761u;
    mixed = (mixed ^ mixed >> 15) * 2246822519u;
    return (mixed ^ mixed >> 13) & (pages - 1);
}

// Where a reference is in the order in which all came: an odd factor and a power of two give each a place of its own.
__device__ int place(int page, int reference, int pages) {
    return (unsigned(page * REFERENCES + reference) * 668265263u) & unsigned(pages * REFERENCES - 1);
}

__global__ void insert(int *first, int *next, int *from, int *rows, int pages) {
    int page = blockIdx.x * blockDim.x + threadIdx.x;
    first[page] = place(page, 0, pages);
    for (int i = 0; i < REFERENCES; i++) {
        int at = place(page, i, pages);
        next[at] = i + 1 < REFERENCES ? place(page, i + 1, pages) : -1;
        from[at] = rows[page * REFERENCES + i] = referring(page, i, pages);
    }
}

__global__ void sum_listed(const int *first, const int *next, const int *from, const float *ranks, float *sums) {
    int page = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int at = first[page]; at >= 0; at = next[at]) sum += ranks[from[at]];
    sums[page] = 0.15f + 0.85f / REFERENCES * sum;
}

__global__ void sum_rows(const int *rows, const float *ranks, float *sums) {
    int page = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    float sum = 0;
    for (int i = lane; i < REFERENCES; i += 32) sum += ranks[rows[page * REFERENCES + i]];
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(~0u, sum, apart);
    if (lane == 0) sums[page] = 0.15f + 0.85f / REFERENCES * sum;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int pages = sized(1 << 18, 1 << 8);
        int *first = device_array<int>(pages), *next = device_array<int>(pages * REFERENCES);
        int *from = device_array<int>(pages * REFERENCES), *rows = device_array<int>(pages * REFERENCES);
        float *one = device_array<float>(pages, 60), *other = device_array<float>(pages);
        insert<<<pages / 128, 128>>>(first, next, from, rows, pages);
        return [=] {
            for (int i = 0; i < 2; i++) {
                const float *ranks = i ? other : one;
                float *sums = i ? one : other;
                if (remedy) sum_rows<<<pages / 8, 256>>>(rows, ranks, sums);
                else sum_listed<<<pages / 256, 256>>>(first, next, from, ranks, sums);
            }
        };
    });
}
