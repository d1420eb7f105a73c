// Streams, events, pinned memory, asynchronous copies, host functions and stream-ordered allocation: what is queued on
// one stream runs in order, and an event orders two streams.
#include "check.h"
#include <atomic>
#include <cstring>

__global__ void scale_add(float *y, const float *x, float a, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}

static void CUDART_CB count_up(void *counter) { ++*static_cast<std::atomic<int> *>(counter); }

int main() {
    const int n = 40000, parts = 4, part = n / parts;
    Random random{1};
    std::vector<float> x = random.floats(n), y = random.floats(n), right(n);
    for (int i = 0; i < n; i++) right[i] = std::fma(-0.5f, x[i], std::fma(3.0f, x[i], y[i]));

    float *pinned_x, *pinned_y, *device_x, *device_y;
    CUDA(cudaMallocHost(&pinned_x, n * sizeof(float)));
    CUDA(cudaHostAlloc(&pinned_y, n * sizeof(float), cudaHostAllocPortable));
    memcpy(pinned_x, x.data(), n * sizeof(float));
    memcpy(pinned_y, y.data(), n * sizeof(float));
    CUDA(cudaMalloc(&device_x, n * sizeof(float)));
    CUDA(cudaMalloc(&device_y, n * sizeof(float)));

    // Each part goes through two streams: the second waits for the first's event, not for the stream.
    std::atomic<int> finished{0};
    cudaStream_t first[parts], second[parts];
    cudaEvent_t begin[parts], between[parts], end[parts];
    int lowest, highest;
    CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    for (int p = 0; p < parts; p++) {
        CUDA(cudaStreamCreateWithFlags(&first[p], cudaStreamNonBlocking));
        CUDA(cudaStreamCreateWithPriority(&second[p], cudaStreamNonBlocking, highest));
        CUDA(cudaEventCreate(&begin[p]));
        CUDA(cudaEventCreateWithFlags(&between[p], cudaEventDisableTiming));
        CUDA(cudaEventCreate(&end[p]));
        float *dx = device_x + p * part, *dy = device_y + p * part;
        CUDA(cudaEventRecord(begin[p], second[p]));
        CUDA(cudaMemcpyAsync(dx, pinned_x + p * part, part * sizeof(float), cudaMemcpyHostToDevice, first[p]));
        CUDA(cudaMemcpyAsync(dy, pinned_y + p * part, part * sizeof(float), cudaMemcpyHostToDevice, first[p]));
        LAUNCH(scale_add<<<20, 128, 0, first[p]>>>(dy, dx, 3.0f, part));
        CUDA(cudaEventRecord(between[p], first[p]));
        CUDA(cudaStreamWaitEvent(second[p], between[p], 0));
        LAUNCH(scale_add<<<7, 96, 0, second[p]>>>(dy, dx, -0.5f, part));
        CUDA(cudaMemcpyAsync(pinned_y + p * part, dy, part * sizeof(float), cudaMemcpyDeviceToHost, second[p]));
        CUDA(cudaLaunchHostFunc(second[p], count_up, &finished));
        CUDA(cudaEventRecord(end[p], second[p]));
    }
    for (int p = 0; p < parts; p++) {
        CUDA(cudaEventSynchronize(end[p]));
        float milliseconds = -1;
        CUDA(cudaEventElapsedTime(&milliseconds, begin[p], end[p]));
        EXPECT(milliseconds >= 0);
        EXPECT(cudaStreamQuery(second[p]) == cudaSuccess);
        EXPECT(cudaEventElapsedTime(&milliseconds, between[p], end[p]) == cudaErrorInvalidResourceHandle);
        (void)cudaGetLastError();
    }
    EXPECT(finished == parts);
    expect_equal("y", std::vector<float>(pinned_y, pinned_y + n), right);

    // Memory that a stream allocates, fills and frees.
    unsigned char *ordered;
    CUDA(cudaMallocAsync((void **)&ordered, n, first[0]));
    CUDA(cudaMemsetAsync(ordered, 0x5a, n, first[0]));
    std::vector<unsigned char> bytes(n);
    CUDA(cudaMemcpyAsync(bytes.data(), ordered, n, cudaMemcpyDeviceToHost, first[0]));
    CUDA(cudaFreeAsync(ordered, first[0]));
    CUDA(cudaStreamSynchronize(first[0]));
    expect_equal("bytes", bytes, std::vector<unsigned char>(n, 0x5a));

    // A pitched copy: rows of 100 out of rows of 200.
    size_t pitch;
    float *rows;
    CUDA(cudaMallocPitch((void **)&rows, &pitch, 100 * sizeof(float), 200));
    EXPECT(pitch >= 100 * sizeof(float));
    CUDA(cudaMemcpy2D(rows, pitch, pinned_x, 200 * sizeof(float), 100 * sizeof(float), 200, cudaMemcpyHostToDevice));
    std::vector<float> packed(100 * 200), expected(100 * 200);
    CUDA(cudaMemcpy2D(packed.data(), 100 * sizeof(float), rows, pitch, 100 * sizeof(float), 200,
                      cudaMemcpyDeviceToHost));
    for (int row = 0; row < 200; row++)
        for (int i = 0; i < 100; i++) expected[row * 100 + i] = x[row * 200 + i];
    expect_equal("packed", packed, expected);

    for (int p = 0; p < parts; p++) {
        CUDA(cudaStreamDestroy(first[p]));
        CUDA(cudaStreamDestroy(second[p]));
        for (cudaEvent_t event : {begin[p], between[p], end[p]}) CUDA(cudaEventDestroy(event));
    }
    CUDA(cudaFree(rows));
    CUDA(cudaFree(device_x));
    CUDA(cudaFree(device_y));
    CUDA(cudaFreeHost(pinned_x));
    CUDA(cudaFreeHost(pinned_y));
    return done();
}
