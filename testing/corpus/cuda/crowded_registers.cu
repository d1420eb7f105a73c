// Chains of 24 weights on springs swing. Each thread keeps one chain in its registers and follows it for many moments.
//
// Cause: __launch_bounds__(1024, 2) leaves 32 registers for a thread, and the chain goes to local memory. Remedy: blocks of 128
// threads, without a second number.
#include "corpus.h"

constexpr int WEIGHTS = 24, MOMENTS = 40;

__device__ void follow_chain(float *places, int chains) {
    int chain = blockIdx.x * blockDim.x + threadIdx.x;
    if (chain >= chains) return;
    float place[WEIGHTS], speed[WEIGHTS];
#pragma unroll
    for (int i = 0; i < WEIGHTS; i++) {
        place[i] = places[i * chains + chain];
        speed[i] = 0;
    }
    for (int moment = 0; moment < MOMENTS; moment++) {
#pragma unroll
        for (int i = 0; i < WEIGHTS; i++) {
            float left = i > 0 ? place[i - 1] : 0, right = i + 1 < WEIGHTS ? place[i + 1] : 0;
            speed[i] += 0.01f * (left + right - 2 * place[i]);
        }
#pragma unroll
        for (int i = 0; i < WEIGHTS; i++) place[i] += 0.01f * speed[i];
    }
#pragma unroll
    for (int i = 0; i < WEIGHTS; i++) places[i * chains + chain] = place[i];
}

__global__ void __launch_bounds__(1024, 2) swing_crowded(float *places, int chains) { follow_chain(places, chains); }

__global__ void __launch_bounds__(128) swing(float *places, int chains) { follow_chain(places, chains); }

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int chains = sized(1 << 20, 1 << 11);
        float *places = device_array<float>(size_t(WEIGHTS) * chains, 1);
        return [=] {
            if (remedy) swing<<<chains / 128, 128>>>(places, chains);
            else swing_crowded<<<chains / 1024, 1024>>>(places, chains);
        };
    });
}
