// How far is each point of a volume from the nearest thing of a scene? Things are objects of classes with a common base.
//
// Cause: a virtual call for each thing: addresses are loaded, and nothing is inlined. Remedy: a tag and a switch.
#include "corpus.h"

struct Thing {
    __device__ virtual float distance(float x, float y, float z) const = 0;
};

struct Ball : Thing {
    float4 place;
    __device__ explicit Ball(float4 place) : place(place) {}
    __device__ float distance(float x, float y, float z) const override {
        x -= place.x, y -= place.y, z -= place.z;
        return sqrtf(x * x + y * y + z * z) - place.w;
    }
};

struct Floor : Thing {
    float4 place;
    __device__ explicit Floor(float4 place) : place(place) {}
    __device__ float distance(float x, float y, float z) const override { return fabsf(y - place.y) - place.w; }
};

struct Box : Thing {
    float4 place;
    __device__ explicit Box(float4 place) : place(place) {}
    __device__ float distance(float x, float y, float z) const override {
        return fmaxf(fmaxf(fabsf(x - place.x), fabsf(y - place.y)), fabsf(z - place.z)) - place.w;
    }
};

__global__ void furnish(Thing **things, const float4 *places, int count) {
    for (int i = 0; i < count; i++)
        if (i % 3 == 0) things[i] = new Ball(places[i]);
        else if (i % 3 == 1) things[i] = new Floor(places[i]);
        else things[i] = new Box(places[i]);
}

__global__ void nearest(Thing *const *things, int count, float *out, int side) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = i % side, y = i / side % side, z = i / side / side, best = 1e9f;
    for (int k = 0; k < count; k++) best = fminf(best, things[k]->distance(x, y, z));
    out[i] = best;
}

__global__ void nearest_place(const float4 *places, int count, float *out, int side) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = i % side, y = i / side % side, z = i / side / side, best = 1e9f;
    for (int k = 0; k < count; k++) {
        float4 place = places[k];
        float dx = x - place.x, dy = y - place.y, dz = z - place.z;
        switch (k % 3) {
        case 0: best = fminf(best, sqrtf(dx * dx + dy * dy + dz * dz) - place.w); break;
        case 1: best = fminf(best, fabsf(dy) - place.w); break;
        default: best = fminf(best, fmaxf(fmaxf(fabsf(dx), fabsf(dy)), fabsf(dz)) - place.w);
        }
    }
    out[i] = best;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int side = sized(256, 8), count = sized(96, 6), points = side * side * side;
        std::vector<float4> listed(count);
        for (int i = 0; i < count; i++) listed[i] = {float(i * 37 % side), float(i * 91 % side), float(i * 53 % side), 1.0f + i % 5};
        float4 *places = device_array<float4>(count);
        CUDA(cudaMemcpy(places, listed.data(), count * sizeof(float4), cudaMemcpyHostToDevice));
        Thing **things = device_array<Thing *>(count);
        furnish<<<1, 1>>>(things, places, count);
        float *out = device_array<float>(points);
        return [=] {
            if (remedy) nearest_place<<<points / 128, 128>>>(places, count, out, side);
            else nearest<<<points / 128, 128>>>(things, count, out, side);
        };
    });
}
