// Kernels of the example `schedule`. Sums are made in a fixed order, so results are the same bit by bit however
// kernels overlap.
//
// kernels.ptx: scripts/nvrtc_compile.py LIBNVRTC --gpu-architecture=compute_75 kernels.cu, with the library of
// nvidia-cuda-nvrtc-cu12 12.0.140

constexpr unsigned THREADS = 256;

__device__ unsigned self() { return blockIdx.x * blockDim.x + threadIdx.x; }

// The sum over a block of THREADS threads, for its first thread.
__device__ float block_sum(float value) {
    __shared__ float values[THREADS];
    values[threadIdx.x] = value;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
    }
    return values[0];
}

extern "C" __global__ void square(const float* x, float* y, unsigned n) {
    if (self() < n) y[self()] = x[self()] * x[self()];
}

extern "C" __global__ void partial_difference(const float* x, const float* y, float* out, unsigned n) {
    float sum = 0;
    for (unsigned i = self(); i < n; i += gridDim.x * blockDim.x) sum += x[i] - y[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void partial_sum(const float* x, float* out, unsigned n) {
    float sum = 0;
    for (unsigned i = self(); i < n; i += gridDim.x * blockDim.x) sum += x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void divide(const float* x, const float* sum, float* y, unsigned n) {
    if (self() < n) y[self()] = x[self()] / *sum;
}

// Price of a call for strike 1, rate 0.05, volatility 0.3, one year.
extern "C" __global__ void black_scholes(const float* price, float* value, unsigned n) {
    if (self() >= n) return;
    double s = price[self()], d1 = (log(s) + 0.095) / 0.3, d2 = d1 - 0.3;
    double first = 0.5 * erfc(-d1 * 0.70710678118654752), second = 0.5 * erfc(-d2 * 0.70710678118654752);
    value[self()] = static_cast<float>(s * first - exp(-0.05) * second);
}

__device__ float pixel(const float* image, int size, int x, int y) {
    return image[min(max(y, 0), size - 1) * size + min(max(x, 0), size - 1)];
}

extern "C" __global__ void blur(const float* in, float* out, int size, int radius) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= size || y >= size) return;
    float sum = 0;
    for (int dy = -radius; dy <= radius; dy++)
        for (int dx = -radius; dx <= radius; dx++) sum += pixel(in, size, x + dx, y + dy);
    out[y * size + x] = sum / static_cast<float>((2 * radius + 1) * (2 * radius + 1));
}

extern "C" __global__ void sobel(const float* in, float* out, int size) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= size || y >= size) return;
    float across = 0, down = 0;
    for (int d = -1; d <= 1; d++) {
        float weight = d == 0 ? 2.0f : 1.0f;
        across += weight * (pixel(in, size, x + 1, y + d) - pixel(in, size, x - 1, y + d));
        down += weight * (pixel(in, size, x + d, y + 1) - pixel(in, size, x + d, y - 1));
    }
    out[y * size + x] = sqrtf(across * across + down * down);
}

// The greatest of numbers that are not negative, as bits; `out` begins as 0.
extern "C" __global__ void maximum(const float* x, unsigned* out, unsigned n) {
    unsigned most = 0;
    for (unsigned i = self(); i < n; i += gridDim.x * blockDim.x) most = max(most, __float_as_uint(x[i]));
    atomicMax(out, most);
}

// The bits of the least one, taken from the greatest word.
extern "C" __global__ void minimum(const float* x, unsigned* out, unsigned n) {
    unsigned most = 0;
    for (unsigned i = self(); i < n; i += gridDim.x * blockDim.x) most = max(most, ~__float_as_uint(x[i]));
    atomicMax(out, most);
}

extern "C" __global__ void extend(float* x, const unsigned* low, const unsigned* high, unsigned n) {
    if (self() >= n) return;
    float least = __uint_as_float(~*low), most = __uint_as_float(*high);
    x[self()] = fminf(5.0f * (x[self()] - least) / (most - least), 1.0f);
}

extern "C" __global__ void unsharpen(const float* in, const float* blurred, float* out, float amount, unsigned n) {
    if (self() >= n) return;
    float value = in[self()] * (1.0f + amount) - blurred[self()] * amount;
    out[self()] = fminf(fmaxf(value, 0.0f), 1.0f);
}

extern "C" __global__ void combine(const float* a, const float* b, const float* mask, float* out, unsigned n) {
    if (self() < n) out[self()] = a[self()] * mask[self()] + b[self()] * (1.0f - mask[self()]);
}

extern "C" __global__ void standardize(const float* x, float* y, unsigned n) {
    if (self() < n) y[self()] = (x[self()] - 0.5f) * 3.4641016f;
}

extern "C" __global__ void linear(const float* x, const float* w, const float* bias, float* out, unsigned rows,
                                  unsigned features, unsigned classes) {
    if (self() >= rows * classes) return;
    unsigned row = self() / classes, c = self() % classes;
    float sum = bias[c];
    for (unsigned f = 0; f < features; f++) sum += x[row * features + f] * w[c * features + f];
    out[self()] = sum;
}

extern "C" __global__ void softmax(float* x, unsigned rows, unsigned classes) {
    if (self() >= rows) return;
    float* row = x + self() * classes;
    float most = row[0], sum = 0;
    for (unsigned c = 1; c < classes; c++) most = fmaxf(most, row[c]);
    for (unsigned c = 0; c < classes; c++) sum += expf(row[c] - most);
    for (unsigned c = 0; c < classes; c++) row[c] = expf(row[c] - most) / sum;
}

extern "C" __global__ void add(const float* a, const float* b, float* out, unsigned n) {
    if (self() < n) out[self()] = a[self()] + b[self()];
}

// y = M x of a matrix of ones and zeros: the columns of the ones of each row.
extern "C" __global__ void gather(const unsigned* start, const unsigned* column, const float* x, float* y, unsigned n) {
    if (self() >= n) return;
    float sum = 0;
    for (unsigned at = start[self()]; at < start[self() + 1]; at++) sum += x[column[at]];
    y[self()] = sum;
}

// 3 x 3, with what is beyond the border as 0, and what is negative as 0.
extern "C" __global__ void convolve(const float* in, const float* w, float* out, int size, int from, int to) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, c = blockIdx.z;
    if (x >= size || y >= size || c >= to) return;
    float sum = 0;
    for (int i = 0; i < from; i++)
        for (int k = 0; k < 9; k++) {
            int u = x + k % 3 - 1, v = y + k / 3 - 1;
            if (u >= 0 && v >= 0 && u < size && v < size)
                sum += in[(i * size + v) * size + u] * w[(c * from + i) * 9 + k];
        }
    out[(c * size + y) * size + x] = fmaxf(sum, 0.0f);
}

// The greatest of each 2 x 2; `size` is that of the result.
extern "C" __global__ void pool(const float* in, float* out, int size) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, c = blockIdx.z;
    if (x >= size || y >= size) return;
    const float* corner = in + (c * 2 * size + 2 * y) * 2 * size + 2 * x;
    out[(c * size + y) * size + x] = fmaxf(fmaxf(corner[0], corner[1]), fmaxf(corner[2 * size], corner[2 * size + 1]));
}

// The mean of each channel, a block for each.
extern "C" __global__ void average(const float* in, float* out, unsigned pixels) {
    float sum = 0;
    for (unsigned i = threadIdx.x; i < pixels; i += blockDim.x) sum += in[blockIdx.x * pixels + i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum / static_cast<float>(pixels);
}
