// A synthesizer adds 48 oscillators for each sample. It has played for ten minutes, and time counts from its start.
//
// Cause: sinf of so many radians takes the slow path, with its table and products of 64 bits. Remedy: whole turns are taken off
// first, and sinpif has what is left.
#include "corpus.h"

__global__ void play(const float *pitch, const float *volume, float *sound, int samples, int voices, float began) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= samples) return;
    float t = began + i / 48000.0f, sum = 0;
    for (int voice = 0; voice < voices; voice++) sum += volume[voice] * sinf(6.2831853f * pitch[voice] * t);
    sound[i] = sum;
}

__global__ void play_turns(const float *pitch, const float *volume, float *sound, int samples, int voices, float began) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= samples) return;
    float t = began + i / 48000.0f, sum = 0;
    for (int voice = 0; voice < voices; voice++) {
        float turns = pitch[voice] * t;
        sum += volume[voice] * sinpif(2 * (turns - floorf(turns)));
    }
    sound[i] = sum;
}

__global__ void limit(float *sound, int samples) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < samples) sound[i] = tanhf(0.2f * sound[i]);
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int samples = sized(1 << 22, 1 << 8), voices = sized(48, 4);
        std::vector<float> pitches(voices), volumes(voices);
        for (int i = 0; i < voices; i++) pitches[i] = 55.0f * (i + 1), volumes[i] = 1.0f / (i + 1);
        float *pitch = device_array<float>(voices), *volume = device_array<float>(voices), *sound = device_array<float>(samples);
        CUDA(cudaMemcpy(pitch, pitches.data(), voices * sizeof(float), cudaMemcpyHostToDevice));
        CUDA(cudaMemcpy(volume, volumes.data(), voices * sizeof(float), cudaMemcpyHostToDevice));
        auto began = std::make_shared<float>(600.0f);
        return [=] {
            *began += 1.0f;
            if (remedy) play_turns<<<(samples + 255) / 256, 256>>>(pitch, volume, sound, samples, voices, *began);
            else play<<<(samples + 255) / 256, 256>>>(pitch, volume, sound, samples, voices, *began);
            limit<<<(samples + 255) / 256, 256>>>(sound, samples);
        };
    });
}
