// A stencil of doubles, insertion into a hash table, an n-body tile and an 8x8 DCT: kernels that the predictions got wrong
// most. The argument scales the problem: 1 is small enough for the CPU device.
//
//   code [SCALE]
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
struct Box { int nx, ny, nz; double c0, c1; };
__global__ void stencil7(Box box, const double* in, double* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= box.nx - 1 || y >= box.ny - 1) return;
    long plane = (long)box.nx * box.ny;
    for (int z = 1; z < box.nz - 1; ++z) {
        long at = z * plane + (long)y * box.nx + x;
        out[at] = box.c0 * in[at] + box.c1 * (in[at-1]+in[at+1]+in[at-box.nx]+in[at+box.nx]+in[at-plane]+in[at+plane]);
    }
}
__global__ void insert(unsigned* table, unsigned mask, const unsigned* keys, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned key = keys[i], slot = (key * 2654435761u) & mask;
    while (true) {
        unsigned old = atomicCAS(&table[slot], 0xffffffffu, key);
        if (old == 0xffffffffu || old == key) return;
        slot = (slot + 1) & mask;
    }
}
__global__ void nbody(const float4* p, float4* a, int n) {
    __shared__ float4 tile[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = p[i]; float ax = 0, ay = 0, az = 0;
    for (int base = 0; base < n; base += 128) {
        tile[threadIdx.x] = p[base + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < 128; ++k) {
            float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
            float d = dx*dx + dy*dy + dz*dz + 1e-6f, inv = rsqrtf(d), s = tile[k].w * inv * inv * inv;
            ax += dx*s; ay += dy*s; az += dz*s;
        }
        __syncthreads();
    }
    a[i] = make_float4(ax, ay, az, 0);
}
__global__ void dct8(const float* in, float* out, int width) {
    __shared__ float t[8][8];
    int x = threadIdx.x, y = threadIdx.y;
    int at = (blockIdx.y * 8 + y) * width + blockIdx.x * 8 + x;
    t[y][x] = in[at];
    __syncthreads();
    float s = 0;
    for (int k = 0; k < 8; ++k) s += t[y][k] * cospif((2*k+1) * x / 16.0f);
    __syncthreads(); t[y][x] = s; __syncthreads();
    s = 0;
    for (int k = 0; k < 8; ++k) s += t[k][x] * cospif((2*k+1) * y / 16.0f);
    out[at] = s;
}
int main(int argc, char** argv) {
    const int scale = argc > 1 ? atoi(argv[1]) : 1;
    const int side = 64 * scale;
    const size_t volume = sizeof(double) * side * side * side;
    double *from, *to;
    cudaMalloc(&from, volume);
    cudaMalloc(&to, volume);
    cudaMemset(from, 0, volume);
    for (int i = 0; i < 10; ++i) stencil7<<<dim3(side / 32, side / 8), dim3(32, 8)>>>(Box{side, side, side, 0.5, 0.1}, from, to);

    const int keys = (1 << 14) * scale * scale;
    const unsigned slots = 4 * keys;
    unsigned *table, *on_device;
    cudaMalloc(&table, 4ul * slots);
    cudaMalloc(&on_device, 4ul * keys);
    cudaMemset(table, 0xff, 4ul * slots);
    unsigned* numbers = (unsigned*)malloc(4ul * keys);
    for (int i = 0; i < keys; ++i) numbers[i] = rand();
    cudaMemcpy(on_device, numbers, 4ul * keys, cudaMemcpyHostToDevice);
    for (int i = 0; i < 5; ++i) insert<<<keys / 256, 256>>>(table, slots - 1, on_device, keys - 100 * i);

    const int bodies = 1024 * scale;
    float4 *places, *forces;
    cudaMalloc(&places, 16ul * bodies);
    cudaMalloc(&forces, 16ul * bodies);
    cudaMemset(places, 1, 16ul * bodies);
    for (int i = 0; i < 3; ++i) nbody<<<bodies / 128, 128>>>(places, forces, bodies);

    const int width = 256 * scale;
    float *image, *coefficients;
    cudaMalloc(&image, 4ul * width * width);
    cudaMalloc(&coefficients, 4ul * width * width);
    cudaMemset(image, 0, 4ul * width * width);
    for (int i = 0; i < 5; ++i) dct8<<<dim3(width / 8, width / 8), dim3(8, 8)>>>(image, coefficients, width);

    const cudaError_t error = cudaDeviceSynchronize();
    printf("%s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}
