"""CuPy as its users use it: arrays, kernels of their own in every form, memory pools, streams and events, graphs.

Everything is compared with NumPy. The kernels called `client_...` are launched as often as the last line says.
"""

import cupy as cp
import numpy as np

generator = np.random.default_rng(7)
launches = 0


def agree(found, right, tolerance=0.0):
    np.testing.assert_allclose(cp.asnumpy(found), right, rtol=tolerance, atol=tolerance)


def arrays():
    x, y = generator.standard_normal((2, 300, 41)).astype(np.float32)
    a, b = cp.asarray(x), cp.asarray(y)
    agree(a * 2 + b, x * 2 + y)
    agree(cp.exp(a) + cp.sin(b), np.exp(x) + np.sin(y), 1e-5)
    agree(a.sum(axis=1), x.sum(axis=1), 1e-4)
    agree(cp.where(a > 0, a, b).max(), np.where(x > 0, x, y).max())
    agree(a.T[5:20:3, ::-1], x.T[5:20:3, ::-1])
    agree(cp.argmin(a, axis=0), x.argmin(axis=0))
    agree(cp.cumsum(cp.arange(1000)), np.cumsum(np.arange(1000)))
    integers = generator.integers(0, 1 << 40, 5000)
    agree(cp.sort(cp.asarray(integers)), np.sort(integers))
    agree(cp.bincount(cp.asarray(integers % 17)), np.bincount(integers % 17))


def raw_kernel():
    global launches
    kernel = cp.RawKernel(
        r"""
        extern "C" __global__ void client_axpy(double a, const double* x, double* y, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = fma(a, x[i], y[i]);
        }
        """,
        "client_axpy",
    )
    x, y = generator.standard_normal((2, 1000))
    a, b = cp.asarray(x), cp.asarray(y)
    for _ in range(3):
        kernel((8,), (128,), (0.5, a, b, np.int32(1000)))
        launches += 1
    agree(b, y + 1.5 * x, 1e-12)
    assert kernel.attributes["max_threads_per_block"] == 1024


def raw_module():
    global launches
    module = cp.RawModule(
        code=r"""
        __constant__ float client_weights[4];
        template <typename T> __global__ void client_weigh(const T* in, T* out, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) out[i] = in[i] * T(client_weights[i % 4]);
        }
        """,
        options=("-std=c++17",),
        name_expressions=("client_weigh<float>", "client_weigh<int>"),
    )
    weights = cp.ndarray((4,), cp.float32, module.get_global("client_weights"))
    weights[...] = cp.asarray([1, 2, 3, 4], cp.float32)
    for dtype, name in ((np.float32, "client_weigh<float>"), (np.int32, "client_weigh<int>")):
        x = generator.integers(0, 1000, 999).astype(dtype)
        out = cp.empty(999, dtype)
        module.get_function(name)((8,), (128,), (cp.asarray(x), out, np.int32(999)))
        launches += 1
        agree(out, x * np.tile(np.arange(1, 5), 250)[:999])


def templates_of_cupy():
    global launches
    squared = cp.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "client_squared")
    norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "client_norm")
    x, y = generator.standard_normal((2, 64, 50))
    agree(squared(cp.asarray(x), cp.asarray(y)), (x - y) ** 2)
    agree(norm(cp.asarray(x), axis=1), np.sqrt((x * x).sum(axis=1)), 1e-12)
    launches += 2


def memory_and_streams():
    global launches
    pool = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(pool.malloc):
        block = cp.zeros(1 << 16, cp.uint8)
        assert pool.used_bytes() == 1 << 16
        del block
    assert pool.used_bytes() == 0 and pool.total_bytes() >= 1 << 16
    pool.free_all_blocks()
    scale = cp.ElementwiseKernel("float64 x, float64 a", "float64 y", "y = a * x", "client_scale")
    x = generator.standard_normal(20000)
    first, second = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    with first:
        a = cp.asarray(x)
        b = scale(a, 3.0)
        between = first.record()
    second.wait_event(between)
    with second:
        c = scale(b, -1.0)
        end = second.record()
    end.synchronize()
    launches += 2
    agree(c, -3.0 * x)
    assert cp.cuda.get_elapsed_time(between, end) >= 0
    with first:
        first.begin_capture()
        scale(a, 2.0, b)
        scale(b, 2.0, a)
        graph = first.end_capture()
        graph.launch()
        graph.launch()
        first.synchronize()
    launches += 4
    agree(a, 16.0 * x)


def errors():
    try:
        cp.RawKernel("extern \"C\" __global__ void f() { syntax error }", "f").compile()
    except cp.cuda.compiler.CompileException as error:
        assert "error" in str(error)
    else:
        raise AssertionError("source that is wrong was compiled")


for part in (arrays, raw_kernel, raw_module, templates_of_cupy, memory_and_streams, errors):
    part()
print(f"cupy {cp.__version__}: right, {launches} kernels launched")
