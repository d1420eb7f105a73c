// C++ on the device: templates, lambdas passed to kernels, structures as arguments, variadic packs, recursion, virtual
// functions and function pointers.
#include "check.h"

template <typename T, typename F> __global__ void transform(const T *in, T *out, int n, F function) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = function(in[i], i);
}

template <typename... Ts> __device__ auto sum_of(Ts... values) { return (values + ... + 0); }

template <int N> struct Polynomial {
    double coefficients[N];
    __host__ __device__ double operator()(double x) const {
        double y = 0;
        for (int i = N - 1; i >= 0; i--) y = y * x + coefficients[i];
        return y;
    }
};

template <int N> __global__ void evaluate(Polynomial<N> polynomial, const double *x, double *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = polynomial(x[i]);
}

struct Shape {
    __device__ virtual int area() const = 0;
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    int side;
    __device__ explicit Square(int side) : side(side) {}
    __device__ int area() const override { return side * side; }
};
struct Frame : Square {
    int hole;
    __device__ Frame(int side, int hole) : Square(side), hole(hole) {}
    __device__ int area() const override { return Square::area() - hole * hole; }
};

__global__ void areas(int *out) {
    Shape *shape;
    if (threadIdx.x % 3 == 0)
        shape = new Square(int(threadIdx.x));
    else
        shape = new Frame(int(threadIdx.x) + 2, int(threadIdx.x));
    out[threadIdx.x] = shape->area();
    delete shape;
}

__device__ int twice(int x) { return 2 * x; }
__device__ int square(int x) { return x * x; }
__device__ int negated(int x) { return -x; }
using Step = int (*)(int);
__device__ Step steps[3] = {twice, square, negated};

__global__ void call(const int *in, int *out, Step chosen) {
    int i = threadIdx.x;
    out[i] = sum_of(steps[i % 3](in[i]), chosen ? chosen(1) : 0, i);
}
__global__ void choose(Step *chosen) { *chosen = square; }

__device__ __noinline__ int ackermann(int m, int n) {
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
__global__ void recurse(int *out) { out[threadIdx.x] = ackermann(2, int(threadIdx.x) % 5); }

int main() {
    Random random{8};
    const int n = 1000;
    std::vector<float> in = random.floats(n), right(n);
    float scale = 3.5f;
    for (int i = 0; i < n; i++) right[i] = in[i] * scale + float(i % 7);
    Device<float> device_in(in), device_out(n);
    LAUNCH(transform<<<8, 128>>>(device_in.data, device_out.data, n,
                                 [scale] __device__(float x, int i) { return x * scale + float(i % 7); }));
    expect_equal("lambda", device_out.host(), right, 1e-6);

    Polynomial<5> polynomial = {{1.5, -2, 0.25, 3, -0.125}};
    std::vector<double> x(n), y(n);
    for (int i = 0; i < n; i++) {
        x[i] = random.unit();
        y[i] = polynomial(x[i]);
    }
    Device<double> device_x(x), device_y(n);
    LAUNCH(evaluate<<<8, 128>>>(polynomial, device_x.data, device_y.data, n));
    expect_equal("polynomial", device_y.host(), y, 1e-14);

    Device<int> out(64);
    std::vector<int> expected(64);
    LAUNCH(areas<<<1, 64>>>(out.data));
    for (int i = 0; i < 64; i++) expected[i] = i % 3 == 0 ? i * i : (i + 2) * (i + 2) - i * i;
    expect_equal("areas", out.host(), expected);

    std::vector<int> numbers = random.integers<int>(64, 1000);
    Device<int> device_numbers(numbers);
    Device<Step> chosen(1);
    LAUNCH(choose<<<1, 1>>>(chosen.data));
    LAUNCH(call<<<1, 64>>>(device_numbers.data, out.data, chosen.host()[0]));
    for (int i = 0; i < 64; i++) {
        int v = numbers[i];
        expected[i] = (i % 3 == 0 ? 2 * v : i % 3 == 1 ? v * v : -v) + 1 + i;
    }
    expect_equal("calls", out.host(), expected);

    LAUNCH(recurse<<<1, 64>>>(out.data));
    for (int i = 0; i < 64; i++) expected[i] = 2 * (i % 5) + 3;
    expect_equal("recursion", out.host(), expected);
    return done();
}
