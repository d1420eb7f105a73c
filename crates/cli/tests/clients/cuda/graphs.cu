// CUDA graphs: captured from two streams with a fork and a join, launched again and again, updated, and built by hand.
#include "check.h"

__global__ void add(int *values, int amount, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += amount;
}

__global__ void combine(int *out, const int *a, const int *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += 2 * a[i] - b[i];
}

const int n = 1000;

// Records the work of one round: a and b change side by side, then out gathers both.
static cudaGraph_t captured(int *a, int *b, int *out, int amount) {
    cudaStream_t first, second;
    cudaEvent_t fork, join;
    CUDA(cudaStreamCreate(&first));
    CUDA(cudaStreamCreate(&second));
    CUDA(cudaEventCreate(&fork));
    CUDA(cudaEventCreate(&join));
    cudaGraph_t graph;
    CUDA(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    CUDA(cudaEventRecord(fork, first));
    CUDA(cudaStreamWaitEvent(second, fork, 0));
    add<<<8, 128, 0, first>>>(a, amount, n);
    add<<<8, 128, 0, second>>>(b, 3, n);
    CUDA(cudaEventRecord(join, second));
    CUDA(cudaStreamWaitEvent(first, join, 0));
    combine<<<8, 128, 0, first>>>(out, a, b, n);
    CUDA(cudaStreamEndCapture(first, &graph));
    CUDA(cudaGetLastError());
    CUDA(cudaEventDestroy(fork));
    CUDA(cudaEventDestroy(join));
    CUDA(cudaStreamDestroy(first));
    CUDA(cudaStreamDestroy(second));
    return graph;
}

int main() {
    Random random{5};
    std::vector<int> a = random.integers<int>(n, 100), b = random.integers<int>(n, 100), out(n);
    Device<int> device_a(a), device_b(b), device_out(out);
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));

    cudaGraph_t graph = captured(device_a.data, device_b.data, device_out.data, 7);
    size_t nodes = 0;
    CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes == 3);
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    auto rounds = [&](int count, int amount) {
        for (int round = 0; round < count; round++) {
            CUDA(cudaGraphLaunch(exec, stream));
            launched += 3;
            for (int i = 0; i < n; i++) {
                a[i] += amount;
                b[i] += 3;
                out[i] += 2 * a[i] - b[i];
            }
        }
        CUDA(cudaStreamSynchronize(stream));
        expect_equal("out", device_out.host(), out);
    };
    expect_equal("before", device_out.host(), out);
    rounds(5, 7);

    // The same shape with another argument: the executable graph takes it over.
    cudaGraph_t other = captured(device_a.data, device_b.data, device_out.data, -2);
    cudaGraphExecUpdateResultInfo info;
    CUDA(cudaGraphExecUpdate(exec, other, &info));
    EXPECT(info.result == cudaGraphExecUpdateSuccess);
    rounds(3, -2);

    // One node of the executable graph changed by hand.
    std::vector<cudaGraphNode_t> node(nodes);
    CUDA(cudaGraphGetNodes(graph, node.data(), &nodes));
    for (cudaGraphNode_t candidate : node) {
        cudaKernelNodeParams params;
        CUDA(cudaGraphKernelNodeGetParams(candidate, &params));
        if (params.func != (void *)add || *(int **)params.kernelParams[0] != device_a.data) continue;
        int amount = 11;
        void *arguments[] = {params.kernelParams[0], &amount, params.kernelParams[2]};
        params.kernelParams = arguments;
        CUDA(cudaGraphExecKernelNodeSetParams(exec, candidate, &params));
    }
    rounds(2, 11);

    // A graph built by hand: set, then add, then copy out.
    cudaGraph_t built;
    CUDA(cudaGraphCreate(&built, 0));
    std::vector<int> host(n);
    cudaGraphNode_t set, kernel, copy;
    cudaMemsetParams fill = {};
    fill.dst = device_a.data;
    fill.elementSize = 4;
    fill.value = 1000;
    fill.width = n;
    fill.height = 1;
    CUDA(cudaGraphAddMemsetNode(&set, built, nullptr, 0, &fill));
    int amount = 234, count = n;
    void *arguments[] = {&device_a.data, &amount, &count};
    cudaKernelNodeParams params = {};
    params.func = (void *)add;
    params.gridDim = dim3(8);
    params.blockDim = dim3(128);
    params.kernelParams = arguments;
    CUDA(cudaGraphAddKernelNode(&kernel, built, &set, 1, &params));
    CUDA(cudaGraphAddMemcpyNode1D(&copy, built, &kernel, 1, host.data(), device_a.data, n * sizeof(int),
                                  cudaMemcpyDeviceToHost));
    cudaGraphExec_t built_exec;
    CUDA(cudaGraphInstantiate(&built_exec, built, 0));
    CUDA(cudaGraphLaunch(built_exec, stream));
    launched++;
    CUDA(cudaStreamSynchronize(stream));
    expect_equal("built", host, std::vector<int>(n, 1234));

    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphExecDestroy(built_exec));
    for (cudaGraph_t used : {graph, other, built}) CUDA(cudaGraphDestroy(used));
    CUDA(cudaStreamDestroy(stream));
    return done();
}
