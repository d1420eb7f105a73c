// Managed memory: structures with pointers that host and device both follow, managed variables, and how pointers of each
// kind are told apart.
#include "check.h"

struct Node {
    int value;
    Node *next;
};

__device__ __managed__ int visited = 0;
__device__ __managed__ float factors[4];

__global__ void walk(Node *head, long long *sum) {
    for (Node *node = head; node; node = node->next) {
        *sum += node->value;
        node->value = -node->value;
        visited++;
    }
}

__global__ void apply(float *values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= factors[i % 4];
}

int main() {
    Random random{4};
    const int n = 500;
    Node *nodes;
    long long *sum, right = 0;
    CUDA(cudaMallocManaged(&nodes, n * sizeof(Node)));
    CUDA(cudaMallocManaged(&sum, sizeof *sum));
    std::vector<int> order(n), values = random.integers<int>(n, 1 << 20);
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) std::swap(order[i], order[random.below(uint32_t(i + 1))]);
    for (int i = 0; i < n; i++) {
        nodes[order[i]] = Node{values[i], i + 1 < n ? &nodes[order[i + 1]] : nullptr};
        right += values[i];
    }
    *sum = 0;
    LAUNCH(walk<<<1, 1>>>(&nodes[order[0]], sum));
    CUDA(cudaDeviceSynchronize());
    EXPECT(*sum == right);
    EXPECT(visited == n);
    for (int i = 0; i < n; i++) EXPECT(nodes[order[i]].value == -values[i]);

    std::vector<float> expected = random.floats(1000);
    float *data;
    CUDA(cudaMallocManaged(&data, 1000 * sizeof(float)));
    for (int i = 0; i < 4; i++) factors[i] = float(i) + 0.5f;
    for (int i = 0; i < 1000; i++) {
        data[i] = expected[i];
        expected[i] *= factors[i % 4];
    }
    LAUNCH(apply<<<8, 128>>>(data, 1000));
    CUDA(cudaDeviceSynchronize());
    expect_equal("data", std::vector<float>(data, data + 1000), expected);

    int *device, *pinned, plain = 0;
    CUDA(cudaMalloc(&device, 64));
    CUDA(cudaMallocHost(&pinned, 64));
    auto kind = [](const void *pointer) {
        cudaPointerAttributes attributes;
        CUDA(cudaPointerGetAttributes(&attributes, pointer));
        return attributes.type;
    };
    EXPECT(kind(data + 10) == cudaMemoryTypeManaged);
    EXPECT(kind(&device[5]) == cudaMemoryTypeDevice);
    EXPECT(kind(pinned) == cudaMemoryTypeHost);
    EXPECT(kind(&plain) == cudaMemoryTypeUnregistered);
    for (void *memory : {(void *)nodes, (void *)sum, (void *)data, (void *)device}) CUDA(cudaFree(memory));
    CUDA(cudaFreeHost(pinned));
    return done();
}
