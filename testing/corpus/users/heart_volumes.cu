// Prepares films of beating hearts from a scanner: cuts out the chest, mirrors left and right, and evens out the coils' gain.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t status = (call);                                                 \
        if (status != cudaSuccess) {                                                 \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));     \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

struct Film {
    long long x, y, z, t;
    long long voxels() const { return x * y * z; }
    long long all() const { return voxels() * t; }
};

__global__ void prepare(const float *raw, const float *gain, float *out, Film from, Film to, long long x0, long long y0, long long z0) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= to.x * to.y * to.z * to.t) return;
    long long x = at % to.x;
    long long y = at / to.x % to.y;
    long long z = at / (to.x * to.y) % to.z;
    long long t = at / (to.x * to.y * to.z);
    long long source = ((t * from.z + z + z0) * from.y + y + y0) * from.x + x0 + to.x - 1 - x;
    out[at] = raw[source] * gain[(z * to.y + y) * to.x + x];
}

__global__ void prepare_rows(const float *raw, const float *gain, float *out, Film from, Film to, int x0, int y0, int z0) {
    int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    int own = (z * int(to.y) + y) * int(to.x) + x;
    float factor = gain[own];
    const float *source = raw + ((long long)(z + z0) * from.y + y + y0) * from.x + x0 + to.x - 1 - x;
    float *target = out + own;
    long long source_step = from.x * from.y * from.z, target_step = to.x * to.y * to.z;
#pragma unroll 4
    for (int t = 0; t < int(to.t); ++t) target[t * target_step] = source[t * source_step] * factor;
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    double seconds = 6;
    bool remedied = false;
    for (int i = 1; i < argc; ++i) {
        if (!std::strcmp(argv[i], "--remedied")) remedied = true;
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    }
    Film scanned{320, 288, 176, 48}, chest{288, 250, 150, 48};
    std::vector<float> frame(scanned.voxels()), coils(chest.voxels());
    for (size_t i = 0; i < frame.size(); ++i) frame[i] = float(i * 2654435761u % 4096u);
    for (size_t i = 0; i < coils.size(); ++i) coils[i] = 0.8f + float(i % 977) / 2000.0f;
    float *raw, *gain, *out;
    CHECK(cudaMalloc(&raw, scanned.all() * sizeof(float)));
    CHECK(cudaMalloc(&gain, chest.voxels() * sizeof(float)));
    CHECK(cudaMalloc(&out, chest.all() * sizeof(float)));
    for (int t = 0; t < scanned.t; ++t)
        CHECK(cudaMemcpy(raw + t * scanned.voxels(), frame.data(), frame.size() * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(gain, coils.data(), coils.size() * sizeof(float), cudaMemcpyHostToDevice));
    auto launch = [&] {
        if (remedied) {
            dim3 grid(chest.y, chest.z);
            prepare_rows<<<grid, int(chest.x)>>>(raw, gain, out, scanned, chest, 16, 20, 12);
        } else {
            prepare<<<(chest.all() + 255) / 256, 256>>>(raw, gain, out, scanned, chest, 16, 20, 12);
        }
        CHECK(cudaGetLastError());
    };
    for (int i = 0; i < 5; ++i) launch();
    CHECK(cudaDeviceSynchronize());
    double began = now();
    long films = 0;
    while (now() - began < seconds) {
        launch();
        if (++films % 100 == 0) {
            float last;
            CHECK(cudaMemcpy(&last, out + chest.all() - 1, sizeof last, cudaMemcpyDeviceToHost));
            std::printf("film %ld: %.3f\n", films, last);
        }
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%.3f steps/s\n", films / (now() - began));
    return 0;
}
