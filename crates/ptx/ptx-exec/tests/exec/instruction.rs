//! Runs one instruction on many inputs, and compares with a reference.

use apex_random::Random;
use cuda_launch::LaunchConfig;
use ptx_exec::LaunchParams;

use crate::device::{Device, pack};

/// Width of a register, and how memory holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    W16,
    W32,
    W64,
    /// As a result: 0 or 1 in 32 bits. As a source: whether the number is odd.
    Predicate,
}

use Width::{Predicate, W16, W32, W64};

impl Width {
    fn bits(self) -> u32 {
        match self {
            W16 => 16,
            W32 | Predicate => 32,
            W64 => 64,
        }
    }

    fn register(self) -> &'static str {
        match self {
            W16 => ".b16",
            W32 => ".b32",
            W64 => ".b64",
            Predicate => ".pred",
        }
    }

    fn mask(self, value: u64) -> u64 {
        match self {
            Predicate => value & 1,
            _ => value & u64::MAX >> (64 - self.bits()),
        }
    }
}

/// Threads, and so inputs, of a check.
const THREADS: usize = 512;

/// The content of lanes that do not execute the instruction.
const KEPT: u64 = 0x5a5a_5a5a_5a5a_5a5a;

/// Numbers around which things change: small, extreme, powers of two, floats of each kind in each
/// width.
const SPECIAL: [u64; 40] = [
    0,
    1,
    2,
    3,
    7,
    8,
    31,
    32,
    33,
    63,
    64,
    255,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
    // .f16 in the low bits: 1, -2, infinity, NaN, smallest, largest subnormal.
    0x3c00,
    0xc000,
    0x7c00,
    0x7e01,
    0x0001,
    0x03ff,
    // .f32: 1, -1.5, infinity, NaN, smallest, largest subnormal, largest.
    0x3f80_0000,
    0xbfc0_0000,
    0x7f80_0000,
    0xffc0_0001,
    0x0000_0001,
    0x007f_ffff,
    0x7f7f_ffff,
    // .f64: 1, infinity, NaN, subnormal, 2^53.
    0x3ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0001,
    0x000f_ffff_ffff_ffff,
    0x4340_0000_0000_0000,
];

/// A number for a register: special, small, a float of moderate size, or any.
fn input(random: &mut Random, width: Width) -> u64 {
    let any = random.bits();
    width.mask(match random.below(8) {
        0 | 1 => random.choose(&SPECIAL),
        2 => any % 70,
        3 => (any % 70).wrapping_neg(),
        4 if width == W32 => (((any as i32 as f32) / 65536.0).to_bits()).into(),
        4 if width == W64 => ((any as i64 as f64) / 1e15).to_bits(),
        4 if width == W16 => any & 0x83ff | 0x3800 | (any >> 20 & 0x0c00),
        _ => any,
    })
}

/// An instruction under test.
pub struct Check<'a> {
    /// The text, with `$d`, `$a`, `$b`, `$c`, `$e` for registers.
    pub text: &'a str,
    pub result: Width,
    pub sources: &'a [Width],
}

impl Check<'_> {
    fn ptx(&self) -> String {
        let mut loads = String::new();
        let mut text = self.text.replace("$d", "d");
        for (index, width) in self.sources.iter().enumerate() {
            let name = ["a", "b", "c", "e"][index];
            text = text.replace(&format!("${name}"), name);
            let at = index * 8;
            match width {
                Predicate => {
                    loads += &format!(
                        ".reg .pred {name}; ld.global.u32 word, [in+{at}]; and.b32 word, word, 1; setp.ne.u32 {name}, word, 0;\n"
                    )
                }
                _ => {
                    loads += &format!(
                        ".reg {} {name}; ld.global.b{} {name}, [in+{at}];\n",
                        width.register(),
                        width.bits()
                    )
                }
            }
        }
        let (initial, store) = match self.result {
            Predicate => (
                "setp.eq.u32 d, 0, 0;".to_owned(),
                "selp.u32 word, 1, 0, d; st.global.u32 [out], word;".to_owned(),
            ),
            width => (
                format!("mov.b{} d, {};", width.bits(), width.mask(KEPT)),
                format!("st.global.b{} [out], d;", width.bits()),
            ),
        };
        format!(
            ".version 8.6\n.target sm_90\n.address_size 64\n\
             .visible .entry check(.param .u64 from, .param .u64 to) {{\n\
             .reg .b64 in, out, offset; .reg .b32 thread, word; .reg .pred odd; .reg {} d;\n\
             ld.param.u64 in, [from]; ld.param.u64 out, [to];\n\
             mov.u32 thread, %tid.x; mul.wide.u32 offset, thread, 32; add.u64 in, in, offset;\n\
             shr.u64 offset, offset, 2; add.u64 out, out, offset;\n\
             {loads}{initial}\n\
             bra.uni whole;\n\
             whole: setp.lt.u32 odd, thread, 256; @odd bra all;\n\
             and.b32 word, thread, 5; setp.ne.u32 odd, word, 0;\n\
             @odd bra some; bra done;\n\
             some: {{ {text} }}\n bra done;\n\
             all: {{ {text} }}\n\
             done: {store}\n ret; }}\n",
            self.result.register()
        )
    }

    /// Runs the instruction on random inputs and calls `compare` with the sources and the result of
    /// each thread.
    pub fn run(&self, compare: &mut dyn FnMut(&[u64], u64)) {
        let mut random = Random::named(0, self.text);
        let inputs: Vec<[u64; 4]> = (0..THREADS)
            .map(|_| {
                std::array::from_fn(|index| {
                    self.sources.get(index).map_or(0, |width| input(&mut random, *width))
                })
            })
            .collect();
        let device = Device::default();
        let linked = device.load(&self.ptx());
        let unsupported: Vec<_> = linked.program().unsupported().collect();
        assert!(unsupported.is_empty(), "{}: {unsupported:?}", self.text);
        let kernel = linked.program().kernel("check").unwrap();
        let bytes: Vec<u8> = inputs.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
        let (from, to) = (device.upload(&bytes), device.allocate(8 * THREADS as u64, true));
        let params = pack(&linked, kernel, &[from.to_le_bytes().to_vec(), to.to_le_bytes().to_vec()]);
        let params = LaunchParams {
            config: LaunchConfig::new(1, THREADS as u32),
            cooperative: false,
            stack: 0,
            workers: 1,
            params: &params,
        };
        device.run(&linked, kernel, &params).unwrap_or_else(|fault| panic!("{}: {fault}", self.text));
        let results = device.download(to, 8 * THREADS);
        for (thread, input) in inputs.iter().enumerate() {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&results[8 * thread..8 * thread + 8]);
            let found = self.result.mask(u64::from_le_bytes(bytes));
            if thread >= 256 && thread & 5 == 0 {
                let kept = if self.result == Predicate { 1 } else { self.result.mask(KEPT) };
                assert_eq!(found, kept, "{}: a lane that did not execute it", self.text);
                continue;
            }
            compare(&input[..self.sources.len()], found);
        }
    }
}

/// Checks an instruction against a reference on bits.
#[track_caller]
pub fn check(text: &str, result: Width, sources: &[Width], reference: impl Fn(&[u64]) -> u64) {
    Check { text, result, sources }.run(&mut |inputs, found| {
        let expected = result.mask(reference(inputs));
        assert_eq!(found, expected, "{text} on {inputs:x?}: {found:#x} instead of {expected:#x}");
    });
}
