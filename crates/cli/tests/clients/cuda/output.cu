// What device code says and asks for: printf in all its forms, malloc and free, and an assertion that fails.
#include "check.h"
#include <cassert>
#include <cstring>
#include <string>
#include <unistd.h>

__global__ void say(const char *word, float x, long long big) {
    if (threadIdx.x == 1) printf("%s %5.2f|%-6d|%#x|%c|%lld|%%|%08.3e\n", word, x, -42, 0xbeefu, 'q', big, 12345.678);
}

__global__ void say_in_turn() {
    for (int turn = 0; turn < blockDim.x; turn++) {
        if (turn == threadIdx.x) printf("thread %d of %d\n", threadIdx.x, blockDim.x);
        __syncthreads();
    }
}

struct Link {
    int value;
    Link *next;
};

__global__ void build(Link **heads, int length) {
    Link *head = nullptr;
    for (int i = 0; i < length; i++) {
        Link *link = (Link *)malloc(sizeof(Link));
        assert(link != nullptr);
        *link = Link{int(threadIdx.x) * 100 + i, head};
        head = link;
    }
    heads[threadIdx.x] = head;
}

__global__ void unwind(Link **heads, int *sums) {
    int sum = 0;
    for (Link *link = heads[threadIdx.x]; link;) {
        Link *next = link->next;
        sum += link->value;
        free(link);
        link = next;
    }
    sums[threadIdx.x] = sum;
}

__global__ void objects(double *out) {
    double *values = new double[8];
    for (int i = 0; i < 8; i++) values[i] = i * 0.5 + threadIdx.x;
    double sum = 0;
    for (int i = 0; i < 8; i++) sum += values[i];
    delete[] values;
    out[threadIdx.x] = sum;
}

__global__ void insist(int limit) { assert(int(threadIdx.x) < limit); }

// What the device prints while `action` runs: standard output goes to a file for that long.
template <typename Action> static std::string printed(Action action) {
    fflush(stdout);
    int saved = dup(1);
    FILE *file = tmpfile();
    dup2(fileno(file), 1);
    action();
    CUDA(cudaDeviceSynchronize());
    fflush(stdout);
    dup2(saved, 1);
    close(saved);
    std::string text(4096, '\0');
    rewind(file);
    text.resize(fread(text.data(), 1, text.size(), file));
    fclose(file);
    return text;
}

int main() {
    char *word;
    CUDA(cudaMallocManaged(&word, 16));
    strcpy(word, "value");
    std::string text = printed([&] { LAUNCH(say<<<1, 32>>>(word, 2.718f, -1234567890123ll)); });
    char right[256];
    snprintf(right, sizeof right, "%s %5.2f|%-6d|%#x|%c|%lld|%%|%08.3e\n", "value", 2.718f, -42, 0xbeefu, 'q',
             -1234567890123ll, 12345.678);
    EXPECT(text == right);
    text = printed([] { LAUNCH(say_in_turn<<<1, 40>>>()); });
    std::string turns;
    for (int i = 0; i < 40; i++) turns += "thread " + std::to_string(i) + " of 40\n";
    EXPECT(text == turns);

    size_t heap;
    CUDA(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
    EXPECT(heap >= 8 << 20);
    Device<Link *> heads(64);
    Device<int> sums(64);
    LAUNCH(build<<<1, 64>>>(heads.data, 20));
    LAUNCH(unwind<<<1, 64>>>(heads.data, sums.data));
    std::vector<int> expected(64);
    for (int i = 0; i < 64; i++) expected[i] = 20 * 100 * i + 190;
    expect_equal("sums", sums.host(), expected);
    Device<double> out(32);
    LAUNCH(objects<<<1, 32>>>(out.data));
    std::vector<double> totals(32);
    for (int i = 0; i < 32; i++) totals[i] = 14 + 8.0 * i;
    expect_equal("objects", out.host(), totals);
    CUDA(cudaFree(word));

    LAUNCH(insist<<<1, 64>>>(64));
    CUDA(cudaDeviceSynchronize());
    printf("%d values right, %d kernels launched\n", compared + 2, launched + 1);
    fflush(stdout);
    insist<<<1, 64>>>(50);
    EXPECT(cudaDeviceSynchronize() == cudaErrorAssert);
    EXPECT(cudaGetLastError() == cudaErrorAssert);
    _exit(0); // The context is lost: freeing what is in it would fail.
}
