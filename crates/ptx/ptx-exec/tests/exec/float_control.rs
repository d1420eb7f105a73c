//! Kernels compute in the default floating-point environment, whatever the calling thread has set.

#![cfg(target_arch = "x86_64")]

use std::arch::asm;

use cuda_launch::LaunchConfig;
use ptx_exec::LaunchParams;

use crate::device::{Device, pack};

const BLOCKS: u32 = 64;
const THREADS: u32 = 64;

/// Each thread adds subnormal numbers, of all formats, and numbers whose sum has to be rounded.
const SOURCE: &str = "
.version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {
    .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .f64 %d<4>; .reg .b16 %h<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
    mul.wide.u32 %rd2, %r1, 32; add.u64 %rd1, %rd1, %rd2;
    mov.b32 %r5, 1; mov.b32 %f1, %r5; add.f32 %f2, %f1, %f1; st.global.f32 [%rd1], %f2;
    mov.b64 %rd3, 3; mov.b64 %d1, %rd3; add.f64 %d2, %d1, %d1; st.global.f64 [%rd1+8], %d2;
    mov.b32 %r6, 0x00030003; add.rn.bf16x2 %r7, %r6, %r6; st.global.b32 [%rd1+4], %r7;
    mov.b32 %f3, 0f3f800000; mov.b32 %f4, 0f33000000; add.f32 %f5, %f3, %f4; st.global.f32 [%rd1+16], %f5;
    mov.f32 %f6, 0d36A0000000000000; st.global.f32 [%rd1+20], %f6;
    mul.rp.f32 %f7, %f1, %f4; st.global.f32 [%rd1+24], %f7;
    ret;
}";

/// Sets the control register of the vector unit for a call of `f`, and returns what the register is
/// after it.
fn under(control: u32, f: impl FnOnce()) -> u32 {
    let (mut before, mut after) = (0u32, 0u32);
    // SAFETY: `f` computes nothing in floating point on this thread, so the compiler's expectation
    // of the register concerns nothing; the register is restored.
    unsafe {
        asm!("stmxcsr [{}]", in(reg) &raw mut before, options(nostack));
        asm!("ldmxcsr [{}]", in(reg) &raw const control, options(nostack));
    }
    f();
    // SAFETY: as above.
    unsafe {
        asm!("stmxcsr [{}]", in(reg) &raw mut after, options(nostack));
        asm!("ldmxcsr [{}]", in(reg) &raw const before, options(nostack));
    }
    after
}

/// Returns the results of the threads of a kernel that is compiled and launched under `control`,
/// and the register after that.
fn results(control: u32, workers: usize, watched: bool) -> (Vec<[u32; 8]>, u32) {
    let device = Device::watched(watched);
    let bytes = (BLOCKS * THREADS) as usize * 32;
    let out = device.upload(&vec![0; bytes]);
    let after = under(control, || {
        let linked = device.load(SOURCE);
        let kernel = linked.program().kernel("k").unwrap();
        let params = pack(&linked, kernel, &[out.to_le_bytes().to_vec()]);
        let launch = LaunchParams {
            config: LaunchConfig::new(BLOCKS, THREADS),
            cooperative: false,
            stack: 1024,
            workers,
            params: &params,
        };
        device.run(&linked, kernel, &launch).unwrap();
    });
    let stored = device.download(out, bytes);
    let word = |at: usize| u32::from_le_bytes(stored[at..][..4].try_into().unwrap());
    ((0..bytes).step_by(32).map(|at| std::array::from_fn(|index| word(at + 4 * index))).collect(), after)
}

#[test]
fn kernels_do_not_see_what_the_program_set() {
    const DEFAULT: u32 = 0x1f80;
    // -ffast-math; rounding down, up and towards zero.
    for control in [DEFAULT, 0x9fc0, 0x3f80, 0x5f80, 0x7f80] {
        for (workers, watched) in [(1, false), (4, false), (4, true)] {
            let (found, after) = results(control, workers, watched);
            let expected = [2, 0x0006_0006, 6, 0, 0x3f80_0000, 1, 1, 0];
            assert!(found.iter().all(|words| *words == expected), "{control:x}: {:x?}", found[0]);
            // Apart from the exceptions that have occurred.
            assert_eq!(after & !0x3f, control, "the program's setting is lost");
        }
    }
}
