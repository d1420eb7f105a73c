// A field of mirrors before a tower: the GPU sums what each mirror sends to the receiver, and the controller turns the mirrors.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t status = (call);                                                 \
        if (status != cudaSuccess) {                                                 \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));     \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

constexpr int MIRRORS = 2'000'000, RAYS = 24;
constexpr size_t BYTES = MIRRORS * sizeof(float);

__global__ void reflect(const float *angles, float *power, float sun) {
    int mirror = blockIdx.x * blockDim.x + threadIdx.x;
    if (mirror >= MIRRORS) return;
    float angle = angles[mirror], sum = 0.0f;
    float ideal = 0.5f * (sun + 1e-6f * float(mirror % 4096));
    for (int ray = 0; ray < RAYS; ++ray) {
        float off = angle - ideal + 0.002f * (ray - RAYS / 2);
        sum += __expf(-400.0f * off * off);
    }
    power[mirror] = sum / RAYS;
}

// Turns each mirror a little further where it got brighter, and back where it did not.
double turn(float *__restrict__ angles, const float *__restrict__ power, float gain) {
    float total[8] = {};
    for (int i = 0; i < MIRRORS; i += 8)
        for (int j = 0; j < 8; ++j) {
            float got = power[i + j];
            angles[i + j] += gain * (0.6f - got);
            total[j] += got;
        }
    double all = 0;
    for (float part : total) all += part;
    return all / MIRRORS;
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Field {
    float *angles, *power;       // what the controller sees
    float *gpu_angles, *gpu_power;
    bool remedied;

    explicit Field(bool remedied) : remedied(remedied) {
        if (remedied) {
            CHECK(cudaMallocHost(&angles, BYTES));
            CHECK(cudaMallocHost(&power, BYTES));
            CHECK(cudaMalloc(&gpu_angles, BYTES));
            CHECK(cudaMalloc(&gpu_power, BYTES));
        } else {
            CHECK(cudaMallocManaged(&angles, BYTES));
            CHECK(cudaMallocManaged(&power, BYTES));
            gpu_angles = angles;
            gpu_power = power;
        }
        for (int i = 0; i < MIRRORS; ++i) angles[i] = 0.4f + 1e-7f * float(i % 1000);
    }

    double step(float sun) {
        if (remedied) CHECK(cudaMemcpyAsync(gpu_angles, angles, BYTES, cudaMemcpyHostToDevice));
        reflect<<<(MIRRORS + 255) / 256, 256>>>(gpu_angles, gpu_power, sun);
        CHECK(cudaGetLastError());
        if (remedied) CHECK(cudaMemcpyAsync(power, gpu_power, BYTES, cudaMemcpyDeviceToHost));
        CHECK(cudaDeviceSynchronize());
        return turn(angles, power, 1e-3f);
    }
};

int main(int argc, char **argv) {
    double seconds = 6;
    bool remedied = false;
    for (int i = 1; i < argc; ++i) {
        if (!std::strcmp(argv[i], "--remedied")) remedied = true;
        if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[i + 1]);
    }
    Field field(remedied);
    for (int i = 0; i < 5; ++i) field.step(0.8f);
    double began = now();
    long steps = 0;
    while (now() - began < seconds) {
        double mean = field.step(0.8f + 1e-5f * float(steps % 2000));
        if (++steps % 200 == 0) std::printf("%ld: %.4f of the light arrives\n", steps, mean);
    }
    std::printf("%.3f steps/s\n", steps / (now() - began));
    return 0;
}
