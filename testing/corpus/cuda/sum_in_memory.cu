// A filter adds its terms to the output in memory, one after the other.
//
// Cause: the output is read and written in each turn of the loop. Remedy: a sum in a register.
#include "corpus.h"

template <bool REGISTER> __global__ void smooth(const float *in, volatile float *out, int n, int taps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + taps > n) return;
    float sum = 0;
    if (!REGISTER) out[i] = 0;
    for (int k = 0; k < taps; k++) {
        if (REGISTER) sum += in[i + k];
        else out[i] = out[i] + in[i + k];
    }
    if (REGISTER) out[i] = sum;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 22, 1 << 10);
        float *in = device_array<float>(n), *out = device_array<float>(n);
        return [=] {
            if (remedy) smooth<true><<<(n + 255) / 256, 256>>>(in, out, n, 33);
            else smooth<false><<<(n + 255) / 256, 256>>>(in, out, n, 33);
        };
    });
}
