// A program that only moves data: rows of a region of pictures are copied to the host, one by one.
//
// Cause: 1,080 copies for each picture. Remedy: one cudaMemcpy2DAsync.
#include "corpus.h"

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        size_t rows = sized(1080, 16), width = 1280, pitch = 3840;
        char *picture = device_array<char>(rows * pitch, 7), *host;
        CUDA(cudaMallocHost(&host, rows * width));
        return [=] {
            if (remedy)
                CUDA(cudaMemcpy2DAsync(host, width, picture + 640, pitch, width, rows, cudaMemcpyDeviceToHost));
            else
                for (size_t row = 0; row < rows; row++)
                    CUDA(cudaMemcpyAsync(host + row * width, picture + 640 + row * pitch, width, cudaMemcpyDeviceToHost));
            CUDA(cudaStreamSynchronize(0));
        };
    });
}
