// Frames of eight bits are lit up: a curve for each pixel, and what is too bright is cut off.
//
// Cause: each thread reads and writes one byte at a time. Remedy: it reads and writes sixteen.
#include "corpus.h"

__device__ unsigned lit(unsigned value, float gain, float offset) {
    return unsigned(fminf(fmaxf(value * gain + offset, 0.0f), 255.0f));
}

__global__ void light(const unsigned char *in, unsigned char *out, size_t count, float gain, float offset) {
    size_t threads = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) out[i] = lit(in[i], gain, offset);
}

__device__ unsigned four(unsigned pixels, float gain, float offset) {
    unsigned result = 0;
    for (int shift = 0; shift < 32; shift += 8) result |= lit(pixels >> shift & 255, gain, offset) << shift;
    return result;
}

__global__ void light_rows(const uint4 *in, uint4 *out, size_t count, float gain, float offset) {
    size_t threads = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        uint4 p = in[i];
        out[i] = make_uint4(four(p.x, gain, offset), four(p.y, gain, offset), four(p.z, gain, offset), four(p.w, gain, offset));
    }
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        size_t count = sized(8l * 3840 * 2160 * 4, 1 << 12);
        unsigned blocks = sized(132 * 8, 2);
        unsigned char *in = device_array<unsigned char>(count, 90), *out = device_array<unsigned char>(count);
        auto frame = std::make_shared<int>(0);
        return [=] {
            float gain = 1.0f + 0.1f * (++*frame % 8);
            if (remedy) light_rows<<<blocks, 256>>>((const uint4 *)in, (uint4 *)out, count / 16, gain, 4.0f);
            else light<<<blocks, 256>>>(in, out, count, gain, 4.0f);
        };
    });
}
