// A kernel of floats whose constants are doubles, so that it computes in doubles.
//
// Cause: FP64 arithmetic by accident. Remedy: constants of type float.
#include "corpus.h"

template <typename Real> __global__ void evaluate(float *data, int n, int rounds) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float x = data[i];
        for (int k = 0; k < rounds; k++) x = (((Real(0.25) * x + Real(1.5)) * x - Real(0.75)) * x + Real(0.125)) * x + Real(1e-3);
        data[i] = x;
    }
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 22, 1 << 12);
        float *data = device_array<float>(n);
        return [=] {
            if (remedy) evaluate<float><<<1056, 256>>>(data, n, 64);
            else evaluate<double><<<1056, 256>>>(data, n, 64);
        };
    });
}
