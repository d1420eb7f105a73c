// Two steps over the pixels of an image, of one byte each, in two dimensions.
#include "pairs.h"

extern "C" __global__ void gray(uint8_t *to, const uint8_t *r, const uint8_t *g, const uint8_t *b, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        int i = y * width + x;
        to[i] = (77 * r[i] + 150 * g[i] + 29 * b[i]) >> 8;
    }
}

extern "C" __global__ void invert(uint8_t *to, const uint8_t *from, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        int i = y * width + x;
        to[i] = 255 - from[i];
    }
}

int main(int count, char **arguments) {
    auto [n, rounds] = given(count, arguments);
    int width = 4096, height = n / width * 4;
    uint8_t *planes[5];
    for (uint8_t *&plane : planes) {
        plane = reinterpret_cast<uint8_t *>(filled<float>(n));
    }
    dim3 block(64, 4), grid((width + 63) / 64, (height + 3) / 4);
    for (int round = 0; round < rounds; round++) {
        gray<<<grid, block>>>(planes[0], planes[1], planes[2], planes[3], width, height);
        invert<<<grid, block>>>(planes[4], planes[0], width, height);
    }
    printed({words(planes[0], n), words(planes[4], n)});
}
