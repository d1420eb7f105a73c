//! Random kernels of what can become machine code, and of some that cannot.

use std::fmt::Write;

use apex_random::Random;

/// Words of the array that kernels read and write.
pub const ELEMENTS: u32 = 4096;

/// Words that each thread writes at its end.
pub const RESULTS: u32 = 26;

/// A kernel that is being written.
pub struct Kernel {
    random: Random,
    /// What lanes and warps exchange is chosen apart from the rest.
    exchanges: Random,
    body: String,
    labels: u32,
    loops: u32,
    branches: u32,
    threads: u32,
}

impl Kernel {
    /// The kernel of a seed, and the threads of its blocks.
    pub fn write(seed: u64) -> (String, u32) {
        let mut random = Random::new(seed);
        let threads = random.choose(&[32, 64, 96, 128, 256, 40]);
        let exchanges = Random::new(!seed);
        let mut kernel =
            Kernel { random, exchanges, body: String::new(), labels: 0, loops: 0, branches: 0, threads };
        let parts = 4 + kernel.random.below(10);
        for _ in 0..parts {
            kernel.part();
            kernel.perhaps_exchange();
        }
        let mut results = String::new();
        for index in 0..8 {
            writeln!(results, "st.global.f32 [%rd2+{}], %f{index};", 4 * index).unwrap();
            writeln!(results, "st.global.u32 [%rd2+{}], %r{index};", 32 + 4 * index).unwrap();
        }
        for index in 0..2 {
            writeln!(results, "st.global.u64 [%rd2+{}], %rl{index};", 64 + 8 * index).unwrap();
            writeln!(results, "st.global.f64 [%rd2+{}], %fd{index};", 80 + 8 * index).unwrap();
        }
        for index in 0..4 {
            writeln!(results, "st.global.u16 [%rd2+{}], %h{index};", 96 + 2 * index).unwrap();
        }
        let source = format!(
            ".version 7.0\n.target sm_80\n.address_size 64\n
             .visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n) {{
                 .reg .pred %p<8>; .reg .b32 %r<10>; .reg .b32 %t<10>; .reg .b32 %n<8>; .reg .f32 %f<10>;
                 .reg .b64 %rd<12>; .reg .b64 %rl<6>; .reg .f64 %fd<4>; .reg .b16 %h<4>;
                 .reg .b64 %ll<2>; .reg .b32 %ln<2>; .reg .pred %lp;
                 .shared .align 16 .b8 memory[{shared}]; .local .align 16 .b8 own[64];
                 ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; ld.param.u32 %t9, [n];
                 mov.u32 %t1, %tid.x; mov.u32 %t2, %ctaid.x; mov.u32 %t3, %ntid.x;
                 mad.lo.u32 %t0, %t2, %t3, %t1;
                 mul.wide.u32 %rd3, %t0, {stride}; add.s64 %rd2, %rd2, %rd3;
                 mul.wide.u32 %rd3, %t0, 4; add.s64 %rd4, %rd1, %rd3;
                 mov.u32 %t6, memory; mad.lo.u32 %t6, %t1, 4, %t6; add.s64 %rd10, %rd4, %rd3;
                 mov.u32 %t7, memory; mad.lo.u32 %t7, %t1, 8, %t7;
                 ld.global.u32 %r0, [%rd4]; ld.global.u32 %r1, [%rd4+1024]; ld.global.u32 %r2, [%rd4+2048];
                 mov.u32 %r3, %t1; mov.u32 %r4, %t2; mov.u32 %r5, 7; mov.u32 %r6, %laneid; mov.u32 %r7, %t9;
                 ld.global.f32 %f0, [%rd4+512]; ld.global.f32 %f1, [%rd4+1536]; ld.global.f32 %f2, [%rd4+2560];
                 mov.f32 %f3, 0f3F800000; mov.f32 %f4, 0f40490FDB; mov.f32 %f5, %f0; mov.f32 %f6, %f1;
                 cvt.rn.f32.s32 %f7, %r3;
                 cvt.u64.u32 %rl0, %r0; cvt.s64.s32 %rl1, %r1; mov.u64 %rl2, 12345678901; mov.u64 %rl3, %rd3;
                 ld.global.f64 %fd0, [%rd10]; cvt.f64.f32 %fd1, %f1; cvt.rn.f64.s32 %fd2, %r1; mov.f64 %fd3, %fd0;
                 setp.lt.u32 %p0, %t1, 20; setp.gt.f32 %p1, %f0, %f1; setp.ne.s32 %p2, %r0, %r1;
                 setp.eq.u32 %p3, %r6, 3;
                 cvt.u16.u32 %h0, %r0; cvt.u16.u32 %h1, %r1; cvt.rn.f16.f32 %h2, %f0; mov.u16 %h3, 3;
                 st.shared.u32 [%t6], %r0; mov.u64 %ll0, own;
                 st.local.v4.u32 [%ll0], {{%r0, %r1, %r2, %r3}}; st.local.v4.u32 [%ll0+16], {{%r3, %r1, %r0, %r2}};
                 st.local.v4.u32 [%ll0+32], {{%r4, %r0, %r6, %r1}}; st.local.v4.u32 [%ll0+48], {{%r1, %r2, %r5, %r0}};
                 {body}
                 DONE:
                 {results}
                 ret;
             }}",
            shared = 4 * 1024,
            stride = 4 * RESULTS,
            body = kernel.body,
        );
        (source, threads)
    }

    fn add(&mut self, line: std::fmt::Arguments) {
        self.body.write_fmt(line).unwrap();
        self.body.push('\n');
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    /// A guard, sometimes.
    fn guard(&mut self) -> String {
        match self.below(8) {
            0 => format!("@%p{} ", self.below(4)),
            1 => format!("@!%p{} ", self.below(4)),
            _ => String::new(),
        }
    }

    fn part(&mut self) {
        match self.below(17) {
            15 | 16 => {
                let count = 1 + self.below(6);
                (0..count).for_each(|_| self.narrow());
            }
            0..=5 => {
                let count = 1 + self.below(8);
                (0..count).for_each(|_| self.compute());
            }
            6 | 7 => self.access(),
            8 => self.shared(),
            9 | 10 => self.repeat(),
            11 | 12 => self.branch(),
            13 => self.leave_one_by_one(),
            _ => self.bar(),
        }
    }

    fn compute(&mut self) {
        let guard = self.guard();
        let [d, a, b, c] = [8, 8, 8, 8].map(|end| self.below(end));
        match self.below(24) {
            16..=23 => self.wide(&guard, [d, a, b, c]),
            0..=3 => {
                let op = self.random.choose(&["add", "sub", "mul", "min", "max", "div.rn"]);
                self.add(format_args!("{guard}{op}.f32 %f{d}, %f{a}, %f{b};"));
            }
            4 | 5 => self.add(format_args!("{guard}fma.rn.f32 %f{d}, %f{a}, %f{b}, %f{c};")),
            6 => {
                let op = self.random.choose(&["neg", "abs", "sqrt.rn", "rcp.rn", "mov"]);
                self.add(format_args!("{guard}{op}.f32 %f{d}, %f{a};"));
            }
            7 => {
                let relation = self.random.choose(&[
                    "eq", "ne", "lt", "le", "gt", "ge", "num", "nan", "equ", "neu", "ltu", "leu", "gtu",
                    "geu",
                ]);
                let d = d % 4;
                self.add(format_args!("{guard}setp.{relation}.f32 %p{d}, %f{a}, %f{b};"));
            }
            8 => {
                let relation = self.random.choose(&["eq", "ne", "lt", "le", "gt", "ge"]);
                let ty = self.random.choose(&["s32", "u32"]);
                let d = d % 4;
                self.add(format_args!("{guard}setp.{relation}.{ty} %p{d}, %r{a}, %r{b};"));
            }
            9 => {
                let relation = self.random.choose(&["eq", "ne", "lt", "le", "gt", "ge"]);
                let ty = self.random.choose(&["s64", "u64"]);
                let [d, a, b] = [d, a, b].map(|index| index % 4);
                self.add(format_args!("{guard}setp.{relation}.{ty} %p{d}, %rl{a}, %rl{b};"));
            }
            10 | 11 => {
                let op = self.random.choose(&[
                    "add.s32",
                    "sub.s32",
                    "mul.lo.s32",
                    "and.b32",
                    "or.b32",
                    "xor.b32",
                    "shl.b32",
                    "shr.u32",
                    "shr.s32",
                    "min.s32",
                    "min.u32",
                    "max.s32",
                    "max.u32",
                ]);
                self.add(format_args!("{guard}{op} %r{d}, %r{a}, %r{b};"));
            }
            12 => match self.below(4) {
                0 => self.add(format_args!("{guard}mad.lo.s32 %r{d}, %r{a}, %r{b}, %r{c};")),
                1 => self.add(format_args!("{guard}selp.b32 %r{d}, %r{a}, %r{b}, %p{};", c % 4)),
                2 => self.add(format_args!("{guard}selp.f32 %f{d}, %f{a}, %f{b}, %p{};", c % 4)),
                _ => self.add(format_args!("{guard}cvt.rn.f32.s32 %f{d}, %r{a};")),
            },
            13 | 14 => self.long(&guard, [d, a, b, c]),
            _ => match self.below(5) {
                0 => self.add(format_args!("{guard}mov.b32 %r{d}, %f{a};")),
                1 => self.add(format_args!("{guard}mov.b32 %f{d}, %r{a};")),
                2 => self.add(format_args!("{guard}neg.s32 %r{d}, %r{a};")),
                3 => self.add(format_args!("{guard}not.b32 %r{d}, %r{a};")),
                _ => {
                    let op = self.random.choose(&["and", "or", "xor"]);
                    let [d, a, b] = [d, a, b].map(|index| index % 4);
                    self.add(format_args!("{guard}{op}.pred %p{d}, %p{a}, %p{b};"));
                }
            },
        }
    }

    /// `.f64`, conversions, and what takes several instructions.
    fn wide(&mut self, guard: &str, [d, a, b, c]: [u64; 4]) {
        let [ld, la, lb, lc] = [d, a, b, c].map(|index| index % 4);
        match self.below(16) {
            0 | 1 => {
                let op = self.random.choose(&["add", "sub", "mul", "min", "max", "div.rn", "add", "mul"]);
                self.add(format_args!("{guard}{op}.f64 %fd{ld}, %fd{la}, %fd{lb};"));
            }
            2 | 3 => self.add(format_args!("{guard}fma.rn.f64 %fd{ld}, %fd{la}, %fd{lb}, %fd{lc};")),
            4 => {
                let op = self.random.choose(&[
                    "neg",
                    "abs",
                    "sqrt.rn",
                    "rcp.rn",
                    "mov",
                    "cvt.rmi.f64",
                    "cvt.rzi.f64",
                    "cvt.rni.f64",
                ]);
                self.add(format_args!("{guard}{op}.f64 %fd{ld}, %fd{la};"));
            }
            5 => {
                let relation = self.random.choose(&["eq", "ne", "lt", "le", "gt", "geu", "num", "nan"]);
                self.add(format_args!("{guard}setp.{relation}.f64 %p{ld}, %fd{la}, %fd{lb};"));
            }
            6 => match self.below(4) {
                0 => self.add(format_args!("{guard}cvt.rn.f32.f64 %f{d}, %fd{la};")),
                1 => self.add(format_args!("{guard}cvt.f64.f32 %fd{ld}, %f{a};")),
                2 => self.add(format_args!("{guard}cvt.rn.f64.s32 %fd{ld}, %r{a};")),
                _ => self.add(format_args!("{guard}cvt.rn.f64.u32 %fd{ld}, %r{a};")),
            },
            7 => {
                let op = self.random.choose(&["cvt.rzi.s32", "cvt.rni.s32", "cvt.rmi.s32", "cvt.rpi.s32"]);
                match self.below(2) {
                    0 => self.add(format_args!("{guard}{op}.f64 %r{d}, %fd{la};")),
                    _ => self.add(format_args!("{guard}{op}.f32 %r{d}, %f{a};")),
                }
            }
            8 => {
                let op = self.random.choose(&[
                    "cvt.rzi.u32.f32 %r",
                    "cvt.rni.u32.f32 %r",
                    "cvt.rmi.f32.f32 %f",
                    "cvt.rpi.f32.f32 %f",
                    "cvt.sat.f32.f32 %f",
                    "ex2.approx.ftz.f32 %f",
                    "ex2.approx.f32 %f",
                    "rsqrt.approx.f32 %f",
                    "rcp.approx.f32 %f",
                    "sqrt.approx.f32 %f",
                ]);
                self.add(format_args!("{guard}{op}{d}, %f{a};"));
            }
            9 => {
                let op = self.random.choose(&[
                    "div.u32",
                    "div.s32",
                    "rem.u32",
                    "rem.s32",
                    "mul.hi.u32",
                    "mul.hi.s32",
                ]);
                self.add(format_args!("{guard}{op} %r{d}, %r{a}, %r{b};"));
            }
            10 => {
                let op = self.random.choose(&["mul.lo.s64", "min.s64", "max.s64", "min.u64", "max.u64"]);
                self.add(format_args!("{guard}{op} %rl{ld}, %rl{la}, %rl{lb};"));
            }
            11 => match self.below(4) {
                0 => self.add(format_args!("{guard}mad.lo.s64 %rl{ld}, %rl{la}, %rl{lb}, %rl{lc};")),
                1 => self.add(format_args!("{guard}shr.s64 %rl{ld}, %rl{la}, %r{c};")),
                2 => self.add(format_args!("{guard}neg.s64 %rl{ld}, %rl{la};")),
                _ => self.add(format_args!("{guard}abs.s32 %r{d}, %r{a};")),
            },
            12 => {
                let op = self.random.choose(&["shf.l.wrap.b32", "shf.r.wrap.b32"]);
                self.add(format_args!("{guard}{op} %r{d}, %r{a}, %r{b}, %r{c};"));
            }
            13 => match self.below(4) {
                0 => self.add(format_args!("{guard}cvt.rn.f32.u32 %f{d}, %r{a};")),
                1 => self.add(format_args!("{guard}cvt.s32.s8 %r{d}, %r{a};")),
                2 => self.add(format_args!("{guard}cvt.u16.u32 %r{d}, %r{a};")),
                _ => self.add(format_args!("{guard}cvt.s32.s16 %r{d}, %r{a};")),
            },
            14 => {
                let op = self.random.choose(&["fma.rm", "fma.rz", "fma.rp"]);
                self.add(format_args!("{guard}{op}.f32 %f{d}, %f{a}, %f{b}, %f{c};"));
            }
            _ => match self.below(2) {
                0 => self.add(format_args!("{guard}div.approx.f32 %f{d}, %f{a}, %f{b};")),
                _ => self.add(format_args!("{guard}selp.f64 %fd{ld}, %fd{la}, %fd{lb}, %p{lc};")),
            },
        }
    }

    fn long(&mut self, guard: &str, [d, a, b, c]: [u64; 4]) {
        let [ld, la, lb] = [d, a, b].map(|index| index % 4);
        match self.below(6) {
            0 | 1 => {
                let op = self.random.choose(&["add.s64", "sub.s64", "and.b64", "or.b64", "xor.b64"]);
                self.add(format_args!("{guard}{op} %rl{ld}, %rl{la}, %rl{lb};"));
            }
            2 => {
                let op = self.random.choose(&["shl.b64", "shr.u64"]);
                self.add(format_args!("{guard}{op} %rl{ld}, %rl{la}, %r{c};"));
            }
            3 => {
                let ty = self.random.choose(&["s32", "u32"]);
                self.add(format_args!("{guard}mad.wide.{ty} %rl{ld}, %r{a}, %r{b}, %rl{lb};"));
            }
            4 => self.add(format_args!("{guard}selp.b64 %rl{ld}, %rl{la}, %rl{lb}, %p{};", c % 4)),
            _ => self.add(format_args!("{guard}cvt.u32.u64 %r{d}, %rl{la};")),
        }
    }

    /// An access to global memory; seldom to an address beyond it.
    fn access(&mut self) {
        let guard = self.guard();
        let [d, a] = [8, 8].map(|end| self.below(end));
        let offset = 4 * self.below(64);
        match self.below(12) {
            // Longs: of each thread, or anywhere.
            9 => {
                let offset = 2 * offset;
                self.add(format_args!("{guard}ld.global.f64 %fd{}, [%rd10+{offset}];", d % 4));
            }
            10 => {
                self.add(format_args!("and.b32 %n1, %r{a}, 1023; mul.wide.u32 %rd7, %n1, 8;"));
                self.add(format_args!("add.s64 %rd7, %rd1, %rd7;"));
                match self.below(2) {
                    0 => self.add(format_args!("{guard}ld.global.f64 %fd{}, [%rd7+8];", d % 4)),
                    _ => self.add(format_args!(
                        "and.b32 %n1, %r{a}, 1022; mul.wide.u32 %rd7, %n1, 8; add.s64 %rd7, %rd1, %rd7;
                         {guard}ld.global.v2.f64 {{%fd0, %fd1}}, [%rd7];"
                    )),
                }
            }
            11 => {
                let at = 8 * self.below(u64::from(RESULTS) / 2);
                self.add(format_args!("{guard}st.global.f64 [%rd2+{at}], %fd{};", d % 4));
            }
            // Anywhere in the array.
            0 | 1 => {
                let element = self.random.choose(&[
                    "and.b32 %n0, %r{a}, 2047;",
                    "mov.u32 %n0, %t1;",
                    "mov.u32 %n0, %t2;",
                ]);
                let element = element.replace("{a}", &a.to_string());
                self.add(format_args!("{element} mul.wide.u32 %rd5, %n0, 4; add.s64 %rd6, %rd1, %rd5;"));
                let ty = self.random.choose(&["u32 %r", "f32 %f"]);
                self.add(format_args!("{guard}ld.global.{ty}{d}, [%rd6+{offset}];"));
                if self.below(2) == 0 {
                    self.add(format_args!("{guard}ld.global.f32 %f{a}, [%rd6+{}];", offset + 16));
                }
            }
            2 => self.add(format_args!("{guard}ld.global.f32 %f{d}, [%rd4+{offset}];")),
            3 => {
                let index = 16 * self.below(8);
                self.add(format_args!("{guard}ld.global.v4.f32 {{%f0, %f1, %f2, %f3}}, [%rd1+{index}];"));
            }
            4 => {
                self.add(format_args!(
                    "and.b32 %n1, %r{a}, 255; mul.wide.u32 %rd7, %n1, 8; add.s64 %rd7, %rd1, %rd7;"
                ));
                self.add(format_args!("{guard}ld.global.v2.f32 {{%f{d}, %f{}}}, [%rd7];", (d + 1) % 8));
            }
            // Each thread has words of its own.
            5 | 6 => {
                let at = 4 * self.below(RESULTS.into());
                self.add(format_args!("{guard}st.global.f32 [%rd2+{at}], %f{d};"));
            }
            7 => {
                self.add(format_args!("add.s64 %rd8, %rd2, 0; {guard}st.global.u32 [%rd8], %r{d};"));
                self.add(format_args!("{guard}ld.global.u32 %r{a}, [%rd8];"));
            }
            _ if self.below(4) == 0 => {
                // Beyond, or misaligned, in some threads.
                let (bound, far) =
                    (1 + self.below(60), self.random.choose(&["100000000", "2", "-100000000"]));
                self.add(format_args!("setp.gt.s32 %p4, %t1, {bound}; selp.b32 %n2, {far}, 0, %p4;"));
                self.add(format_args!("mul.wide.s32 %rd9, %n2, 1; add.s64 %rd9, %rd4, %rd9;"));
                match self.below(2) {
                    0 => self.add(format_args!("ld.global.f32 %f{d}, [%rd9+{offset}];")),
                    _ => self.add(format_args!("ld.global.f32 %f{d}, [%rd4]; ld.global.u32 %r{a}, [%rd9];")),
                }
            }
            _ => self.add(format_args!("{guard}ld.global.u32 %r{d}, [%rd4+{offset}];")),
        }
    }

    /// Integers of one and two bytes, and halves.
    fn narrow(&mut self) {
        let guard = self.guard();
        let [d, a, b] = [4, 4, 4].map(|end| self.below(end));
        let r = self.below(8);
        match self.below(14) {
            0 | 1 => {
                let ty = self.random.choose(&["u8", "s8", "u16", "s16", "b16"]);
                let place = self.random.choose(&["rd4", "rd10", "rd1"]);
                let offset = 2 * self.below(100);
                self.add(format_args!("{guard}ld.global.{ty} %h{d}, [%{place}+{offset}];"));
            }
            2 | 3 => {
                let (ty, bytes) = self.random.choose(&[("u8", 1), ("s8", 1), ("u16", 2), ("s16", 2)]);
                let index = match self.below(2) {
                    0 => "mov.u32 %n1, %t0;".to_owned(),
                    _ => format!("and.b32 %n1, %r{r}, 1023;"),
                };
                self.add(format_args!("{index} mul.wide.u32 %rd7, %n1, {bytes}; add.s64 %rd7, %rd1, %rd7;"));
                match self.below(2) {
                    0 => self.add(format_args!("{guard}ld.global.{ty} %h{d}, [%rd7+{bytes}];")),
                    _ => self.add(format_args!("{guard}ld.global.{ty} %r{r}, [%rd7];")),
                }
            }
            4 => {
                let ty = self.random.choose(&["u8", "u16", "b16"]);
                let at = 2 * self.below(2 * u64::from(RESULTS));
                self.add(format_args!("{guard}st.global.{ty} [%rd2+{at}], %h{d};"));
            }
            5 | 6 => {
                let op = self.random.choose(&[
                    "add.s16",
                    "add.u16",
                    "sub.s16",
                    "mul.lo.s16",
                    "mul.lo.u16",
                    "min.s16",
                    "max.u16",
                    "min.u16",
                    "and.b16",
                    "or.b16",
                    "xor.b16",
                ]);
                self.add(format_args!("{guard}{op} %h{d}, %h{a}, %h{b};"));
            }
            7 => {
                let op = self.random.choose(&["shl.b16", "shr.u16", "shr.s16"]);
                self.add(format_args!("{guard}{op} %h{d}, %h{a}, %r{r};"));
            }
            8 => {
                let ty = self.random.choose(&["s8", "u8", "s16", "u16"]);
                self.add(format_args!("{guard}cvt.rn.f32.{ty} %f{r}, %h{a};"));
            }
            9 => self.add(format_args!("{guard}cvt.f32.f16 %f{r}, %h{a};")),
            10 => self.add(format_args!("{guard}cvt.rn.f16.f32 %h{d}, %f{r};")),
            11 => {
                let (relation, ty) = (
                    self.random.choose(&["eq", "ne", "lt", "le", "gt", "ge"]),
                    self.random.choose(&["s16", "u16"]),
                );
                self.add(format_args!("setp.{relation}.{ty} %p{d}, %h{a}, %h{b};"));
                self.add(format_args!("selp.b16 %h{d}, %h{a}, %h{b}, %p{d};"));
            }
            12 => {
                let ty = self.random.choose(&["s16", "u16"]);
                self.add(format_args!("{guard}mul.wide.{ty} %r{r}, %h{a}, %h{b};"));
            }
            _ => {
                let both =
                    self.random.choose(&[("u32.u16", "r", "h"), ("s32.s8", "r", "h"), ("u16.u32", "h", "r")]);
                let (kind, to, from) = both;
                self.add(format_args!("{guard}cvt.{kind} %{to}{d}, %{from}{a};"));
            }
        }
    }

    /// Shared memory: each thread writes its own word, and all read any after a barrier.
    fn shared(&mut self) {
        let [d, a] = [8, 8].map(|end| self.below(end));
        let guard = self.guard();
        self.add(format_args!("{guard}st.shared.u32 [%t6], %r{a};"));
        self.add(format_args!("bar.sync 0;"));
        let mask = self.threads.next_power_of_two() / 2 - 1;
        match self.below(5) {
            4 => {
                let at = 2048 + 8 * self.below(16);
                self.add(format_args!("st.shared.f64 [%t7+2048], %fd{};", d % 4));
                self.add(format_args!("bar.sync 0; ld.shared.f64 %fd{}, [memory+{at}];", a % 4));
            }
            0 => self.add(format_args!("ld.shared.u32 %r{d}, [%t6];")),
            1 => {
                let at = 4 * self.below(16);
                self.add(format_args!("ld.shared.u32 %r{d}, [memory+{at}];"));
            }
            2 => {
                self.add(format_args!(
                    "and.b32 %n3, %r{a}, {mask}; shl.b32 %n3, %n3, 2; mov.u32 %n4, memory;"
                ));
                self.add(format_args!("add.u32 %n3, %n3, %n4; {guard}ld.shared.f32 %f{d}, [%n3];"));
            }
            _ => {
                self.add(format_args!("and.b32 %n3, %t1, 7; shl.b32 %n3, %n3, 4; mov.u32 %n4, memory;"));
                self.add(format_args!(
                    "add.u32 %n3, %n3, %n4; ld.shared.f32 %f{d}, [%n3]; ld.shared.f32 %f{a}, [%n3+12];"
                ));
            }
        }
        self.add(format_args!("bar.sync 0;"));
    }

    /// A loop whose number of rounds is the same in all threads, or nearly.
    fn repeat(&mut self) {
        if self.loops == 2 {
            return self.compute();
        }
        self.labels += 1;
        self.loops += 1;
        let (label, counter) = (self.labels, 4 + self.loops);
        let rounds = match self.below(4) {
            0 => "5".to_owned(),
            1 => "%t9".to_owned(),
            2 => "%t2".to_owned(),
            _ => format!("{}", self.below(6)),
        };
        let first = self.random.choose(&["0", "0", "0", "%t2"]);
        self.add(format_args!("mov.u32 %n{counter}, {first};"));
        self.add(format_args!("loop{label}:"));
        let count = 1 + self.below(4);
        for _ in 0..count {
            self.perhaps_exchange();
            match self.below(9) {
                0 => self.access(),
                1 if self.loops == 1 => self.repeat(),
                2..=4 if self.branches == 0 => self.branch(),
                _ => self.compute(),
            }
        }
        let condition = self.random.choose(&["%p5", "%p6"]);
        self.add(format_args!("add.u32 %n{counter}, %n{counter}, 1;"));
        self.add(format_args!(
            "setp.lt.u32 {condition}, %n{counter}, {rounds}; @{condition} bra loop{label};"
        ));
        self.loops -= 1;
    }

    /// A branch that threads may take differently, with another part for the others or not.
    fn branch(&mut self) {
        self.labels += 1;
        self.branches += 1;
        let label = self.labels;
        let condition = match self.below(4) {
            0 => "setp.gt.u32 %p7, %t2, 1; @%p7".to_owned(),
            1 | 2 => format!("@%p{}", self.below(4)),
            _ => "setp.gt.u32 %p7, %t1, 63; @!%p7".to_owned(),
        };
        self.add(format_args!("{condition} bra over{label};"));
        self.branch_part();
        if self.below(2) == 0 {
            self.add(format_args!("bra.uni met{label};"));
            self.add(format_args!("over{label}:"));
            self.branch_part();
            self.add(format_args!("met{label}:"));
        } else {
            self.add(format_args!("over{label}:"));
        }
        self.branches -= 1;
    }

    fn branch_part(&mut self) {
        for _ in 0..1 + self.below(5) {
            self.perhaps_own();
            match self.below(8) {
                0 | 1 => self.access(),
                2 if self.branches < 3 => self.branch(),
                _ => self.compute(),
            }
        }
    }

    /// A loop that each thread leaves after a number of rounds of its own.
    fn leave_one_by_one(&mut self) {
        self.labels += 1;
        let label = self.labels;
        let rounds =
            self.random.choose(&["and.b32 %n7, %r0, 15;", "and.b32 %n7, %t1, 3;", "mov.u32 %n7, %t1;"]);
        self.add(format_args!("{rounds} mov.u32 %n4, 0;"));
        self.add(format_args!("leave{label}:"));
        for _ in 0..1 + self.below(4) {
            let [d, a, b, c] = [8, 8, 8, 8].map(|end| self.below(end));
            // Every thread that is in the loop, whatever others do.
            let offset = 4 * self.exchanges.below(16);
            match self.exchanges.below(12) {
                0 => self.add(format_args!("st.local.u32 [%ll0+{offset}], %r{d};")),
                1 => self.add(format_args!("ld.local.u32 %r{d}, [%ll0+{offset}];")),
                _ => {}
            }
            match self.below(10) {
                5 => self.add(format_args!("ld.global.f32 %f{d}, [%rd4+{}];", 4 * a)),
                6 => self.add(format_args!(
                    "add.u32 %n0, %r{a}, %n4; and.b32 %n0, %n0, 2047; mul.wide.u32 %rd5, %n0, 4;
                     add.s64 %rd6, %rd1, %rd5; ld.global.u32 %r{d}, [%rd6];"
                )),
                7 => self.add(format_args!("st.global.f32 [%rd2+{}], %f{d};", 4 * a)),
                8 => self.add(format_args!("ld.global.f64 %fd{}, [%rd10+{}];", d % 4, 8 * a)),
                // Beyond, in the last rounds of some threads.
                9 if a == 0 => self.add(format_args!(
                    "setp.gt.u32 %p4, %n4, {}; selp.b32 %n2, 100000000, 0, %p4; mul.wide.s32 %rd9, %n2, 1;
                     add.s64 %rd9, %rd4, %rd9; ld.global.f32 %f{d}, [%rd9];",
                    1 + b
                )),
                9 => self.add(format_args!("st.shared.u32 [%t6], %r{d}; ld.shared.f32 %f{a}, [%t6];")),
                4 => self.add(format_args!("fma.rn.f64 %fd{}, %fd{}, %fd{}, %fd1;", d % 4, a % 4, b % 4)),
                0 => self.add(format_args!("fma.rn.f32 %f{d}, %f{a}, %f{b}, %f{c};")),
                1 => self.add(format_args!("add.s32 %r{d}, %r{a}, %r{b};")),
                2 => self.add(format_args!("sub.f32 %f{d}, %f{a}, %f{b};")),
                _ => self.add(format_args!("add.s64 %rl{}, %rl{}, %rl{};", d % 4, a % 4, b % 4)),
            }
        }
        self.add(format_args!("add.u32 %n4, %n4, 1; setp.lt.u32 %p7, %n4, %n7;"));
        match self.below(2) {
            0 => self.add(format_args!("@%p7 bra leave{label};")),
            _ => self.add(format_args!("not.pred %p7, %p7; @!%p7 bra leave{label};")),
        }
    }

    fn bar(&mut self) {
        self.add(format_args!("bar.sync 0;"));
    }

    /// An access to the thread's own memory, sometimes.
    fn perhaps_own(&mut self) {
        if self.exchanges.below(6) != 0 {
            return;
        }
        let guard = self.exchanges.choose(&["", "", "", "@%p0 ", "@!%p1 "]);
        let [d, a] = [8, 8].map(|end| self.exchanges.below(end));
        match self.exchanges.below(12) {
            0 | 1 => self.add(format_args!("{guard}st.local.u32 [%ll0+{}], %r{d};", 4 * a)),
            2 | 3 => self.add(format_args!("{guard}ld.local.f32 %f{d}, [%ll0+{}];", 4 * a)),
            4 => self.add(format_args!("{guard}st.local.f64 [%ll0+{}], %fd{};", 8 * a, d % 4)),
            5 => self.add(format_args!("{guard}ld.local.u64 %rl{}, [%ll0+{}];", d % 4, 8 * a)),
            6 => self.add(format_args!("{guard}ld.local.s8 %r{d}, [%ll0+{a}];")),
            7 => self.add(format_args!("{guard}st.local.u16 [%ll0+{}], %h{};", 2 * a, d % 4)),
            8 => self.add(format_args!(
                "{guard}ld.local.v2.u32 {{%r{d}, %r{}}}, [%ll0+{}];",
                (d + 1) % 8,
                8 * a
            )),
            9 if a == 0 => self.add(format_args!(
                "setp.eq.u32 %lp, %r6, {d}; selp.b32 %ln0, 100000, 0, %lp; cvt.u64.u32 %ll1, %ln0;
                 add.s64 %ll1, %ll1, %ll0; {guard}ld.local.u32 %r{d}, [%ll1];"
            )),
            n => {
                let access = match n % 2 {
                    0 => format!("ld.local.u32 %r{d}, [%ll1]"),
                    _ => format!("st.local.u32 [%ll1], %r{d}"),
                };
                self.add(format_args!(
                    "and.b32 %ln0, %r{a}, 15; mul.wide.u32 %ll1, %ln0, 4; add.s64 %ll1, %ll1, %ll0; {guard}{access};"
                ));
            }
        }
    }

    fn perhaps_exchange(&mut self) {
        self.perhaps_own();
        if self.exchanges.below(5) == 0 {
            self.exchange();
        }
    }

    /// Lanes of a warp, or warps of the block, exchange something.
    fn exchange(&mut self) {
        let [d, a, b] = [8, 8, 8].map(|end| self.exchanges.below(end));
        let [p, q] = [4, 4].map(|end| self.exchanges.below(end));
        let by = 1 << self.exchanges.below(5);
        match self.exchanges.below(14) {
            0 | 1 => {
                let control = self.exchanges.choose(&[0, 0x1c00, 0x1000]);
                self.add(format_args!("shfl.sync.up.b32 %r{d}|%p{p}, %r{a}, {by}, {control}, -1;"));
            }
            2..=4 => {
                let mode = self.exchanges.choose(&["down", "bfly", "idx"]);
                let control = self.exchanges.choose(&[31, 31, 0x1c1f, 0x181f, 7]);
                let (result, source) = self.exchanges.choose(&[("r", "r"), ("f", "f")]);
                self.add(format_args!(
                    "shfl.sync.{mode}.b32 %{result}{d}|%p{p}, %{source}{a}, {by}, {control}, -1;"
                ));
            }
            5 => self.add(format_args!("shfl.sync.idx.b32 %r{d}|%p{p}, %r{a}, %r{b}, 31, -1;")),
            6 => {
                let mode = self.exchanges.choose(&["all", "any", "uni"]);
                self.add(format_args!("vote.sync.{mode}.pred %p{p}, %p{q}, -1;"));
            }
            7 => self.add(format_args!("vote.sync.ballot.b32 %r{d}, %p{q}, -1;")),
            8 => self.add(format_args!("match.any.sync.b32 %r{d}, %r{a}, -1;")),
            9 => {
                let op = self.exchanges.choose(&["add.u32", "min.s32", "max.u32", "xor.b32"]);
                self.add(format_args!("redux.sync.{op} %r{d}, %r{a}, -1;"));
            }
            10 | 11 => self.through_shared(d, a),
            12 => self.add(format_args!("bar.warp.sync -1; bar.sync {};", by % 3)),
            _ => self.part_ways(d, a, by),
        }
    }

    /// Each thread takes a word of a thread of another strip, or of another warp.
    fn through_shared(&mut self, d: u64, a: u64) {
        let other = self.exchanges.choose(&[1, 8, 32, 36]);
        self.add(format_args!(
            "st.shared.u32 [%t6], %r{a}; bar.sync 0; xor.b32 %n3, %t1, {other}; shl.b32 %n3, %n3, 2;
             mov.u32 %t8, memory; add.u32 %n3, %n3, %t8; ld.shared.u32 %r{d}, [%n3]; bar.sync 0;"
        ));
    }

    /// Some warps, or threads of one, go past an exchange, or to the end.
    fn part_ways(&mut self, d: u64, a: u64, by: u64) {
        self.labels += 1;
        let label = self.labels;
        let bound = self.exchanges.choose(&[31, 63, 95]);
        match self.exchanges.below(if self.loops == 0 { 6 } else { 2 }) {
            // Of most warps some threads vote, and others go past that.
            4 | 5 => self.add(format_args!(
                "vote.sync.ballot.b32 %n3, !%p0, -1; @%p0 bra over{label};
                 vote.sync.ballot.b32 %r{d}, %p1, %n3; add.u32 %r{d}, %r{d}, %r{a}; over{label}:"
            )),
            0 => self.add(format_args!(
                "setp.gt.u32 %p7, %t1, {bound}; @%p7 bra past{label}; add.u32 %r{d}, %r{a}, 3;
                 shfl.sync.bfly.b32 %r{d}, %r{d}, {by}, 31, -1; past{label}:"
            )),
            1 => {
                let guard = self.exchanges.choose(&["@%p0", "@!%p1"]);
                self.add(format_args!("{guard} bra over{label};"));
                for _ in 0..30 {
                    self.add(format_args!("mad.lo.u32 %r{d}, %r{d}, 5, %r{a};"));
                }
                self.add(format_args!("over{label}:"));
            }
            2 => self.add(format_args!("setp.gt.u32 %p7, %t1, {bound}; @%p7 bra DONE;")),
            // A lane that others of its warp leave.
            _ => self.add(format_args!(
                "setp.eq.u32 %p7, %r6, {by}; @%p7 bra over{label}; mul.lo.u32 %r{d}, %r{d}, 3; over{label}:"
            )),
        }
    }
}
