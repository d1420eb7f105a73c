// Thousands of launches of one block of 16 threads each, which have nothing to do with one another.
//
// Cause: tiny launches. Remedy: one launch for all of them.
#include "corpus.h"

__global__ void cell(float *data, int first) {
    int i = (blockIdx.x + first) * 16 + threadIdx.x;
    data[i] = data[i] * 0.5f + 1.0f;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int cells = sized(3000, 300);
        float *data = device_array<float>(cells * 16);
        if (remedy) return [=] { cell<<<cells, 16>>>(data, 0); };
        return [=] {
            for (int i = 0; i < cells; i++) cell<<<1, 16>>>(data, i);
        };
    });
}
