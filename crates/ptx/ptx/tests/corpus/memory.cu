// State spaces, vectors, atomics, structures.

struct Particle {
    float3 position;
    int kind;
    double energy;
    char name[5];
};

__constant__ float table[16] = {1, 2.5f, -3, 4};
__constant__ Particle prototype = {{1, 2, 3}, 4, 5.0, "abc"};
__device__ int counter = 7;
__device__ int *pointer = &counter;
__device__ const char *names[3] = {"zero", "one", "two"};
__device__ unsigned char bytes[3][4] = {{1, 2}, {3, 4, 5}};
__device__ float4 quad = {1, 2, 3, 4};
__managed__ int managed_value;
extern __shared__ float dynamic_shared[];

extern "C" __global__ void structures(Particle p, const Particle *in, Particle *out, short small, char tiny) {
    int i = threadIdx.x;
    Particle q = in[i];
    q.position.x += p.position.y * small;
    q.energy += p.energy + prototype.energy + tiny;
    q.kind ^= p.name[i % 5] + prototype.name[1];
    q.name[i & 3] = 'x';
    out[i] = q;
}

extern "C" __global__ void spaces(float *out, const float *__restrict__ in, int n) {
    __shared__ float tile[32][33];
    __shared__ double doubles[8];
    float local[16];
    int i = threadIdx.x;
    for (int k = 0; k < 16; k++) local[k] = in[(i + k) % n];
    local[n & 15] += table[i & 15];
    tile[i / 8][i % 8] = local[(i * 7) & 15];
    doubles[i & 7] = dynamic_shared[i];
    __syncthreads();
    const float *generic = (i & 1) ? &tile[i % 8][i / 8] : &local[i & 15];
    out[i] = *generic + (float)doubles[7 - (i & 7)] + __ldg(in + i) + *pointer + names[i % 3][1] + bytes[i % 3][i & 3] +
             quad.z + managed_value + __isShared(generic) + 2 * __isGlobal(generic) + 4 * __isLocal(generic);
}

extern "C" __global__ void vectors(const float4 *a, float4 *b, const int2 *c, int2 *d, const uchar4 *e, uchar4 *f,
                                   const double2 *g, double2 *h, const short4 *k, short4 *l) {
    int i = threadIdx.x;
    float4 v = a[i];
    b[i] = make_float4(v.w, v.z, v.y, v.x);
    d[i] = make_int2(c[i].y, c[i].x);
    f[i] = make_uchar4(e[i].w, e[i].x, e[i].y, e[i].z);
    h[i] = make_double2(g[i].y, g[i].x);
    l[i] = make_short4(k[i].w, k[i].z, k[i].x, k[i].y);
}

extern "C" __global__ void atomics(int *i, unsigned *u, float *f, double *d, unsigned long long *l, long long *s) {
    __shared__ int shared[4];
    if (threadIdx.x < 4) shared[threadIdx.x] = 0;
    __syncthreads();
    int r = atomicAdd(i, 1) + atomicSub(i + 1, 2) + atomicMin(i + 2, -5) + atomicMax(i + 3, 5) + atomicAnd(i + 4, 6);
    r += atomicOr(i + 5, 9) + atomicXor(i + 6, 3) + atomicExch(i + 7, r) + atomicCAS(i + 8, 0, r);
    r += atomicInc(u, 7) + atomicDec(u + 1, 7) + atomicMin(u + 2, 3u) + atomicMax(u + 3, 3u);
    atomicAdd(f, 1.5f);
    atomicAdd(d, 2.5);
    atomicAdd(l, 3ull);
    atomicMax(s, -4ll);
    atomicExch(f + 1, 2.0f);
    atomicCAS(l + 1, 0ull, 5ull);
    atomicAdd_block(i + 9, 1);
    atomicAdd_system(i + 10, 1);
    atomicAdd(&shared[threadIdx.x & 3], r);
    __syncthreads();
    if (threadIdx.x < 4) atomicAdd(i + 11, shared[threadIdx.x]);
}

extern "C" __global__ void caches(const int *in, int *out, volatile int *v) {
    int i = threadIdx.x, x = v[i];
    out[i] = __ldcg(in + i) + __ldca(in + i) + __ldcs(in + i) + __ldlu(in + i) + __ldcv(in + i) + x;
    __stwb(out + 32 + i, x);
    __stcg(out + 64 + i, x);
    __stcs(out + 96 + i, x);
    v[i] = x + 1;
}
