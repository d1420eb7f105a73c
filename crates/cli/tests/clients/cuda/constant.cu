// Constant memory and device variables: set and read by symbol, before and between launches, and addresses of variables
// in the initial values of others.
#include "check.h"

__constant__ float coefficients[16];
__constant__ struct { int factor; short shift[3]; char name[8]; } settings = {3, {1, 2, 3}, "initial"};
__device__ int counter = 41;
__device__ double table[4] = {0.5, 0.25, 0.125, 0.0625};
__device__ double *middle = &table[2];
__device__ const char *names[2] = {"zero", "one"};

__global__ void filter(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int k = 0; k < 16; k++) sum += coefficients[k] * in[(i + k) % n];
    out[i] = sum;
}

__global__ void look(int *out) {
    out[0] = settings.factor << settings.shift[threadIdx.x + 1];
    out[1] = settings.name[3];
    out[2] = atomicAdd(&counter, 1);
    out[3] = int(*middle * 1000);
    out[4] = names[threadIdx.x + 1][2];
}

int main() {
    Random random{9};
    const int n = 2000;
    std::vector<float> in = random.floats(n), right(n);
    Device<float> device_in(in), out(n);
    for (int round = 0; round < 2; round++) {
        std::vector<float> weights = random.floats(16);
        CUDA(cudaMemcpyToSymbol(coefficients, weights.data(), 16 * sizeof(float)));
        LAUNCH(filter<<<16, 128>>>(device_in.data, out.data, n));
        for (int i = 0; i < n; i++) {
            double sum = 0;
            for (int k = 0; k < 16; k++) sum += double(weights[k]) * in[(i + k) % n];
            right[i] = float(sum);
        }
        expect_equal("filtered", out.host(), right, 2e-6);
    }
    Device<int> seen(5);
    LAUNCH(look<<<1, 1>>>(seen.data));
    expect_equal("seen", seen.host(), std::vector<int>{3 << 2, 't', 41, 125, 'e'});
    int count = 0;
    CUDA(cudaMemcpyFromSymbol(&count, counter, sizeof count));
    EXPECT(count == 42);
    count = 7;
    CUDA(cudaMemcpyToSymbol(counter, &count, sizeof count));
    LAUNCH(look<<<1, 1>>>(seen.data));
    EXPECT(seen.host()[2] == 7);
    void *address;
    size_t bytes;
    CUDA(cudaGetSymbolAddress(&address, table));
    CUDA(cudaGetSymbolSize(&bytes, table));
    EXPECT(bytes == 4 * sizeof(double));
    double last;
    CUDA(cudaMemcpy(&last, (double *)address + 3, sizeof last, cudaMemcpyDefault));
    EXPECT(last == 0.0625);
    return done();
}
