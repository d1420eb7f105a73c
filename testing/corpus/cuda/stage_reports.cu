// A pipeline of 24 stages reports the statistics of each stage: the host writes them down as lines of text.
//
// Cause: the stream calls the host after each stage (cudaLaunchHostFunc), and the next stage waits until the line is written.
// Remedy: one call for all stages of a step.
#include "corpus.h"
#include <string>

struct Report {
    float *numbers;
    int first, last;
    std::vector<std::string> lines;
};

__global__ void stage(const float *in, float *out, float *numbers, int n, float weight) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = in[i] * weight + 0.5f * in[(i + 1) % n] + 0.01f;
    out[i] = value;
    if (i < 32) numbers[i] = value;
}

void write_lines(void *of) {
    Report &report = *(Report *)of;
    for (int stage = report.first; stage < report.last; stage++) {
        std::string line = "stage " + std::to_string(stage);
        for (int i = 0; i < 32; i++) {
            char number[32];
            snprintf(number, sizeof number, " %.6g", report.numbers[stage * 32 + i]);
            line += number;
        }
        report.lines[stage] = line;
    }
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 22, 1 << 8), stages = sized(24, 3);
        float *fields[] = {device_array<float>(n), device_array<float>(n)}, *numbers;
        CUDA(cudaMallocHost(&numbers, stages * 32 * sizeof(float)));
        std::vector<std::shared_ptr<Report>> reports;
        for (int i = 0; i < stages; i++) reports.push_back(std::make_shared<Report>(Report{numbers, i, i + 1, {}}));
        reports.push_back(std::make_shared<Report>(Report{numbers, 0, stages, {}}));
        for (auto &report : reports) report->lines.resize(stages);
        float *one = fields[0], *other = fields[1];
        return [=] {
            for (int i = 0; i < stages; i++) {
                const float *in = i % 2 ? other : one;
                stage<<<n / 256, 256>>>(in, i % 2 ? one : other, numbers + i * 32, n, 0.45f);
                if (!remedy) CUDA(cudaLaunchHostFunc(0, write_lines, reports[i].get()));
            }
            if (remedy) CUDA(cudaLaunchHostFunc(0, write_lines, reports[stages].get()));
        };
    });
}
