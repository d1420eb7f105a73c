#pragma once
// The kernels of crates/gpu's tensors. One file for each element type instantiates them; scripts/ptx.sh compiles those.
//
// Values are stored as they are and computed with as `float` (`int` for i32); sums of i32 are 64 bits wide. Operations are
// chosen by a parameter: all threads take the same way, and the kernels are bound by memory.

using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;
using i64 = long long;

// Element types: how a value is stored, computed with, and summed.
struct F32 {
    using Stored = float;
    using Value = float;
    using Sum = float;
    static __device__ float load(float x) { return x; }
    static __device__ float store(float x) { return x; }
};

struct F16 {
    using Stored = u16;
    using Value = float;
    using Sum = float;
    static __device__ float load(u16 x) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));
        return value;
    }
    static __device__ u16 store(float x) {
        u16 bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
        return bits;
    }
};

struct BF16 {
    using Stored = u16;
    using Value = float;
    using Sum = float;
    static __device__ float load(u16 x) { return __uint_as_float(u32(x) << 16); }
    // To the nearest, ties to even; NaN stays NaN.
    static __device__ u16 store(float x) {
        u32 bits = __float_as_uint(x);
        if (x != x) return u16(bits >> 16 | 0x40);
        return u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
};

struct I32 {
    using Stored = int;
    using Value = int;
    using Sum = i64;
    static __device__ int load(int x) { return x; }
    static __device__ int store(i64 x) { return int(x); }
};

// 16 bytes of elements: what a thread loads and stores at once.
template <typename T> struct alignas(16) Vector {
    static constexpr u32 SIZE = 16 / sizeof(typename T::Stored);
    typename T::Stored at[SIZE];
};

__device__ u64 thread_index() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ u64 thread_count() { return u64(gridDim.x) * blockDim.x; }

// Where the element `index` of a shape lies in up to two strided tensors.
struct Layout {
    u32 rank;
    u32 unused;
    u64 shape[6];
    i64 strides[2][6];
};

__device__ void offsets(const Layout& layout, u64 index, i64& a, i64& b) {
    a = b = 0;
    for (int axis = int(layout.rank) - 1; axis >= 0; axis--) {
        u64 at = index % layout.shape[axis];
        index /= layout.shape[axis];
        a += i64(at) * layout.strides[0][axis];
        b += i64(at) * layout.strides[1][axis];
    }
}

enum Binary { ADD, SUBTRACT, MULTIPLY, DIVIDE, MAXIMUM, MINIMUM };
enum Unary { AFFINE, EXP, LN, SQRT, TANH, SIGMOID, RELU, GELU, ABS, RECIPROCAL };
enum Reduction { SUM, MEAN, LARGEST, SMALLEST };

// NaN if either is.
template <typename V> __device__ V larger(V a, V b) { return a > b || a != a ? a : b; }
template <typename V> __device__ V smaller(V a, V b) { return a < b || a != a ? a : b; }

__device__ float divide(float a, float b) { return __fdiv_rn(a, b); }
// As Rust's wrapping division; by zero gives zero.
__device__ int divide(int a, int b) { return b == 0 ? 0 : b == -1 ? int(0u - u32(a)) : a / b; }
__device__ float plus(float a, float b) { return a + b; }
__device__ int plus(int a, int b) { return int(u32(a) + u32(b)); }
__device__ float minus(float a, float b) { return a - b; }
__device__ int minus(int a, int b) { return int(u32(a) - u32(b)); }
__device__ float times(float a, float b) { return a * b; }
__device__ int times(int a, int b) { return int(u32(a) * u32(b)); }

template <typename V> __device__ V binary(u32 op, V a, V b) {
    switch (op) {
    case ADD: return plus(a, b);
    case SUBTRACT: return minus(a, b);
    case MULTIPLY: return times(a, b);
    case DIVIDE: return divide(a, b);
    case MAXIMUM: return larger(a, b);
    default: return smaller(a, b);
    }
}

__device__ float unary(u32 op, float x, float scale, float shift) {
    switch (op) {
    case AFFINE: return fmaf(scale, x, shift);
    case EXP: return expf(x);
    case LN: return logf(x);
    case SQRT: return sqrtf(x);
    case TANH: return tanhf(x);
    case SIGMOID: return 1.0f / (1.0f + expf(-x));
    case RELU: return x < 0.0f ? 0.0f : x;
    case GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case ABS: return fabsf(x);
    default: return 1.0f / x;
    }
}

__device__ int unary(u32 op, int x, int scale, int shift) {
    switch (op) {
    case RELU: return x < 0 ? 0 : x;
    case ABS: return x < 0 ? minus(0, x) : x;
    default: return plus(times(scale, x), shift);
    }
}

// out[i] = a[i] op b[i]
template <typename T>
__device__ void binary_contiguous(u32 op, u64 n, const typename T::Stored* a, const typename T::Stored* b,
                                  typename T::Stored* out) {
    using V = Vector<T>;
    u64 vectors = n / V::SIZE;
    for (u64 i = thread_index(); i < vectors; i += thread_count()) {
        V x = reinterpret_cast<const V*>(a)[i], y = reinterpret_cast<const V*>(b)[i], z;
#pragma unroll
        for (u32 k = 0; k < V::SIZE; k++) z.at[k] = T::store(binary(op, T::load(x.at[k]), T::load(y.at[k])));
        reinterpret_cast<V*>(out)[i] = z;
    }
    u64 last = vectors * V::SIZE + thread_index();
    if (last < n) out[last] = T::store(binary(op, T::load(a[last]), T::load(b[last])));
}

// The same with any strides, 0 for what is repeated.
template <typename T>
__device__ void binary_strided(u32 op, u64 n, const Layout& layout, const typename T::Stored* a,
                               const typename T::Stored* b, typename T::Stored* out) {
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        i64 at_a, at_b;
        offsets(layout, i, at_a, at_b);
        out[i] = T::store(binary(op, T::load(a[at_a]), T::load(b[at_b])));
    }
}

// out[i] = op(in[i])
template <typename T>
__device__ void unary_contiguous(u32 op, u64 n, typename T::Value scale, typename T::Value shift,
                                 const typename T::Stored* in, typename T::Stored* out) {
    using V = Vector<T>;
    u64 vectors = n / V::SIZE;
    for (u64 i = thread_index(); i < vectors; i += thread_count()) {
        V x = reinterpret_cast<const V*>(in)[i], y;
#pragma unroll
        for (u32 k = 0; k < V::SIZE; k++) y.at[k] = T::store(unary(op, T::load(x.at[k]), scale, shift));
        reinterpret_cast<V*>(out)[i] = y;
    }
    u64 last = vectors * V::SIZE + thread_index();
    if (last < n) out[last] = T::store(unary(op, T::load(in[last]), scale, shift));
}

// out = the elements of a strided tensor in order.
template <typename T>
__device__ void copy_strided(u64 n, const Layout& layout, const typename T::Stored* in, typename T::Stored* out) {
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        i64 at, unused;
        offsets(layout, i, at, unused);
        out[i] = in[at];
    }
}

template <typename T> __device__ void fill(u64 n, typename T::Stored value, typename T::Stored* out) {
    for (u64 i = thread_index(); i < n; i += thread_count()) out[i] = value;
}

template <typename S> __device__ S combine(u32 op, S a, S b) {
    return op <= MEAN ? a + b : op == LARGEST ? larger(a, b) : smaller(a, b);
}

// The sum of nothing; for the extrema some element of the row.
template <typename S> __device__ S start_value(u32 op, S first) { return op <= MEAN ? S(0) : first; }

// One value for the whole block, in its first thread.
template <typename S> __device__ S combine_block(u32 op, S value) {
    __shared__ S warps[32];
    for (u32 distance = 16; distance > 0; distance /= 2)
        value = combine(op, value, __shfl_xor_sync(0xffffffffu, value, distance));
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    for (u32 warp = 1; warp < blockDim.x / 32; warp++) value = combine(op, threadIdx.x == 0 ? value : warps[0], warps[warp]);
    return value;
}

__device__ float mean_of(float sum, u64 count) { return sum / float(count); }
__device__ i64 mean_of(i64 sum, u64 count) { return sum / i64(count); }

// One value for each row of `length` elements: block (split, row) combines a part of the row into
// partial[row * gridDim.x + split], or if there is one part only, the whole row into out[row].
template <typename T>
__device__ void reduce_rows(u32 op, u64 rows, u64 length, const typename T::Stored* in, typename T::Sum* partial,
                            typename T::Stored* out) {
    using V = Vector<T>;
    using S = typename T::Sum;
    u64 row = u64(blockIdx.z) * gridDim.y + blockIdx.y;
    if (row >= rows) return;
    const typename T::Stored* from = in + row * length;
    u64 part = ((length + gridDim.x - 1) / gridDim.x + V::SIZE - 1) / V::SIZE * V::SIZE;
    u64 begin = part * blockIdx.x < length ? part * blockIdx.x : length;
    u64 end = begin + part < length ? begin + part : length;
    S value = start_value(op, S(T::load(from[0])));
    // Loads are 16 bytes wide where the row begins at such an address.
    u64 middle = begin;
    if (reinterpret_cast<u64>(from) % 16 == 0) {
        u64 vectors = (end - begin) / V::SIZE;
        S others[V::SIZE];
#pragma unroll
        for (u32 k = 0; k < V::SIZE; k++) others[k] = value;
        const V* wide = reinterpret_cast<const V*>(from + begin);
#pragma unroll 4
        for (u64 i = threadIdx.x; i < vectors; i += blockDim.x) {
            V x = wide[i];
#pragma unroll
            for (u32 k = 0; k < V::SIZE; k++) others[k] = combine(op, others[k], S(T::load(x.at[k])));
        }
#pragma unroll
        for (u32 k = 0; k < V::SIZE; k++) value = combine(op, value, others[k]);
        middle = begin + vectors * V::SIZE;
    }
    for (u64 i = middle + threadIdx.x; i < end; i += blockDim.x) value = combine(op, value, S(T::load(from[i])));
    value = combine_block(op, value);
    if (threadIdx.x != 0) return;
    if (gridDim.x > 1) partial[row * gridDim.x + blockIdx.x] = value;
    else out[row] = T::store(op == MEAN ? mean_of(value, length) : value);
}

// out[row] from the parts of each row.
template <typename T>
__device__ void reduce_parts(u32 op, u64 rows, u64 length, u32 parts, const typename T::Sum* partial,
                             typename T::Stored* out) {
    using S = typename T::Sum;
    u64 row = u64(blockIdx.y) * gridDim.x + blockIdx.x;
    if (row >= rows) return;
    S value = start_value(op, partial[row * parts]);
    for (u32 i = threadIdx.x; i < parts; i += blockDim.x) value = combine(op, value, partial[row * parts + i]);
    value = combine_block(op, value);
    if (threadIdx.x == 0) out[row] = T::store(op == MEAN ? mean_of(value, length) : value);
}

// One value for each column of [outer, length, inner]: a thread for each of outer x inner.
template <typename T>
__device__ void reduce_columns(u32 op, u64 outer, u64 length, u64 inner, const typename T::Stored* in,
                               typename T::Stored* out) {
    using S = typename T::Sum;
    for (u64 i = thread_index(); i < outer * inner; i += thread_count()) {
        const typename T::Stored* from = in + i / inner * length * inner + i % inner;
        S value = start_value(op, S(T::load(from[0])));
        for (u64 k = 0; k < length; k++) value = combine(op, value, S(T::load(from[k * inner])));
        out[i] = T::store(op == MEAN ? mean_of(value, length) : value);
    }
}

// Index of the first largest element of each row; NaN counts as largest.
template <typename T>
__device__ void argmax_rows(u64 rows, u64 length, const typename T::Stored* in, int* out) {
    __shared__ typename T::Value values[32];
    __shared__ u64 places[32];
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const typename T::Stored* from = in + row * length;
        typename T::Value best = T::load(from[0]);
        u64 place = 0;
        auto meet = [&](typename T::Value value, u64 at) {
            bool better = value > best || (value != value && best == best);
            bool same = value == best || (value != value && best != best);
            if (better || (same && at < place)) {
                best = value;
                place = at;
            }
        };
        for (u64 i = threadIdx.x; i < length; i += blockDim.x) meet(T::load(from[i]), i);
        for (u32 distance = 16; distance > 0; distance /= 2)
            meet(__shfl_xor_sync(0xffffffffu, best, distance), __shfl_xor_sync(0xffffffffu, place, distance));
        __syncthreads();
        if (threadIdx.x % 32 == 0) {
            values[threadIdx.x / 32] = best;
            places[threadIdx.x / 32] = place;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            for (u32 warp = 0; warp < blockDim.x / 32; warp++) meet(values[warp], places[warp]);
            out[row] = int(place);
        }
        __syncthreads();
    }
}

// exp(x - max) / sum for each row, a block for each.
template <typename T> __device__ void softmax_rows(u64 rows, u64 length, const typename T::Stored* in, typename T::Stored* out) {
    __shared__ float shared;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const typename T::Stored* from = in + row * length;
        typename T::Stored* to = out + row * length;
        float most = T::load(from[0]);
        for (u64 i = threadIdx.x; i < length; i += blockDim.x) most = larger(most, T::load(from[i]));
        most = combine_block(LARGEST, most);
        if (threadIdx.x == 0) shared = most;
        __syncthreads();
        most = shared;
        float sum = 0;
        for (u64 i = threadIdx.x; i < length; i += blockDim.x) sum += expf(T::load(from[i]) - most);
        sum = combine_block(SUM, sum);
        if (threadIdx.x == 0) shared = 1.0f / sum;
        __syncthreads();
        float scale = shared;
        for (u64 i = threadIdx.x; i < length; i += blockDim.x) to[i] = T::store(expf(T::load(from[i]) - most) * scale);
        __syncthreads();
    }
}

// c = a b for each of a batch, row-major: [m, k] x [k, n]. A block of 256 threads computes 64 x 64, a thread 4 x 4.
template <typename T>
__device__ void matmul(u32 m, u32 n, u32 k, u64 stride_a, u64 stride_b, const typename T::Stored* a,
                       const typename T::Stored* b, typename T::Stored* c) {
    constexpr u32 TILE = 64, DEPTH = 16;
    using V = typename T::Value;
    __shared__ V tile_a[DEPTH][TILE + 1];
    __shared__ V tile_b[DEPTH][TILE];
    a += stride_a * blockIdx.z;
    b += stride_b * blockIdx.z;
    c += u64(m) * n * blockIdx.z;
    u32 row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    u32 x = threadIdx.x % 16, y = threadIdx.x / 16;
    V sum[4][4] = {};
    for (u32 depth = 0; depth < k; depth += DEPTH) {
        for (u32 i = threadIdx.x; i < TILE * DEPTH; i += 256) {
            u32 r = i / DEPTH, d = i % DEPTH;
            tile_a[d][r] = row + r < m && depth + d < k ? T::load(a[u64(row + r) * k + depth + d]) : V(0);
            u32 e = i / TILE, s = i % TILE;
            tile_b[e][s] = depth + e < k && column + s < n ? T::load(b[u64(depth + e) * n + column + s]) : V(0);
        }
        __syncthreads();
#pragma unroll
        for (u32 d = 0; d < DEPTH; d++) {
            V left[4], right[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                left[i] = tile_a[d][y + 16 * i];
                right[i] = tile_b[d][x + 16 * i];
            }
#pragma unroll
            for (u32 i = 0; i < 4; i++)
#pragma unroll
                for (u32 j = 0; j < 4; j++) sum[i][j] = plus(sum[i][j], times(left[i], right[j]));
        }
        __syncthreads();
    }
    for (u32 i = 0; i < 4; i++)
        for (u32 j = 0; j < 4; j++)
            if (row + y + 16 * i < m && column + x + 16 * j < n)
                c[u64(row + y + 16 * i) * n + column + x + 16 * j] = T::store(sum[i][j]);
}

// As Rust's `as`: to the nearest; of i32, toward zero and saturating, and NaN gives zero.
template <typename To, typename From> __device__ typename To::Stored cast(typename From::Stored x) {
    return To::store(typename To::Value(From::load(x)));
}
template <> __device__ int cast<I32, F32>(float x) { return __float2int_rz(x); }
template <> __device__ int cast<I32, F16>(u16 x) { return __float2int_rz(F16::load(x)); }
template <> __device__ int cast<I32, BF16>(u16 x) { return __float2int_rz(BF16::load(x)); }

#define CAST(from, FROM, to, TO)                                                                                       \
    extern "C" __global__ void cast_##from##_##to(u64 n, const FROM::Stored* in, TO::Stored* out) {                    \
        for (u64 i = thread_index(); i < n; i += thread_count()) out[i] = cast<TO, FROM>(in[i]);                       \
    }

#define KERNELS(name, T)                                                                                               \
    extern "C" __global__ void binary_##name(u32 op, u64 n, const T::Stored* a, const T::Stored* b, T::Stored* out) {  \
        binary_contiguous<T>(op, n, a, b, out);                                                                        \
    }                                                                                                                  \
    extern "C" __global__ void binary_strided_##name(u32 op, u64 n, Layout layout, const T::Stored* a,                 \
                                                     const T::Stored* b, T::Stored* out) {                             \
        binary_strided<T>(op, n, layout, a, b, out);                                                                   \
    }                                                                                                                  \
    extern "C" __global__ void unary_##name(u32 op, u64 n, T::Value scale, T::Value shift, const T::Stored* in,        \
                                            T::Stored* out) {                                                          \
        unary_contiguous<T>(op, n, scale, shift, in, out);                                                             \
    }                                                                                                                  \
    extern "C" __global__ void copy_strided_##name(u64 n, Layout layout, const T::Stored* in, T::Stored* out) {        \
        copy_strided<T>(n, layout, in, out);                                                                           \
    }                                                                                                                  \
    extern "C" __global__ void fill_##name(u64 n, T::Stored value, T::Stored* out) { fill<T>(n, value, out); }         \
    extern "C" __global__ void reduce_rows_##name(u32 op, u64 rows, u64 length, const T::Stored* in, T::Sum* partial,  \
                                                  T::Stored* out) {                                                    \
        reduce_rows<T>(op, rows, length, in, partial, out);                                                            \
    }                                                                                                                  \
    extern "C" __global__ void reduce_parts_##name(u32 op, u64 rows, u64 length, u32 parts, const T::Sum* partial,     \
                                                   T::Stored* out) {                                                   \
        reduce_parts<T>(op, rows, length, parts, partial, out);                                                        \
    }                                                                                                                  \
    extern "C" __global__ void reduce_columns_##name(u32 op, u64 outer, u64 length, u64 inner, const T::Stored* in,    \
                                                     T::Stored* out) {                                                 \
        reduce_columns<T>(op, outer, length, inner, in, out);                                                          \
    }                                                                                                                  \
    extern "C" __global__ void argmax_##name(u64 rows, u64 length, const T::Stored* in, int* out) {                    \
        argmax_rows<T>(rows, length, in, out);                                                                         \
    }                                                                                                                  \
    extern "C" __global__ void matmul_##name(u32 m, u32 n, u32 k, u64 stride_a, u64 stride_b, const T::Stored* a,      \
                                             const T::Stored* b, T::Stored* c) {                                       \
        matmul<T>(m, n, k, stride_a, stride_b, a, b, c);                                                               \
    }

#define SOFTMAX(name, T)                                                                                               \
    extern "C" __global__ void softmax_##name(u64 rows, u64 length, const T::Stored* in, T::Stored* out) {             \
        softmax_rows<T>(rows, length, in, out);                                                                        \
    }
