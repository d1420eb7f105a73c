//! `wgmma` on matrices that tensor maps have brought into shared memory, in every swizzle and
//! order, against exact products of integers.

use std::fmt::Write;

use apex_random::Random;
use cuda_launch::LaunchConfig;
use ptx_exec::{LaunchParams, MAX_RANK, TensorMap};

use crate::device::{Device, pack};

/// Rows of A, and elements of a line of A and B.
const M: usize = 64;
const K: usize = 64;

/// How matrices lie in shared memory and in registers.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Columns of B.
    n: usize,
    /// Bytes of a line of a box: 16 without swizzle, or 32, 64, 128.
    width: usize,
    /// Whether B lies by lines of k, not of n.
    across: bool,
    /// Whether A is in registers.
    in_registers: bool,
    /// Whether A is negated.
    negated: bool,
}

impl Case {
    /// Boxes of a matrix of `lines` lines of `length` elements that lie together, and bytes of one.
    fn boxes(&self, lines: usize, length: usize) -> (usize, usize) {
        (2 * length / self.width, lines * self.width)
    }

    /// The descriptor of step `step` without its start, and the bytes to its start.
    fn descriptor(&self, lines: usize, across: bool, step: usize) -> (u64, usize) {
        let (width, eight) = (self.width, 8 * self.width);
        let one = lines * width;
        let (start, leading, stride) = match (across, width) {
            (false, 16) => (2 * step * one, one, eight),
            (false, _) => (32 * step / width * one + 32 * step % width, 0, eight),
            (true, 16) => (16 * step * width, eight, K * width),
            (true, _) => (16 * step * width, K * width, eight),
        };
        let swizzle = match width {
            128 => 1u64,
            64 => 2,
            32 => 3,
            _ => 0,
        };
        (swizzle << 62 | (stride as u64 / 16) << 32 | (leading as u64 / 16) << 16, start)
    }

    fn source(&self) -> String {
        let n = self.n;
        let d: Vec<String> = (0..n / 2).map(|at| format!("%d{at}")).collect();
        let mut text = format!(
            ".version 8.6\n.target sm_90a\n.address_size 64\n\
             .visible .entry k(.param .align 64 .b8 ma[128], .param .align 64 .b8 mb[128], .param .u64 a, .param .u64 to) {{\n\
             .reg .pred %p, %done; .reg .b32 %r<9>, %buf, %bar, %x<4>; .reg .f32 %d<{}>; .reg .b64 %rd<9>, %ma, %mb, %da, %db;\n\
             .shared .align 1024 .b8 buf[24576]; .shared .align 8 .b64 bar;\n\
             mov.b64 %ma, ma; cvta.param.u64 %ma, %ma; mov.b64 %mb, mb; cvta.param.u64 %mb, %mb;\n\
             mov.u32 %buf, buf; mov.u32 %bar, bar; mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 0; @%p bra ready;\n\
             mbarrier.init.shared.b64 [%bar], 1;\n\
             mbarrier.arrive.expect_tx.shared.b64 _, [%bar], {};\n",
            n / 2,
            2 * K * (M + n)
        );
        let mut load = |map: &str, base: usize, lines: usize, length: usize| {
            let (count, bytes) = self.boxes(lines, length);
            for index in 0..count {
                let (at, x) = (base + index * bytes, index * self.width / 2);
                writeln!(
                    text,
                    "add.u32 %r2, %buf, {at}; cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes \
                     [%r2], [{map}, {{{x}, 0}}], [%bar];"
                )
                .unwrap();
            }
        };
        load("%ma", 0, M, K);
        match self.across {
            true => load("%mb", 8192, K, n),
            false => load("%mb", 8192, n, K),
        }
        text.push_str(
            "ready: bar.sync 0;\n wait: mbarrier.try_wait.parity.shared.b64 %done, [%bar], 0; @!%done bra wait;\n\
             cvt.u64.u32 %rd1, %buf; shr.u64 %rd1, %rd1, 4;\n wgmma.fence.sync.aligned;\n\
             ld.param.u64 %rd2, [a]; and.b32 %r3, %r1, 31; shr.u32 %r4, %r1, 5; shr.u32 %r5, %r3, 2;\n\
             mad.lo.u32 %r4, %r4, 16, %r5; and.b32 %r5, %r3, 3; shl.b32 %r4, %r4, 7; mad.lo.u32 %r4, %r5, 4, %r4;\n\
             cvt.u64.u32 %rd3, %r4; add.u64 %rd2, %rd2, %rd3;\n",
        );
        for step in 0..K / 16 {
            let (a, a_start) = self.descriptor(M, false, step);
            let (b, b_start) = self.descriptor(if self.across { K } else { n }, self.across, step);
            let (a_at, b_at) = (a_start / 16, (8192 + b_start) / 16);
            let at = 32 * step;
            writeln!(
                text,
                "add.u64 %da, %rd1, {a_at}; or.b64 %da, %da, {a}; add.u64 %db, %rd1, {b_at}; or.b64 %db, %db, {b};\n\
                 ld.global.b32 %x0, [%rd2+{at}]; ld.global.b32 %x1, [%rd2+{}]; ld.global.b32 %x2, [%rd2+{}];\n\
                 ld.global.b32 %x3, [%rd2+{}]; setp.ne.u32 %p, {step}, 0;",
                at + 8 * 128,
                at + 16,
                at + 8 * 128 + 16
            )
            .unwrap();
            let (first, flags) = match self.in_registers {
                true => ("{%x0, %x1, %x2, %x3}", ""),
                false => ("%da", "0, "),
            };
            let sign = if self.negated { -1 } else { 1 };
            let across = u8::from(self.across);
            writeln!(
                text,
                "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{}}}, {first}, %db, %p, {sign}, 1, {flags}{across};",
                d.join(", ")
            )
            .unwrap();
        }
        text.push_str(
            "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\nld.param.u64 %rd4, [to];\n",
        );
        writeln!(text, "mul.wide.u32 %rd5, %r1, {}; add.u64 %rd4, %rd4, %rd5;", 2 * n).unwrap();
        for (at, register) in d.iter().enumerate() {
            writeln!(text, "st.global.f32 [%rd4+{}], {register};", 4 * at).unwrap();
        }
        text + "ret; }\n"
    }

    /// The map of a matrix of `lines` lines of `length` numbers of 16 bits.
    fn map(&self, address: u64, lines: usize, length: usize) -> Vec<u8> {
        let with = |first: u32, second: u32| [first, second, 1, 1, 1];
        let map = TensorMap {
            address,
            element_bytes: 2,
            data_type: 6,
            rank: 2,
            outside: 0,
            swizzle: (self.width as u32 / 16).trailing_zeros(),
            sizes: [length as u64, lines as u64, 1, 1, 1],
            strides: [2 * length as u64, 0, 0, 0],
            spans: with(self.width as u32 / 2, lines as u32),
            steps: [1; MAX_RANK],
            pixels: None,
        };
        map.to_bytes().to_vec()
    }
}

/// The bits of small whole numbers in `.bf16`.
fn halves(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| ((number.to_bits() >> 16) as u16).to_le_bytes()).collect()
}

fn run(case: Case, random: &mut Random) {
    let device = Device::watched(case.n == 32);
    let linked = device.load(&case.source());
    let mut numbers = |count: usize| (0..count).map(|_| random.index(17) as f32 - 8.0).collect::<Vec<f32>>();
    let (a, b) = (numbers(M * K), numbers(case.n * K));
    // B by lines of k is the transpose.
    let given: Vec<f32> = match case.across {
        false => b.clone(),
        true => (0..K * case.n).map(|at| b[at % case.n * K + at / case.n]).collect(),
    };
    let (lines, length) = if case.across { (K, case.n) } else { (case.n, K) };
    let (address_a, address_b) = (device.upload(&halves(&a)), device.upload(&halves(&given)));
    let to = device.upload(&vec![0; 4 * M * case.n]);
    let values = [
        case.map(address_a, M, K),
        case.map(address_b, lines, length),
        address_a.to_le_bytes().to_vec(),
        to.to_le_bytes().to_vec(),
    ];
    let kernel = linked.program().kernel("k").unwrap();
    let params = LaunchParams {
        config: LaunchConfig::new([1; 3], [128, 1, 1]),
        cooperative: false,
        stack: 1024,
        workers: 1,
        params: &pack(&linked, kernel, &values),
    };
    device.run(&linked, kernel, &params).unwrap_or_else(|fault| panic!("{case:?}: {fault}"));
    let found = device.download(to, 4 * M * case.n);
    let sign = if case.negated { -1.0 } else { 1.0 };
    for (index, bytes) in found.chunks_exact(4).enumerate() {
        let (thread, register) = (index / (case.n / 2), index % (case.n / 2));
        let row = thread / 32 * 16 + thread % 32 / 4 + register % 4 / 2 * 8;
        let column = register / 4 * 8 + thread % 4 * 2 + register % 2;
        let product: f32 = (0..K).map(|k| a[row * K + k] * b[column * K + k]).sum();
        let value = f32::from_le_bytes(bytes.try_into().unwrap());
        assert!(value == sign * product, "{case:?}: {value} at {row}, {column}, not {product}");
    }
}

#[test]
fn products_of_warp_groups_are_exact_on_integers() {
    let mut random = Random::new(5);
    for width in [16, 32, 64, 128] {
        for across in [false, true] {
            let in_registers = across == (width == 64);
            for n in [32, 64, 128] {
                // A box of B has lines of n.
                if !across || 2 * n >= width {
                    run(Case { n, width, across, in_registers, negated: n == 32 }, &mut random);
                }
            }
        }
    }
}

#[test]
fn bits_are_counted_that_both_factors_have() {
    let device = Device::watched(false);
    // Both factors are the first four core matrices, whose words are all the same.
    let linked = device.load(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 to) {\n\
         .reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .pred %p; .shared .align 128 .b8 pool[16384];\n\
         mov.u32 %r0, %tid.x; mov.u32 %r1, pool; mad.lo.u32 %r2, %r0, 4, %r1; mov.u32 %r3, 0;\n\
         fill: st.shared.u32 [%r2], 0x80000007; add.u32 %r2, %r2, 512; add.u32 %r3, %r3, 1;\n\
         setp.lt.u32 %p, %r3, 32; @%p bra fill; bar.sync 0;\n\
         shr.u32 %r4, %r1, 4; cvt.u64.u32 %rd0, %r4; or.b64 %rd0, %rd0, 0x800080000;\n\
         mov.u32 %r5, 7; mov.u32 %r6, 7; mov.u32 %r7, 7; mov.u32 %r8, 7;\n\
         wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%r5, %r6, %r7, %r8}, %rd0, %rd0, 1;\n\
         ld.param.u64 %rd1, [to]; mul.wide.u32 %rd2, %r0, 16; add.u64 %rd1, %rd1, %rd2;\n\
         st.global.v4.u32 [%rd1], {%r5, %r6, %r7, %r8};\nret; }\n",
    );
    let to = device.upload(&[0; 2048]);
    let kernel = linked.program().kernel("k").unwrap();
    let params = LaunchParams {
        config: LaunchConfig::new([1; 3], [128, 1, 1]),
        cooperative: false,
        stack: 0,
        workers: 1,
        params: &pack(&linked, kernel, &[to.to_le_bytes().to_vec()]),
    };
    device.run(&linked, kernel, &params).unwrap_or_else(|fault| panic!("{fault}"));
    let sums = device.download(to, 2048);
    assert!(sums.chunks_exact(4).all(|sum| sum == (7 + 8 * 4u32).to_le_bytes()), "{sums:?}");
}
