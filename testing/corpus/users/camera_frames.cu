// Frames of four cameras are brightened on the GPU. The cameras' library owns the memory of the frames.
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

constexpr int WIDTH = 4096, HEIGHT = 3072, CAMERAS = 4;
constexpr size_t PIXELS = size_t(WIDTH) * HEIGHT, BYTES = PIXELS * sizeof(unsigned short);

__global__ void brighten(const unsigned short *raw, float *light, float gain, float black) {
    size_t at = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= PIXELS) return;
    float value = fmaxf(float(raw[at]) - black, 0.0f) * gain;
    light[at] = 0.9f * light[at] + 0.1f * sqrtf(value);
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Camera {
    unsigned short *frame;
    float *light;
};

void process(const Camera &camera, unsigned short *raw, cudaStream_t stream, bool remedied) {
    if (!remedied) CHECK(cudaHostRegister(camera.frame, BYTES, cudaHostRegisterDefault));
    CHECK(cudaMemcpyAsync(raw, camera.frame, BYTES, cudaMemcpyHostToDevice, stream));
    brighten<<<(PIXELS + 255) / 256, 256, 0, stream>>>(raw, camera.light, 1.0f / 65535, 64.0f);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    if (!remedied) CHECK(cudaHostUnregister(camera.frame));
}

int main(int argc, char **argv) {
    double seconds = 6;
    bool remedied = false;
    for (int i = 1; i < argc; ++i) {
        if (!std::strcmp(argv[i], "--remedied")) remedied = true;
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    }
    std::vector<Camera> cameras(CAMERAS);
    for (int c = 0; c < CAMERAS; ++c) {
        cameras[c].frame = static_cast<unsigned short *>(std::aligned_alloc(4096, BYTES));
        for (size_t i = 0; i < PIXELS; ++i) cameras[c].frame[i] = (unsigned short)(i * 2654435761u >> 16);
        CHECK(cudaMalloc(&cameras[c].light, PIXELS * sizeof(float)));
        CHECK(cudaMemset(cameras[c].light, 0, PIXELS * sizeof(float)));
        if (remedied) CHECK(cudaHostRegister(cameras[c].frame, BYTES, cudaHostRegisterDefault));
    }
    unsigned short *raw;
    CHECK(cudaMalloc(&raw, BYTES));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (int i = 0; i < 8; ++i) process(cameras[i % CAMERAS], raw, stream, remedied);
    double began = now();
    long frames = 0;
    while (now() - began < seconds) {
        process(cameras[frames % CAMERAS], raw, stream, remedied);
        if (++frames % 500 == 0) std::printf("%ld frames\n", frames);
    }
    std::printf("%.3f steps/s\n", frames / (now() - began));
    return 0;
}
