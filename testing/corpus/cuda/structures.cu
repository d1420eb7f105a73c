// Particles are structures of eight floats, and the kernel moves one of them: three quarters of each sector are not used.
//
// Cause: an array of structures (uncoalesced accesses). Remedy: a structure of arrays.
#include "corpus.h"

struct Particle {
    float x, y, z, vx, vy, vz, mass, charge;
};

__global__ void drift(Particle *particles, float dt, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) particles[i].x += particles[i].vx * dt;
}

__global__ void drift_arrays(float *x, const float *vx, float dt, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += vx[i] * dt;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 26, 1 << 15);
        if (remedy) {
            float *x = device_array<float>(n), *vx = device_array<float>(n);
            return [=] { drift_arrays<<<(n + 255) / 256, 256>>>(x, vx, 0.1f, n); };
        }
        Particle *particles = device_array<Particle>(n);
        return [=] { drift<<<(n + 255) / 256, 256>>>(particles, 0.1f, n); };
    });
}
