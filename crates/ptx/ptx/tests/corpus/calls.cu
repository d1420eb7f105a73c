// Functions that stay functions, and what the driver provides for device code.
extern "C" __device__ void __assertfail(const char *, const char *, unsigned, const char *, size_t);

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    float side;
    __device__ Square(float s) : side(s) {}
    __device__ float area() const override { return side * side; }
};
struct Circle : Shape {
    float radius;
    __device__ Circle(float r) : radius(r) {}
    __device__ float area() const override { return 3.14159f * radius * radius; }
};

struct Big {
    int values[7];
    double weight;
};
__device__ __noinline__ Big scale(Big in, int factor, char c) {
    for (int &v : in.values) v *= factor;
    in.weight += c;
    return in;
}

typedef int (*operation)(int, int);
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int multiply(int a, int b) { return a * b; }
__device__ operation operations[2] = {add, multiply};

extern "C" __global__ void recursion(int *out) { out[threadIdx.x] = fibonacci(threadIdx.x % 12); }

extern "C" __global__ void pointers(int *out) {
    int i = threadIdx.x;
    out[i] = operations[i & 1](i, 3);
}

extern "C" __global__ void virtuals(float *out) {
    int i = threadIdx.x;
    Shape *shape = (i & 1) ? (Shape *)new Square(i) : (Shape *)new Circle(i);
    out[i] = shape->area();
    delete shape;
}

extern "C" __global__ void aggregates(Big *data) {
    Big big = data[threadIdx.x];
    data[threadIdx.x] = scale(scale(big, 3, 'a'), threadIdx.x, 'b');
}

extern "C" __global__ void prints(int n) {
    printf("thread %d of %u: %f %s %c %lld %p\n", threadIdx.x, blockDim.x, n * 0.5, "text", 'c', 1ll << 40, (void *)0);
    if (n <= 0) __assertfail("n > 0", __FILE__, __LINE__, __func__, 1);
    if (n == 77) __trap();
}

extern "C" __global__ void heap(int **out, int n) {
    int *memory = (int *)malloc(n * sizeof(int));
    if (memory) {
        for (int k = 0; k < n; k++) memory[k] = k + threadIdx.x;
        out[threadIdx.x] = memory;
    }
    free(malloc(16));
}

extern "C" __global__ void dispatch(int *data, int kind) {
    int i = threadIdx.x, x = data[i];
    switch ((kind + i) % 9) {
    case 0: x += 1; break;
    case 1: x *= 3; break;
    case 2: x ^= 5; break;
    case 3: x -= 7; break;
    case 4: x = x / 9; break;
    case 5: x <<= 2; break;
    case 6: x = ~x; break;
    case 7: x = -x; break;
    default: x = 0;
    }
    data[i] = x;
}
