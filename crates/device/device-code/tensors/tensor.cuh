#pragma once
// The kernels of crates/kernels/gpu's tensors. One file for each element type instantiates them; scripts/device-code.sh compiles those.
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

// Vectors that a thread loads before it stores any: 16 elements are enough in flight to fill the memory's pipe. Of functions,
// whose code is long, half as many.
template <typename T> constexpr u32 EACH = 16 / Vector<T>::SIZE;
template <typename T> constexpr u32 EACH_OF_FUNCTIONS = EACH<T> / 2;

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
enum Unary { AFFINE, RELU, ABS, SQRT, RECIPROCAL };
enum Function { EXP, LN, TANH, SIGMOID, GELU };
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
    case RELU: return x < 0.0f ? 0.0f : x;
    case ABS: return fabsf(x);
    case SQRT: return sqrtf(x);
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

__device__ float function(u32 op, float x) {
    switch (op) {
    case EXP: return expf(x);
    case LN: return logf(x);
    case TANH: return tanhf(x);
    case SIGMOID: return 1.0f / (1.0f + expf(-x));
    default: return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    }
}

// Goes over the vectors of a thread: tile after tile, `AT_ONCE` vectors of a block's threads beside each other.
// `together(first, distance)` does as many at once, `single(i)` one, at the end.
template <u32 AT_ONCE, typename Together, typename Single>
__device__ void for_vectors(u64 vectors, Together together, Single single) {
    u64 tile = u64(blockDim.x) * AT_ONCE;
    for (u64 base = blockIdx.x * tile; base < vectors; base += gridDim.x * tile) {
        if (base + tile <= vectors) {
            together(base + threadIdx.x, blockDim.x);
        } else {
            for (u64 i = base + threadIdx.x; i < vectors; i += blockDim.x) single(i);
        }
    }
}

// out[i] = a[i] op b[i]
template <typename T>
__device__ void binary_contiguous(u32 op, u64 n, const typename T::Stored* a, const typename T::Stored* b,
                                  typename T::Stored* out) {
    using V = Vector<T>;
    u64 vectors = n / V::SIZE;
    const V *wide_a = reinterpret_cast<const V*>(a), *wide_b = reinterpret_cast<const V*>(b);
    V* wide_out = reinterpret_cast<V*>(out);
    auto compute = [op](V x, V y) {
        V z;
#pragma unroll
        for (u32 k = 0; k < V::SIZE; k++) z.at[k] = T::store(binary(op, T::load(x.at[k]), T::load(y.at[k])));
        return z;
    };
    for_vectors<EACH<T>>(
        vectors,
        [&](u64 first, u32 distance) {
            V x[EACH<T>], y[EACH<T>];
#pragma unroll
            for (u32 j = 0; j < EACH<T>; j++) {
                x[j] = wide_a[first + j * distance];
                y[j] = wide_b[first + j * distance];
            }
#pragma unroll
            for (u32 j = 0; j < EACH<T>; j++) wide_out[first + j * distance] = compute(x[j], y[j]);
        },
        [&](u64 i) { wide_out[i] = compute(wide_a[i], wide_b[i]); });
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
template <typename T, u32 AT_ONCE, typename Op>
__device__ void map_contiguous(u64 n, Op op, const typename T::Stored* in, typename T::Stored* out) {
    using V = Vector<T>;
    u64 vectors = n / V::SIZE;
    const V* wide_in = reinterpret_cast<const V*>(in);
    V* wide_out = reinterpret_cast<V*>(out);
    auto compute = [&](V x) {
        V y;
#pragma unroll
        for (u32 k = 0; k < V::SIZE; k++) y.at[k] = T::store(op(T::load(x.at[k])));
        return y;
    };
    for_vectors<AT_ONCE>(
        vectors,
        [&](u64 first, u32 distance) {
            V x[AT_ONCE];
#pragma unroll
            for (u32 j = 0; j < AT_ONCE; j++) x[j] = wide_in[first + j * distance];
#pragma unroll
            for (u32 j = 0; j < AT_ONCE; j++) wide_out[first + j * distance] = compute(x[j]);
        },
        [&](u64 i) { wide_out[i] = compute(wide_in[i]); });
    u64 last = vectors * V::SIZE + thread_index();
    if (last < n) out[last] = T::store(op(T::load(in[last])));
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

// How values are combined. A mean is a sum until its end.
struct Sum {
    template <typename S> static __device__ S combine(S a, S b) { return a + b; }
    template <typename S> static __device__ S start(S) { return S(0); }
};
struct Largest {
    template <typename S> static __device__ S combine(S a, S b) { return larger(a, b); }
    template <typename S> static __device__ S start(S first) { return first; }
};
struct Smallest {
    template <typename S> static __device__ S combine(S a, S b) { return smaller(a, b); }
    template <typename S> static __device__ S start(S first) { return first; }
};

// Calls work(Sum()) or its like.
template <typename Work> __device__ void with_operation(u32 op, Work work) {
    if (op <= MEAN) work(Sum());
    else if (op == LARGEST) work(Largest());
    else work(Smallest());
}

template <typename Op, typename S> __device__ S combine_warp(S value) {
    for (u32 distance = 16; distance > 0; distance /= 2)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
}

// One value for the whole block, in its first thread.
template <typename Op, typename S> __device__ S combine_block(S value) {
    __shared__ S warps[32];
    value = combine_warp<Op>(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0)
        for (u32 warp = 1; warp < blockDim.x / 32; warp++) value = Op::combine(value, warps[warp]);
    return value;
}

__device__ float mean_of(float sum, u64 count) { return sum / float(count); }
__device__ i64 mean_of(i64 sum, u64 count) { return sum / i64(count); }

template <typename T> __device__ typename T::Stored finish(u32 op, typename T::Sum value, u64 length) {
    return T::store(op == MEAN ? mean_of(value, length) : value);
}

// Combines the elements begin to end of a row, of which each of `threads` threads takes its share.
template <typename T, typename Op>
__device__ typename T::Sum combine_elements(const typename T::Stored* row, u64 begin, u64 end, u32 thread, u32 threads) {
    using V = Vector<T>;
    using S = typename T::Sum;
    S value = Op::start(S(T::load(row[0])));
    // Loads are 16 bytes wide where the part begins at such an address.
    const typename T::Stored* from = row + begin;
    u64 vectors = reinterpret_cast<u64>(from) % 16 == 0 ? (end - begin) / V::SIZE : 0;
    const V* wide = reinterpret_cast<const V*>(from);
    auto take = [](V x) {
        S first[V::SIZE / 2];
#pragma unroll
        for (u32 k = 0; k < V::SIZE / 2; k++) first[k] = Op::combine(S(T::load(x.at[2 * k])), S(T::load(x.at[2 * k + 1])));
#pragma unroll
        for (u32 half = V::SIZE / 4; half > 0; half /= 2)
#pragma unroll
            for (u32 k = 0; k < half; k++) first[k] = Op::combine(first[k], first[k + half]);
        return first[0];
    };
    u64 i = thread;
    for (; i + (EACH<T> - 1) * u64(threads) < vectors; i += EACH<T> * u64(threads)) {
        V x[EACH<T>];
#pragma unroll
        for (u32 j = 0; j < EACH<T>; j++) x[j] = wide[i + j * u64(threads)];
#pragma unroll
        for (u32 j = 0; j < EACH<T>; j++) value = Op::combine(value, take(x[j]));
    }
    for (; i < vectors; i += threads) value = Op::combine(value, take(wide[i]));
    for (u64 k = begin + vectors * V::SIZE + thread; k < end; k += threads) value = Op::combine(value, S(T::load(row[k])));
    return value;
}

// One value for each row of `length` elements: block (part, row) combines a part of the row into
// partial[row * gridDim.x + part], or if there is one part only, the whole row into out[row].
template <typename T>
__device__ void reduce_rows(u32 op, u64 rows, u64 length, const typename T::Stored* in, typename T::Sum* partial,
                            typename T::Stored* out) {
    u64 row = u64(blockIdx.z) * gridDim.y + blockIdx.y;
    if (row >= rows) return;
    constexpr u32 SIZE = Vector<T>::SIZE;
    u64 part = ((length + gridDim.x - 1) / gridDim.x + SIZE - 1) / SIZE * SIZE;
    u64 begin = part * blockIdx.x < length ? part * blockIdx.x : length;
    u64 end = begin + part < length ? begin + part : length;
    with_operation(op, [&](auto operation) {
        using Op = decltype(operation);
        auto value = combine_elements<T, Op>(in + row * length, begin, end, threadIdx.x, blockDim.x);
        value = combine_block<Op>(value);
        if (threadIdx.x != 0) return;
        if (gridDim.x > 1) partial[row * gridDim.x + blockIdx.x] = value;
        else out[row] = finish<T>(op, value, length);
    });
}

// The same for many short rows: a warp for each.
template <typename T>
__device__ void reduce_short_rows(u32 op, u64 rows, u64 length, const typename T::Stored* in, typename T::Stored* out) {
    u64 row = thread_index() / 32;
    if (row >= rows) return;
    with_operation(op, [&](auto operation) {
        using Op = decltype(operation);
        auto value = combine_elements<T, Op>(in + row * length, 0, length, threadIdx.x % 32, 32);
        value = combine_warp<Op>(value);
        if (threadIdx.x % 32 == 0) out[row] = finish<T>(op, value, length);
    });
}

// Combines [outer, length, inner] along the middle. Part blockIdx.y of the middle goes to partial[outer, gridDim.y, inner],
// or if there is one part only, to out[outer, inner]. A thread takes a vector of columns if inner is made of those.
template <typename T>
__device__ void reduce_columns(u32 op, u64 outer, u64 length, u64 inner, const typename T::Stored* in,
                               typename T::Sum* partial, typename T::Stored* out) {
    using V = Vector<T>;
    using S = typename T::Sum;
    u64 part = (length + gridDim.y - 1) / gridDim.y;
    u64 begin = part * blockIdx.y < length ? part * blockIdx.y : length;
    u64 end = begin + part < length ? begin + part : length;
    auto put = [&](u64 at, u64 column, S value) {
        if (gridDim.y > 1) partial[(at * gridDim.y + blockIdx.y) * inner + column] = value;
        else out[at * inner + column] = finish<T>(op, value, length);
    };
    bool is_wide = inner % V::SIZE == 0 && reinterpret_cast<u64>(in) % 16 == 0;
    u64 columns = is_wide ? inner / V::SIZE : inner;
    with_operation(op, [&](auto operation) {
        using Op = decltype(operation);
        for (u64 i = thread_index(); i < outer * columns; i += thread_count()) {
            u64 at = i / columns, column = i % columns;
            const typename T::Stored* from = in + at * length * inner;
            if (!is_wide) {
                S value = Op::start(S(T::load(from[column])));
                for (u64 k = begin; k < end; k++) value = Op::combine(value, S(T::load(from[k * inner + column])));
                put(at, column, value);
                continue;
            }
            const V* wide = reinterpret_cast<const V*>(from) + column;
            S values[V::SIZE];
            V first = wide[0];
#pragma unroll
            for (u32 j = 0; j < V::SIZE; j++) values[j] = Op::start(S(T::load(first.at[j])));
#pragma unroll 4
            for (u64 k = begin; k < end; k++) {
                V x = wide[k * columns];
#pragma unroll
                for (u32 j = 0; j < V::SIZE; j++) values[j] = Op::combine(values[j], S(T::load(x.at[j])));
            }
#pragma unroll
            for (u32 j = 0; j < V::SIZE; j++) put(at, column * V::SIZE + j, values[j]);
        }
    });
}

// out[outer, inner] from partial[outer, parts, inner]. Of rows (inner is 1) a warp takes the parts of one, which lie beside
// each other; of columns the lanes of a warp take 32 beside each other, and the warps of a block share the parts.
template <typename T>
__device__ void reduce_parts(u32 op, u64 outer, u64 length, u64 inner, u32 parts, const typename T::Sum* partial,
                             typename T::Stored* out) {
    using S = typename T::Sum;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    with_operation(op, [&](auto operation) {
        using Op = decltype(operation);
        if (inner == 1) {
            u64 row = u64(blockIdx.x) * warps + warp;
            if (row >= outer) return;
            const S* from = partial + row * parts;
            S value = Op::start(from[0]);
            for (u32 k = lane; k < parts; k += 32) value = Op::combine(value, from[k]);
            value = combine_warp<Op>(value);
            if (lane == 0) out[row] = finish<T>(op, value, length);
            return;
        }
        __shared__ S shared[32][32];
        u64 at = u64(blockIdx.x) * 32 + lane;
        const S* from = partial + at / inner * parts * inner + at % inner;
        if (at < outer * inner) {
            S value = Op::start(from[0]);
#pragma unroll 4
            for (u32 k = warp; k < parts; k += warps) value = Op::combine(value, from[k * inner]);
            shared[warp][lane] = value;
        }
        __syncthreads();
        if (warp != 0 || at >= outer * inner) return;
        S value = shared[0][lane];
        for (u32 k = 1; k < warps; k++) value = Op::combine(value, shared[k][lane]);
        out[at] = finish<T>(op, value, length);
    });
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
        most = combine_block<Largest>(most);
        if (threadIdx.x == 0) shared = most;
        __syncthreads();
        most = shared;
        float sum = 0;
        for (u64 i = threadIdx.x; i < length; i += blockDim.x) sum += expf(T::load(from[i]) - most);
        sum = combine_block<Sum>(sum);
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
        using V = T::Value;                                                                                            \
        map_contiguous<T, EACH<T>>(n, [=](V x) { return unary(op, x, scale, shift); }, in, out);                       \
    }                                                                                                                  \
    extern "C" __global__ void copy_strided_##name(u64 n, Layout layout, const T::Stored* in, T::Stored* out) {        \
        copy_strided<T>(n, layout, in, out);                                                                           \
    }                                                                                                                  \
    extern "C" __global__ void fill_##name(u64 n, T::Stored value, T::Stored* out) { fill<T>(n, value, out); }         \
    extern "C" __global__ void reduce_rows_##name(u32 op, u64 rows, u64 length, const T::Stored* in, T::Sum* partial,  \
                                                  T::Stored* out) {                                                    \
        reduce_rows<T>(op, rows, length, in, partial, out);                                                            \
    }                                                                                                                  \
    extern "C" __global__ void reduce_short_rows_##name(u32 op, u64 rows, u64 length, const T::Stored* in,             \
                                                        T::Stored* out) {                                              \
        reduce_short_rows<T>(op, rows, length, in, out);                                                               \
    }                                                                                                                  \
    extern "C" __global__ void reduce_columns_##name(u32 op, u64 outer, u64 length, u64 inner, const T::Stored* in,    \
                                                     T::Sum* partial, T::Stored* out) {                                \
        reduce_columns<T>(op, outer, length, inner, in, partial, out);                                                 \
    }                                                                                                                  \
    extern "C" __global__ void reduce_parts_##name(u32 op, u64 outer, u64 length, u64 inner, u32 parts,                \
                                                   const T::Sum* partial, T::Stored* out) {                            \
        reduce_parts<T>(op, outer, length, inner, parts, partial, out);                                                \
    }                                                                                                                  \
    extern "C" __global__ void argmax_##name(u64 rows, u64 length, const T::Stored* in, int* out) {                    \
        argmax_rows<T>(rows, length, in, out);                                                                         \
    }                                                                                                                  \
    extern "C" __global__ void matmul_##name(u32 m, u32 n, u32 k, u64 stride_a, u64 stride_b, const T::Stored* a,      \
                                             const T::Stored* b, T::Stored* c) {                                       \
        matmul<T>(m, n, k, stride_a, stride_b, a, b, c);                                                               \
    }

#define FRACTIONS(name, T)                                                                                             \
    extern "C" __global__ void softmax_##name(u64 rows, u64 length, const T::Stored* in, T::Stored* out) {             \
        softmax_rows<T>(rows, length, in, out);                                                                        \
    }                                                                                                                  \
    extern "C" __global__ void function_##name(u32 op, u64 n, const T::Stored* in, T::Stored* out) {                   \
        map_contiguous<T, EACH_OF_FUNCTIONS<T>>(n, [=](float x) { return function(op, x); }, in, out);                 \
    }
