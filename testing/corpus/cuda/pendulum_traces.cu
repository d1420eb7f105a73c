// A million pendulums swing, each with a friction of its own; their angles at 64 moments are written down.
//
// Cause: a thread waits at __threadfence() after each angle that it writes. Remedy: no fence, since the next kernel reads them.
#include "corpus.h"

template <bool WAITS> __global__ void swing(float2 *states, const float *frictions, float *angles, int n, int moments) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float2 state = states[i];
    for (int moment = 0; moment < moments; moment++) {
        float friction = frictions[i];
        state.y -= 0.01f * (state.x + friction * state.y);
        state.x += 0.01f * state.y;
        angles[size_t(moment) * n + i] = state.x;
        if (WAITS) __threadfence();
    }
    states[i] = state;
}

__global__ void widest(const float *angles, float *most, int n, int moments) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float angle = 0;
    for (int moment = 0; moment < moments; moment += 16) angle = fmaxf(angle, fabsf(angles[size_t(moment) * n + i]));
    most[i] = angle;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 20, 1 << 8), moments = sized(64, 16);
        float2 *states = device_array<float2>(n, 60);
        float *frictions = device_array<float>(n, 61), *most = device_array<float>(n);
        float *angles = device_array<float>(size_t(n) * moments);
        return [=] {
            if (remedy) swing<false><<<n / 256, 256>>>(states, frictions, angles, n, moments);
            else swing<true><<<n / 256, 256>>>(states, frictions, angles, n, moments);
            widest<<<n / 256, 256>>>(angles, most, n, moments);
        };
    });
}
