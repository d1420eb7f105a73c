// Water sloshes in a long tank. After each step, what eight probes along the tank measured goes to the host.
//
// Cause: cudaMemcpy2DAsync takes four bytes of each row of the field for each probe. Remedy: a kernel puts the probes' values
// side by side, and one copy takes them.
#include "corpus.h"

constexpr int WIDTH = 256, PROBES = 8;

__global__ void slosh(const float *now, float *next, int rows) {
    int column = threadIdx.x, row = blockIdx.x;
    float here = now[row * WIDTH + column];
    float left = now[row * WIDTH + max(column - 1, 0)], right = now[row * WIDTH + min(column + 1, WIDTH - 1)];
    float above = now[max(row - 1, 0) * WIDTH + column], below = now[min(row + 1, rows - 1) * WIDTH + column];
    next[row * WIDTH + column] = here + 0.2f * (left + right + above + below - 4 * here);
}

__global__ void gather(const float *field, float *values, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    for (int probe = 0; probe < PROBES; probe++) values[probe * rows + row] = field[row * WIDTH + probe * (WIDTH / PROBES)];
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int rows = sized(1 << 16, 1 << 6);
        float *one = device_array<float>(size_t(rows) * WIDTH, 1), *other = device_array<float>(size_t(rows) * WIDTH);
        float *values = device_array<float>(size_t(rows) * PROBES), *host;
        CUDA(cudaMallocHost(&host, size_t(rows) * PROBES * sizeof(float)));
        cudaStream_t stream;
        CUDA(cudaStreamCreate(&stream));
        return [=] {
            slosh<<<rows, WIDTH, 0, stream>>>(one, other, rows);
            slosh<<<rows, WIDTH, 0, stream>>>(other, one, rows);
            if (remedy) {
                gather<<<(rows + 255) / 256, 256, 0, stream>>>(one, values, rows);
                CUDA(cudaMemcpyAsync(host, values, size_t(rows) * PROBES * sizeof(float), cudaMemcpyDeviceToHost, stream));
            }
            for (int probe = 0; probe < PROBES && !remedy; probe++)
                CUDA(cudaMemcpy2DAsync(host + size_t(probe) * rows, sizeof(float), one + probe * (WIDTH / PROBES),
                                       WIDTH * sizeof(float), sizeof(float), rows, cudaMemcpyDeviceToHost, stream));
        };
    });
}
