// Textures and surfaces: linear memory, arrays of two dimensions, filtering, clamping, and writing through a surface.
#include "check.h"
#include <algorithm>

__global__ void read_linear(cudaTextureObject_t texture, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex1Dfetch<float>(texture, n - 1 - i);
}

__global__ void read_plane(cudaTextureObject_t texture, float *out, int width, int height, float dx, float dy) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[y * width + x] = tex2D<float>(texture, x + dx, y + dy);
}

__global__ void write_plane(cudaSurfaceObject_t surface, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) surf2Dwrite(float(x * 1000 + y), surface, x * int(sizeof(float)), y);
}

static cudaTextureDesc describe(cudaTextureFilterMode filter, cudaTextureAddressMode mode) {
    cudaTextureDesc description = {};
    description.addressMode[0] = description.addressMode[1] = mode;
    description.filterMode = filter;
    description.readMode = cudaReadModeElementType;
    return description;
}

int main() {
    Random random{6};
    const int n = 3000;
    std::vector<float> values = random.floats(n), reversed(values.rbegin(), values.rend());
    Device<float> data(values), out(n);
    cudaResourceDesc linear = {};
    linear.resType = cudaResourceTypeLinear;
    linear.res.linear.devPtr = data.data;
    linear.res.linear.desc = cudaCreateChannelDesc<float>();
    linear.res.linear.sizeInBytes = n * sizeof(float);
    cudaTextureDesc plain = describe(cudaFilterModePoint, cudaAddressModeClamp);
    cudaTextureObject_t texture;
    CUDA(cudaCreateTextureObject(&texture, &linear, &plain, nullptr));
    LAUNCH(read_linear<<<24, 128>>>(texture, out.data, n));
    expect_equal("linear", out.host(), reversed);
    CUDA(cudaDestroyTextureObject(texture));

    const int width = 61, height = 43;
    std::vector<float> plane = random.floats(width * height), right(width * height);
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CUDA(cudaMallocArray(&array, &format, width, height, cudaArraySurfaceLoadStore));
    CUDA(cudaMemcpy2DToArray(array, 0, 0, plane.data(), width * sizeof(float), width * sizeof(float), height,
                             cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    Device<float> shifted(width * height);
    dim3 grid(4, 6), block(16, 8);
    auto at = [&](int x, int y) {
        return plane[std::clamp(y, 0, height - 1) * width + std::clamp(x, 0, width - 1)];
    };

    // Points: 2 to the right, 1 up, clamped at the borders.
    CUDA(cudaCreateTextureObject(&texture, &resource, &plain, nullptr));
    LAUNCH(read_plane<<<grid, block>>>(texture, shifted.data, width, height, 2.5f, -0.5f));
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) right[y * width + x] = at(x + 2, y - 1);
    expect_equal("points", shifted.host(), right);
    CUDA(cudaDestroyTextureObject(texture));

    // Filtered: a quarter to the right and half a row down. The weights have eight bits of fraction: these are exact.
    cudaTextureDesc smooth = describe(cudaFilterModeLinear, cudaAddressModeClamp);
    CUDA(cudaCreateTextureObject(&texture, &resource, &smooth, nullptr));
    LAUNCH(read_plane<<<grid, block>>>(texture, shifted.data, width, height, 0.75f, 1.0f));
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            right[y * width + x] = 0.5f * (0.75f * at(x, y) + 0.25f * at(x + 1, y)) +
                                   0.5f * (0.75f * at(x, y + 1) + 0.25f * at(x + 1, y + 1));
    expect_equal("filtered", shifted.host(), right, 1e-6);
    CUDA(cudaDestroyTextureObject(texture));

    cudaSurfaceObject_t surface;
    CUDA(cudaCreateSurfaceObject(&surface, &resource));
    LAUNCH(write_plane<<<grid, block>>>(surface, width, height));
    CUDA(cudaDestroySurfaceObject(surface));
    std::vector<float> written(width * height);
    CUDA(cudaMemcpy2DFromArray(written.data(), width * sizeof(float), array, 0, 0, width * sizeof(float), height,
                               cudaMemcpyDeviceToHost));
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) right[y * width + x] = float(x * 1000 + y);
    expect_equal("written", written, right);
    CUDA(cudaFreeArray(array));
    return done();
}
