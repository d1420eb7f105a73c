// Particles are born and die; a list on the device holds those that live, with their number, and there is room for 64 million.
//
// Cause: each kernel has blocks for all that there is room for, and nearly all of them end at once. Remedy: a grid that fills
// the device, and a loop over those that live.
#include "corpus.h"

__device__ bool next(int &i, const int *living, bool loops, bool first) {
    i = first ? blockIdx.x * blockDim.x + threadIdx.x : i + gridDim.x * blockDim.x;
    return (first || loops) && i < *living;
}

__global__ void count(int *living, int step, int around) {
    *living = around + (step * 7919) % (around / 8);
}

__global__ void pull(float4 *particles, float4 *speeds, const int *living, bool loops) {
    int i;
    for (bool more = next(i, living, loops, true); more; more = next(i, living, loops, false)) {
        float4 p = particles[i], v = speeds[i];
        float r = rsqrtf(p.x * p.x + p.y * p.y + p.z * p.z + 0.01f), force = -0.001f * r * r * r;
        speeds[i] = make_float4(v.x + force * p.x, v.y + force * p.y, v.z + force * p.z, v.w);
    }
}

__global__ void move(float4 *particles, const float4 *speeds, const int *living, bool loops) {
    int i;
    for (bool more = next(i, living, loops, true); more; more = next(i, living, loops, false)) {
        float4 p = particles[i], v = speeds[i];
        particles[i] = make_float4(p.x + v.x, p.y + v.y, p.z + v.z, p.w);
    }
}

__global__ void reflect(float4 *particles, float4 *speeds, const int *living, bool loops) {
    int i;
    for (bool more = next(i, living, loops, true); more; more = next(i, living, loops, false))
        if (fabsf(particles[i].x) > 10.0f) speeds[i].x = -speeds[i].x;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int room = sized(1 << 26, 1 << 12), around = sized(1 << 18, 1 << 8), blocks = remedy ? sized(132 * 8, 2) : room / 128;
        float4 *particles = device_array<float4>(room, 1), *speeds = device_array<float4>(room);
        int *living = device_array<int>(1);
        auto steps = std::make_shared<int>(0);
        return [=] {
            count<<<1, 1>>>(living, ++*steps % 1000, around);
            pull<<<blocks, 128>>>(particles, speeds, living, remedy);
            move<<<blocks, 128>>>(particles, speeds, living, remedy);
            reflect<<<blocks, 128>>>(particles, speeds, living, remedy);
        };
    });
}
