// Instructions that compilers rarely write, by inline PTX; and textures.

extern "C" __global__ void video(const unsigned *a, const unsigned *b, unsigned *out) {
    unsigned i = threadIdx.x, x = a[i], y = b[i], r, s = 0;
    asm("vadd.s32.s32.s32 %0, %1.b0, %2.h1;" : "=r"(r) : "r"(x), "r"(y)); s += r;
    asm("vsub.u32.u32.u32.sat %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y)); s += r;
    asm("vabsdiff.u32.u32.u32.add %0, %1.b2, %2.b3, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(s)); s += r;
    asm("vmin.s32.s32.s32 %0, %1.h0, %2.h1;" : "=r"(r) : "r"(x), "r"(y)); s += r;
    asm("vmad.u32.u32.u32.shr7 %0, %1.b0, %2.b1, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(s)); s += r;
    asm("vset.u32.s32.ge %0, %1.b0, %2.b1;" : "=r"(r) : "r"(x), "r"(y)); s += r;
    asm("vshl.u32.u32.u32.clamp %0, %1, %2.b0;" : "=r"(r) : "r"(x), "r"(y)); s += r;
    out[i] = s;
}

extern "C" __global__ void bits(const unsigned *a, unsigned *out) {
    unsigned i = threadIdx.x, x = a[i], y = a[i + 32], z = a[i + 64], r, s = 0;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z)); s += r;
    asm("bfi.b32 %0, %1, %2, %3, 5;" : "=r"(r) : "r"(x), "r"(y), "r"(z)); s += r;
    asm("bfind.shiftamt.s32 %0, %1;" : "=r"(r) : "r"(x)); s += r;
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(r) : "r"(x), "r"(y), "r"(z)); s += r;
    asm("{ .reg .pred p, q; setp.ne.u32 q, %1, 0; lop3.or.b32 %0|p, %1, %2, %3, 0x1a, q; @p add.u32 %0, %0, 1; }"
        : "=r"(r) : "r"(x), "r"(y), "r"(z)); s += r;
    asm("prmt.b32.f4e %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z)); s += r;
    asm("{ .reg .pred p, q; setp.lt.and.s32 p|q, %1, %2, 1; selp.u32 %0, 3, 5, q; }" : "=r"(r) : "r"(x), "r"(y)); s += r;
    asm("{ .reg .u32 lo, hi; add.cc.u32 lo, %1, %2; addc.cc.u32 hi, %1, %3; addc.u32 %0, lo, hi; }"
        : "=r"(r) : "r"(x), "r"(y), "r"(z)); s += r;
    asm("slct.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z)); s += r;
    asm("set.gt.u32.u32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y)); s += r;
    asm("sad.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z)); s += r;
    asm("cnot.b32 %0, %1;" : "=r"(r) : "r"(x & 1)); s += r;
    asm("mov.b32 %0, {%1, %2};" : "=r"(r) : "h"((short)x), "h"((short)y)); s += r;
    out[i] = s;
}

extern "C" __global__ void jumps(const unsigned *a, unsigned *out) {
    unsigned r;
    asm volatile("{\n"
                 "targets: .branchtargets first, second, third;\n"
                 ".reg .u32 index;\n"
                 "and.b32 index, %1, 1;\n"
                 "brx.idx index, targets;\n"
                 "first: mov.u32 %0, 10; bra.uni done;\n"
                 "second: mov.u32 %0, 20; bra.uni done;\n"
                 "third: mov.u32 %0, 30;\n"
                 "done:\n}" : "=r"(r) : "r"(a[threadIdx.x]));
    out[threadIdx.x] = r;
}

extern "C" __global__ void textures(cudaTextureObject_t texture, cudaSurfaceObject_t surface, float *out) {
    int i = threadIdx.x;
    out[i] = tex1Dfetch<float>(texture, i) + tex2D<float>(texture, i + 0.5f, 0.5f) +
             tex3D<float4>(texture, i, 1, 2).y + tex2DLod<float>(texture, i, 1, 0.5f);
    surf2Dwrite(out[i], surface, i * 4, 1);
    out[i] += surf2Dread<float>(surface, i * 4, 0);
}

extern "C" __global__ void __launch_bounds__(128, 2) bounds(int *out, int n) {
#pragma unroll 4
    for (int i = threadIdx.x; i < n; i += 128) out[i] += i;
}
