// A Julia set in blocks of 4 by 4 threads: half of each warp is empty.
#include "program.h"

extern "C" __global__ void julia(float *to, int width, int height, float real, float imaginary) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }
    float a = 3.0f * x / width - 1.5f, b = 2.0f * y / height - 1.0f;
    int steps = 0;
    while (steps < 100 && a * a + b * b < 4.0f) {
        float next = a * a - b * b + real;
        b = 2.0f * a * b + imaginary;
        a = next;
        steps++;
    }
    to[y * width + x] = steps + a;
}

int main() {
    const int width = 1999, height = 1001;
    float *to = values(width * height);
    dim3 block(4, 4), grid((width + 3) / 4, (height + 3) / 4);
    for (int round = 0; round < 1500; round++) {
        julia<<<grid, block>>>(to, width, height, -0.8f + 1e-5f * round, 0.156f);
    }
    check(cudaDeviceSynchronize());
    finish(to, width * height);
}
