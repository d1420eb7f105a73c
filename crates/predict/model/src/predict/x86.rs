//! The kernels for x86-64 vectors.
//!
//! Each `forward_*` is compiled for its instruction set, and everything that it calls is inlined
//! into it: elementwise code becomes vector code of that width, and the kernels below become the
//! instructions that they name.

use super::{Kernel, LANES, Predictor, Scratch, Vector, forward};
use std::arch::x86_64::{
    __m256, __m256i, __m512, __m512i, _mm_loadu_si128, _mm_set1_epi32, _mm256_add_epi32,
    _mm256_cvtepi8_epi16, _mm256_cvtepu8_epi16, _mm256_fmadd_ps, _mm256_hadd_epi32, _mm256_loadu_ps,
    _mm256_madd_epi16, _mm256_permute4x64_epi64, _mm256_set1_ps, _mm256_setzero_si256, _mm256_storeu_ps,
    _mm256_storeu_si256, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_storeu_ps, _mm512_storeu_si512,
};

/// # Safety
/// The processor has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn forward_avx2(
    predictor: &Predictor,
    features: &[f32],
    scratch: &mut Scratch,
    outputs: &mut [f32],
) {
    // SAFETY: this function's contract.
    unsafe { forward::<Avx2>(predictor, features, scratch, outputs) }
}

/// # Safety
/// The processor has AVX2, FMA and AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn forward_avx512(
    predictor: &Predictor,
    features: &[f32],
    scratch: &mut Scratch,
    outputs: &mut [f32],
) {
    // SAFETY: this function's contract.
    unsafe { forward::<Avx512>(predictor, features, scratch, outputs) }
}

/// # Safety
/// The processor has AVX2, FMA and AVX-512 F, BW, DQ, VL and VNNI.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn forward_avx512_vnni(
    predictor: &Predictor,
    features: &[f32],
    scratch: &mut Scratch,
    outputs: &mut [f32],
) {
    // SAFETY: this function's contract.
    unsafe { forward::<Avx512Vnni>(predictor, features, scratch, outputs) }
}

/// Vectors of 8 numbers.
pub(super) struct Avx2;

impl Kernel for Avx2 {
    #[inline(always)]
    unsafe fn dense<const W: usize>(weights: &[Vector<f32>], inputs: &[f32], sums: &mut [Vector<f32>; W]) {
        // SAFETY: the caller has AVX2 and FMA; every pointer is to 8 of the 16 numbers of a
        // `Vector`.
        unsafe {
            let mut halves = [[_mm256_set1_ps(0.0); 2]; W];
            for (halves, sum) in halves.iter_mut().zip(sums.iter()) {
                *halves = [_mm256_loadu_ps(sum.0.as_ptr()), _mm256_loadu_ps(sum.0[8..].as_ptr())];
            }
            for (weights, &input) in weights.chunks_exact(W).zip(inputs) {
                let input: __m256 = _mm256_set1_ps(input);
                for vector in 0..W {
                    let weight = &weights[vector].0;
                    let [low, high] = &mut halves[vector];
                    *low = _mm256_fmadd_ps(_mm256_loadu_ps(weight.as_ptr()), input, *low);
                    *high = _mm256_fmadd_ps(_mm256_loadu_ps(weight[8..].as_ptr()), input, *high);
                }
            }
            for (halves, sum) in halves.iter().zip(sums) {
                _mm256_storeu_ps(sum.0.as_mut_ptr(), halves[0]);
                _mm256_storeu_ps(sum.0[8..].as_mut_ptr(), halves[1]);
            }
        }
    }

    /// Bytes are widened to 16 bits, whose products AVX2 adds in pairs without loss. (Its product
    /// of bytes saturates.) Vectors of outputs are taken two at a time: each needs four registers
    /// of pairs.
    #[inline(always)]
    unsafe fn quantised<const W: usize>(weights: &[Vector<u32>], inputs: &[u32]) -> [Vector<i32>; W] {
        let mut sums = [Vector([0; LANES]); W];
        // SAFETY: the caller has AVX2.
        unsafe {
            match &mut sums[..] {
                [one] => Self::columns::<W, 1>(weights, inputs, 0, [one]),
                [one, two] => Self::columns::<W, 2>(weights, inputs, 0, [one, two]),
                [one, two, three] => {
                    Self::columns::<W, 2>(weights, inputs, 0, [one, two]);
                    Self::columns::<W, 1>(weights, inputs, 2, [three]);
                }
                [one, two, three, four] => {
                    Self::columns::<W, 2>(weights, inputs, 0, [one, two]);
                    Self::columns::<W, 2>(weights, inputs, 2, [three, four]);
                }
                _ => unreachable!("groups have at most four vectors"),
            }
        }
        sums
    }
}

impl Avx2 {
    /// The sums of `N` vectors of outputs out of `W`, the first of which is `first`.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn columns<const W: usize, const N: usize>(
        weights: &[Vector<u32>],
        inputs: &[u32],
        first: usize,
        sums: [&mut Vector<i32>; N],
    ) {
        // SAFETY: the caller has AVX2; the loads are of four of the 16 elements of a `Vector`, the
        // stores of eight.
        unsafe {
            let mut pairs: [[__m256i; 4]; N] = [[_mm256_setzero_si256(); 4]; N];
            for (weights, &input) in weights.chunks_exact(W).zip(inputs) {
                let input = _mm256_cvtepu8_epi16(_mm_set1_epi32(input.cast_signed()));
                for vector in 0..N {
                    let weights = &weights[first + vector].0;
                    for part in 0..4 {
                        let bytes = _mm_loadu_si128(weights[4 * part..][..4].as_ptr().cast());
                        let products = _mm256_madd_epi16(_mm256_cvtepi8_epi16(bytes), input);
                        pairs[vector][part] = _mm256_add_epi32(pairs[vector][part], products);
                    }
                }
            }
            for (pairs, sum) in pairs.iter().zip(sums) {
                // Adding neighbours leaves the outputs 0 1, 4 5, 2 3, 6 7: the permutation puts
                // them in order.
                let low = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(pairs[0], pairs[1]));
                let high = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(pairs[2], pairs[3]));
                _mm256_storeu_si256(sum.0.as_mut_ptr().cast(), low);
                _mm256_storeu_si256(sum.0[8..].as_mut_ptr().cast(), high);
            }
        }
    }
}

/// Vectors of 16 numbers; bytes as with AVX2.
pub(super) struct Avx512;

impl Kernel for Avx512 {
    #[inline(always)]
    unsafe fn dense<const W: usize>(weights: &[Vector<f32>], inputs: &[f32], sums: &mut [Vector<f32>; W]) {
        // SAFETY: the caller has AVX-512 F; every pointer is to the 16 numbers of a `Vector`.
        unsafe {
            let mut registers: [__m512; W] = [_mm512_set1_ps(0.0); W];
            for (register, sum) in registers.iter_mut().zip(sums.iter()) {
                *register = _mm512_loadu_ps(sum.0.as_ptr());
            }
            for (weights, &input) in weights.chunks_exact(W).zip(inputs) {
                let input = _mm512_set1_ps(input);
                for vector in 0..W {
                    let weight = _mm512_loadu_ps(weights[vector].0.as_ptr());
                    registers[vector] = _mm512_fmadd_ps(weight, input, registers[vector]);
                }
            }
            for (register, sum) in registers.iter().zip(sums) {
                _mm512_storeu_ps(sum.0.as_mut_ptr(), *register);
            }
        }
    }

    #[inline(always)]
    unsafe fn quantised<const W: usize>(weights: &[Vector<u32>], inputs: &[u32]) -> [Vector<i32>; W] {
        // SAFETY: who has AVX-512 here has AVX2.
        unsafe { Avx2::quantised(weights, inputs) }
    }
}

/// Vectors of 16 numbers, products of bytes in one instruction.
pub(super) struct Avx512Vnni;

impl Kernel for Avx512Vnni {
    #[inline(always)]
    unsafe fn dense<const W: usize>(weights: &[Vector<f32>], inputs: &[f32], sums: &mut [Vector<f32>; W]) {
        // SAFETY: who has VNNI here has AVX-512.
        unsafe { Avx512::dense(weights, inputs, sums) }
    }

    #[inline(always)]
    unsafe fn quantised<const W: usize>(weights: &[Vector<u32>], inputs: &[u32]) -> [Vector<i32>; W] {
        let mut sums = [Vector([0; LANES]); W];
        // SAFETY: the caller has AVX-512 VNNI; every pointer is to the 16 elements of a `Vector`.
        unsafe {
            let mut registers: [__m512i; W] = [_mm512_set1_epi32(0); W];
            for (weights, &input) in weights.chunks_exact(W).zip(inputs) {
                let input = _mm512_set1_epi32(input.cast_signed());
                for vector in 0..W {
                    let weight = _mm512_loadu_si512(weights[vector].0.as_ptr().cast());
                    registers[vector] = _mm512_dpbusd_epi32(registers[vector], input, weight);
                }
            }
            for (register, sum) in registers.iter().zip(&mut sums) {
                _mm512_storeu_si512(sum.0.as_mut_ptr().cast(), *register);
            }
        }
        sums
    }
}
