// A sensor sends each frame as lines of text, three numbers for a point. The points are counted in a grid seen from above.
//
// Cause: std::istringstream reads the numbers of a frame. Remedy: std::from_chars reads them where they lie.
#include "corpus.h"

#include <charconv>
#include <sstream>
#include <string>

constexpr int CELLS = 256;

__global__ void count_points(const float *points, int count, int *cells) {
    int point = blockIdx.x * blockDim.x + threadIdx.x;
    if (point >= count) return;
    int x = min(max(int((points[3 * point] + 64) * 2), 0), CELLS - 1);
    int y = min(max(int((points[3 * point + 1] + 64) * 2), 0), CELLS - 1);
    if (points[3 * point + 2] > -1.5f) atomicAdd(&cells[y * CELLS + x], 1);
}

__global__ void fade(int *cells, float *seen) {
    int cell = blockIdx.x * blockDim.x + threadIdx.x;
    seen[cell] = 0.9f * seen[cell] + cells[cell];
    cells[cell] = 0;
}

static std::string frame(int points, unsigned seed) {
    std::string text;
    char line[64];
    for (int point = 0; point < points; point++) {
        double number[3];
        for (double &one : number) one = ((seed = seed * 1664525 + 1013904223) >> 8) / double(1 << 24) * 120 - 60;
        snprintf(line, sizeof line, "%.3f %.3f %.3f\n", number[0], number[1], number[2] / 20);
        text += line;
    }
    return text;
}

static int parse_stream(const std::string &text, float *out) {
    std::istringstream lines(text);
    int numbers = 0;
    while (lines >> out[numbers]) numbers++;
    return numbers / 3;
}

static int parse_in_place(const std::string &text, float *out) {
    const char *at = text.data(), *end = at + text.size();
    int numbers = 0;
    while (at < end) at = std::from_chars(at, end, out[numbers++]).ptr + 1;
    return numbers / 3;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int points = sized(30000, 100);
        auto frames = std::make_shared<std::vector<std::string>>();
        for (unsigned seed = 1; seed <= 4; seed++) frames->push_back(frame(points, seed));
        float *host, *device = device_array<float>(3 * (points + 1)), *seen = device_array<float>(CELLS * CELLS);
        CUDA(cudaMallocHost(&host, 3 * (points + 1) * sizeof(float)));
        int *cells = device_array<int>(CELLS * CELLS);
        auto at = std::make_shared<int>(0);
        return [=] {
            const std::string &text = (*frames)[++*at % 4];
            int read = remedy ? parse_in_place(text, host) : parse_stream(text, host);
            CUDA(cudaMemcpy(device, host, 3 * read * sizeof(float), cudaMemcpyHostToDevice));
            count_points<<<(read + 255) / 256, 256>>>(device, read, cells);
            fade<<<CELLS * CELLS / 256, 256>>>(cells, seen);
        };
    });
}
