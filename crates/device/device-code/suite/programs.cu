// Small programs of science, finance and cryptography.
#include "suite.cuh"

__device__ __forceinline__ float attract(float sum, float dx, float dy) {
    float inverse = rsqrtf(fmaf(dx, dx, fmaf(dy, dy, 0.01f)));
    return fmaf(dx, inverse * inverse * inverse, sum);
}

// n bodies attracted by m: the others are read from memory.
KERNEL bodies_global(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float sum = 0;
        for (unsigned k = 0; k < m; k++) sum = attract(sum, x[k] - x[i], y[k] - y[i]);
        out[i] = sum;
    }
}

// The same in tiles of shared memory, two words for each thread.
KERNEL bodies_shared(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    float2 *tile = dynamic_shared<float2>();
    unsigned t = thread_of_block(), threads = threads_of_block();
    EACH_BLOCK_UNIT(b, (n + threads - 1) / threads) {
        unsigned i = min(b * threads + t, n - 1);
        float sum = 0, own_x = x[i], own_y = y[i];
        for (unsigned first = 0; first < m; first += threads) {
            if (first + t < m) tile[t] = make_float2(x[first + t], y[first + t]);
            __syncthreads();
            for (unsigned k = 0; k < min(threads, m - first); k++)
                sum = attract(sum, tile[k].x - own_x, tile[k].y - own_y);
            __syncthreads();
        }
        if (b * threads + t < n) out[i] = sum;
    }
}

// Points of a square that fall into the circle, of m that each thread draws.
KERNEL monte_carlo(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        unsigned state = y[i] | 1, inside = 0;
        auto draw = [&] {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            return (float)(state >> 8) * (1.0f / (1 << 24));
        };
        for (unsigned k = 0; k < m; k++) {
            float a = draw(), b = draw();
            inside += __fmaf_rn(a, a, __fmul_rn(b, b)) < 1.0f;
        }
        out[i] = inside;
    }
}

__device__ __forceinline__ float normal_below(float d) { return 0.5f * erfcf(-d * 0.70710678f); }

// The price of an option by Black and Scholes.
KERNEL option_price(const float *x, const float *y, float *out, unsigned n, unsigned) {
    EACH_UNIT(i) {
        float price = 30.0f + 10.0f * x[i], strike = 30.0f + 10.0f * y[i], rate = 0.02f, deviation = 0.3f;
        float d1 = (logf(price / strike) + rate + 0.5f * deviation * deviation) / deviation, d2 = d1 - deviation;
        out[i] = price * normal_below(d1) - strike * expf(-rate) * normal_below(d2);
    }
}

__device__ __forceinline__ unsigned rotate(unsigned value, unsigned by) { return __funnelshift_l(value, value, by); }

// m double rounds of ChaCha's mixing on 16 words.
__device__ __forceinline__ void mix_words(const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        unsigned s[16];
#pragma unroll
        for (unsigned k = 0; k < 16; k++) s[k] = y[i] + k * 0x9e3779b9u;
        auto mix = [&](unsigned a, unsigned b, unsigned c, unsigned d) {
            s[a] += s[b], s[d] = rotate(s[d] ^ s[a], 16);
            s[c] += s[d], s[b] = rotate(s[b] ^ s[c], 12);
            s[a] += s[b], s[d] = rotate(s[d] ^ s[a], 8);
            s[c] += s[d], s[b] = rotate(s[b] ^ s[c], 7);
        };
        for (unsigned k = 0; k < m; k++) {
            mix(0, 4, 8, 12), mix(1, 5, 9, 13), mix(2, 6, 10, 14), mix(3, 7, 11, 15);
            mix(0, 5, 10, 15), mix(1, 6, 11, 12), mix(2, 7, 8, 13), mix(3, 4, 9, 14);
        }
        unsigned mixed = 0;
#pragma unroll
        for (unsigned k = 0; k < 16; k++) mixed ^= s[k];
        out[i] = mixed;
    }
}

KERNEL chacha(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) { mix_words(y, out, n, m); }
KERNEL __maxnreg__(24) chacha_capped(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    mix_words(y, out, n, m);
}

// m steps of a damped oscillator, by Runge and Kutta's method of fourth order.
KERNEL oscillator(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float place = x[i], speed = y[i];
        const float step = 0.05f;
        auto force = [](float p, float v) { return -p - 0.5f * v; };
        for (unsigned k = 0; k < m; k++) {
            float v1 = speed, a1 = force(place, speed);
            float v2 = speed + 0.5f * step * a1, a2 = force(place + 0.5f * step * v1, v2);
            float v3 = speed + 0.5f * step * a2, a3 = force(place + 0.5f * step * v2, v3);
            float v4 = speed + step * a3, a4 = force(place + step * v3, v4);
            place += step / 6 * (v1 + 2 * v2 + 2 * v3 + v4);
            speed += step / 6 * (a1 + 2 * a2 + 2 * a3 + a4);
        }
        out[i] = place;
    }
}

// m steps of eight complex sequences: instructions that do not wait for each other.
KERNEL __launch_bounds__(256) complex_powers(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float re[8], im[8];
#pragma unroll
        for (int c = 0; c < 8; c++) re[c] = 0.5f * x[i] + 0.01f * (float)c, im[c] = 0.5f * y[i];
        for (unsigned k = 0; k < m; k++)
#pragma unroll
            for (int c = 0; c < 8; c++) {
                float next = re[c] * re[c] - im[c] * im[c];
                im[c] = fmaf(re[c], im[c], 0.1f);
                re[c] = fmaf(next, 0.5f, 0.05f);
            }
        float sum = 0;
#pragma unroll
        for (int c = 0; c < 8; c++) sum += re[c] + im[c];
        out[i] = sum;
    }
}

// The distance of two strings of m letters (at most 32) of four kinds: one row of the table in registers or local memory.
KERNEL edit_distance(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        unsigned char row[33];
        unsigned long long first = y[i] * 0x9e3779b97f4a7c15ull, second = first * 0xbf58476d1ce4e5b9ull;
        for (unsigned k = 0; k <= m; k++) row[k] = k;
        for (unsigned j = 1; j <= m; j++) {
            unsigned diagonal = row[0];
            row[0] = j;
            for (unsigned k = 1; k <= m; k++) {
                unsigned differs = ((first >> (2 * k - 2)) & 3) != ((second >> (2 * j - 2)) & 3);
                unsigned best = min(min(row[k], row[k - 1]) + 1, diagonal + differs);
                diagonal = row[k];
                row[k] = best;
            }
        }
        out[i] = row[m];
    }
}
