// The rows of a matrix are copied into a padded one, one cudaMemcpyAsync for each.
//
// Cause: thousands of small copies. Remedy: one cudaMemcpy2DAsync.
#include "corpus.h"

__global__ void scale(float *data, size_t pitch, int columns) {
    for (int i = threadIdx.x; i < columns; i += blockDim.x) data[blockIdx.x * pitch + i] *= 1.01f;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int rows = sized(2048, 32), columns = 1000, pitch = 1024;
        float *from = device_array<float>((size_t)rows * columns), *to = device_array<float>((size_t)rows * pitch);
        return [=] {
            if (remedy)
                CUDA(cudaMemcpy2DAsync(to, pitch * sizeof(float), from, columns * sizeof(float), columns * sizeof(float), rows,
                                       cudaMemcpyDeviceToDevice));
            else
                for (int row = 0; row < rows; row++)
                    CUDA(cudaMemcpyAsync(to + (size_t)row * pitch, from + (size_t)row * columns, columns * sizeof(float),
                                         cudaMemcpyDeviceToDevice));
            scale<<<rows, 256>>>(to, pitch, columns);
        };
    });
}
