// Random inputs: element i is a function of i and the seed, so that the host can tell any of them.
#include "suite.cuh"

__device__ __forceinline__ unsigned random_bits(unsigned i, unsigned seed) {
    unsigned bits = i * 0x9e3779b9u + seed;
    bits = (bits ^ (bits >> 16)) * 0x85ebca6bu;
    bits = (bits ^ (bits >> 13)) * 0xc2b2ae35u;
    return bits ^ (bits >> 16);
}

// From -1 to below 1.
__device__ __forceinline__ float random_float(unsigned i, unsigned seed) {
    return (float)(random_bits(i, seed) >> 8) * (1.0f / (1 << 23)) - 1.0f;
}

KERNEL fill_f32(float *out, unsigned n, unsigned seed) { EACH_UNIT(i) out[i] = random_float(i, seed); }

KERNEL fill_f64(double *out, unsigned n, unsigned seed) {
    EACH_UNIT(i) out[i] = random_bits(i, seed) * (1.0 / (1u << 31)) - 1.0;
}

KERNEL fill_f16(__half *out, unsigned n, unsigned seed) {
    EACH_UNIT(i) out[i] = __float2half_rn(random_float(i, seed));
}

KERNEL fill_u32(unsigned *out, unsigned n, unsigned seed) { EACH_UNIT(i) out[i] = random_bits(i, seed); }

// All bits set: what no kernel of the suite leaves where it writes.
KERNEL mark(unsigned *out, unsigned n) { EACH_UNIT(i) out[i] = ~0u; }

// Does nothing: what it takes between two events is what the pair costs.
KERNEL empty() {}

// Keeps the device busy for so many of its clock cycles, so that what follows is queued before it starts. All 64 bits of the
// clock are compared: the lower 32 wrap around every two seconds.
KERNEL spin(unsigned cycles) {
    for (long long begin = clock64(); clock64() - begin < cycles;) {}
}
