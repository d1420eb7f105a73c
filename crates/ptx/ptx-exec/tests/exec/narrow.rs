//! Floats of eight bits and less: products with and without scales, conversions, and tiles of
//! bytes, against references in `f64` that know only the values of the formats.

use apex_random::Random;

use crate::matrices::{WARP, Words, run_warp, vector};

/// A format: bits of the exponent and of the fraction, whether there is a NaN of all ones, and
/// whether the largest exponent stands for infinities and NaN.
#[derive(Clone, Copy, Debug)]
struct Small {
    name: &'static str,
    exponent: u32,
    fraction: u32,
    special: bool,
}

const E4M3: Small = Small { name: "e4m3", exponent: 4, fraction: 3, special: true };
const E5M2: Small = Small { name: "e5m2", exponent: 5, fraction: 2, special: true };
const E3M2: Small = Small { name: "e3m2", exponent: 3, fraction: 2, special: false };
const E2M3: Small = Small { name: "e2m3", exponent: 2, fraction: 3, special: false };
const E2M1: Small = Small { name: "e2m1", exponent: 2, fraction: 1, special: false };
const ALL: [Small; 5] = [E4M3, E5M2, E3M2, E2M3, E2M1];

impl Small {
    fn bits(self) -> u32 {
        1 + self.exponent + self.fraction
    }

    /// The value of a finite number, and the exponent of its unit in the first place.
    fn value(self, bits: u32) -> (f64, i32) {
        let bias = (1 << (self.exponent - 1)) - 1;
        let field = (bits >> self.fraction & ((1 << self.exponent) - 1)) as i32;
        let fraction = f64::from(bits & ((1 << self.fraction) - 1)) / f64::from(1u32 << self.fraction);
        let exponent = field.max(1) - bias;
        let magnitude = if field == 0 { fraction } else { 1.0 + fraction } * 2f64.powi(exponent);
        (if bits >> (self.bits() - 1) & 1 == 1 { -magnitude } else { magnitude }, exponent)
    }

    /// A finite number, sometimes zero.
    fn random(self, random: &mut Random) -> u32 {
        let any = random.bits() as u32;
        let bits = any & ((1 << self.bits()) - 1);
        let top = ((1 << self.exponent) - 1) << self.fraction;
        match self.special && bits & top == top {
            true => bits & !(1 << self.fraction),
            false if any >> 28 == 0 => 0,
            false => bits,
        }
    }

    /// How it lies in a byte of a product's factor.
    fn contained(self, bits: u32) -> u32 {
        if self.bits() == 4 { bits << 2 } else { bits }
    }

    /// The nearest number, of two as near the even one; the largest for what is too large.
    fn nearest(self, value: f64) -> u32 {
        let codes = 0..1u32 << (self.bits() - 1);
        let distance = |code: &u32| (self.value(*code).0 - value.abs()).abs();
        let near = codes.clone().map(|code| distance(&code)).fold(f64::INFINITY, f64::min);
        let mut nearest = codes.filter(|code| distance(code) == near);
        let first = nearest.next().unwrap_or(0);
        let code = nearest.next().filter(|_| first % 2 == 1).unwrap_or(first);
        code | u32::from(value.is_sign_negative()) << (self.bits() - 1)
    }
}

/// Scales of the blocks of lines, as bytes.
#[derive(Clone, Copy)]
struct Scaling {
    name: &'static str,
    blocks: usize,
    fraction: bool,
}

impl Scaling {
    fn value(self, byte: u32) -> (f64, i32) {
        match self.fraction {
            true => E4M3.value(byte & 0x7f),
            false => (2f64.powi(byte as i32 - 127), byte as i32 - 127),
        }
    }

    fn random(self, random: &mut Random) -> u32 {
        if self.fraction { E4M3.random(random) & 0x7f } else { 120 + random.index(16) as u32 }
    }
}

/// A product of 16 by k and k by 8.
struct Case {
    types: [Small; 2],
    k: usize,
    half: bool,
    scaling: Option<Scaling>,
    /// Byte and lanes of the scales of A and of B.
    places: [(u32, u32); 2],
}

/// The lines of a factor in the registers of a lane: the first eight, then the others.
fn factor(case: &Case, lines: &[Vec<u32>], side: usize, lane: usize) -> Vec<u32> {
    let (packed, ty) = (case.k == 64, case.types[side]);
    let bits = if packed { 4 } else { 8 };
    let per = 32 / bits;
    let halves = lines.len() / 8;
    let register = |register: usize| {
        let line = &lines[lane / 4 + 8 * (register % halves)];
        let first = per * (lane % 4) + 4 * per * (register / halves);
        (0..per).fold(0, |word, at| {
            let bits_of = if packed { line[first + at] } else { ty.contained(line[first + at]) };
            word | bits_of << (bits * at)
        })
    };
    (0..2 * halves).map(register).collect()
}

fn f16_value(bits: u32) -> f64 {
    let half = Small { name: "f16", exponent: 5, fraction: 10, special: true };
    half.value(bits).0
}

impl Case {
    fn name(&self) -> String {
        let [a, b] = self.types.map(|ty| ty.name);
        let sum = if self.half { "f16" } else { "f32" };
        match self.scaling {
            None => format!("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.{sum}.{a}.{b}.{sum}"),
            Some(Scaling { name, fraction, .. }) => {
                let k = self.k;
                let scale = if fraction { "ue4m3" } else { "ue8m0" };
                format!("mma.sync.aligned.m16n8k{k}.row.col.{name}.f32.{a}.{b}.f32.{scale}")
            }
        }
    }

    fn check(&self, random: &mut Random) {
        let mut lines = |count: usize, ty: Small| -> Vec<Vec<u32>> {
            (0..count).map(|_| (0..self.k).map(|_| ty.random(random)).collect()).collect()
        };
        let (a, b) = (lines(16, self.types[0]), lines(8, self.types[1]));
        let c: Vec<i32> = (0..128).map(|_| random.index(4001) as i32 - 2000).collect();
        let blocks = self.scaling.map_or(1, |scaling| scaling.blocks);
        let mut scales = |count: usize| -> Vec<u32> {
            (0..count).map(|_| self.scaling.map_or(127, |scaling| scaling.random(random))).collect()
        };
        let scales = [scales(16 * blocks), scales(8 * blocks)];
        let words: Words = (0..WARP)
            .map(|lane| {
                let mut words = factor(self, &a, 0, lane);
                words.extend(factor(self, &b, 1, lane));
                let cell = |i: usize| c[self.place(lane, i)];
                match self.half {
                    false => words.extend((0..4).map(|i| (cell(i) as f32).to_bits())),
                    true => words.extend([0, 2].map(|i| half_of(cell(i)) | half_of(cell(i + 1)) << 16)),
                }
                words.extend((0..2).map(|side| self.scale_word(&scales[side], side, lane, blocks)));
                words
            })
            .collect();
        let last = if self.half { 8 } else { 10 };
        let outputs = last - 6;
        let mut text = format!(
            "{} {}, {}, {}, {}",
            self.name(),
            vector('o', 0..outputs),
            vector('i', 0..4),
            vector('i', 4..6),
            vector('i', 6..last)
        );
        if self.scaling.is_some() {
            let [(byte_a, lanes_a), (byte_b, lanes_b)] = self.places;
            text += &format!(", %i{last}, {{{byte_a}, {lanes_a}}}, %i{}, {{{byte_b}, {lanes_b}}}", last + 1);
        }
        let found = run_warp(&(text + ";"), &words, outputs);
        for (lane, words) in found.iter().enumerate() {
            for i in 0..4 {
                let place = self.place(lane, i);
                let (row, column) = (place / 8, place % 8);
                let scale = |block: usize| {
                    let of = |side: usize, line: usize| {
                        let byte = scales[side][line * blocks + block];
                        self.scaling.map_or((1.0, 0), |scaling| scaling.value(byte))
                    };
                    let ((a, ea), (b, eb)) = (of(0, row), of(1, column));
                    (a * b, ea + eb)
                };
                let value = match self.half {
                    true => f16_value(words[i / 2] >> (16 * (i % 2)) & 0xffff),
                    false => f32::from_bits(words[i]).into(),
                };
                self.compare((&a[row], &b[column]), scale, c[place].into(), value);
            }
        }
    }

    /// The cell of a lane's element of C and D.
    fn place(&self, lane: usize, i: usize) -> usize {
        8 * (lane / 4 + 8 * (i / 2)) + 2 * (lane % 4) + i % 2
    }

    /// The register of scales of a lane; noise where none are expected.
    fn scale_word(&self, scales: &[u32], side: usize, lane: usize, blocks: usize) -> u32 {
        let (byte, thread) = self.places[side];
        let (group, member) = (lane / 4, (lane % 4) as u32);
        let line = match side {
            0 => (member / 2 == thread).then_some(group + 8 * (member as usize % 2)),
            _ => (member == thread).then_some(group),
        };
        let noise = 0x5a5a_5a5a;
        let Some(line) = line else { return noise };
        (0..blocks).fold(noise, |word, block| {
            let shift = 8 * (byte + block as u32);
            word & !(0xff << shift) | scales[line * blocks + block] << shift
        })
    }

    /// Every addend is cut below the largest exponent; the result has its own last bit.
    fn compare(&self, lines: (&[u32], &[u32]), scale: impl Fn(usize) -> (f64, i32), c: f64, found: f64) {
        let blocks = self.scaling.map_or(1, |scaling| scaling.blocks);
        let (mut sum, mut largest) = (c, if c == 0.0 { -126 } else { c.abs().log2().floor() as i32 });
        for (at, (&a, &b)) in lines.0.iter().zip(lines.1).enumerate() {
            let ((a, ea), (b, eb)) = (self.types[0].value(a), self.types[1].value(b));
            let (scale, es) = scale(at * blocks / self.k);
            sum += a * b * scale;
            let exponent = if self.k == 64 { es } else { ea + eb + es };
            largest = if a * b == 0.0 { largest } else { largest.max(exponent) };
        }
        let (addends, kept) = if self.k == 64 { (5.0, 35) } else { (33.0, 25) };
        let last = if self.half { 2f64.powi(-11) } else { 2f64.powi(-23) };
        let bound = addends * 2f64.powi(largest - kept) + sum.abs() * last;
        assert!((found - sum).abs() <= bound, "{}: {found} instead of {sum}, {bound}", self.name());
    }
}

fn half_of(whole: i32) -> u32 {
    let bits = (whole as f32).to_bits();
    if whole == 0 { 0 } else { bits >> 16 & 0x8000 | ((bits >> 23 & 0xff) - 112) << 10 | bits >> 13 & 0x3ff }
}

#[test]
fn products_of_all_formats() {
    let mut random = Random::new(120);
    for a in ALL {
        for b in ALL {
            for half in [false, true] {
                // Sums of the largest are beyond `.f16`.
                let wide = [a, b].iter().any(|ty| ty.exponent > 3);
                if !half || !wide {
                    Case { types: [a, b], k: 32, half, scaling: None, places: [(0, 0); 2] }
                        .check(&mut random);
                }
            }
        }
    }
}

#[test]
fn products_with_scales_of_blocks() {
    const ONE: Scaling =
        Scaling { name: "kind::mxf8f6f4.block_scale.scale_vec::1X", blocks: 1, fraction: false };
    const TWO: Scaling = Scaling { name: "kind::mxf4.block_scale", blocks: 2, fraction: false };
    const FOUR: Scaling =
        Scaling { name: "kind::mxf4nvf4.block_scale.scale_vec::4X", blocks: 4, fraction: true };
    let mut random = Random::new(121);
    for (at, (a, b)) in ALL.iter().flat_map(|a| ALL.map(|b| (*a, b))).enumerate() {
        let places = [(at as u32 % 4, at as u32 % 2), (at as u32 / 4 % 4, at as u32 / 2 % 2)];
        Case { types: [a, b], k: 32, half: false, scaling: Some(ONE), places }.check(&mut random);
    }
    for places in [[(0, 0), (0, 0)], [(2, 1), (0, 1)], [(0, 1), (2, 0)]] {
        Case { types: [E2M1; 2], k: 64, half: false, scaling: Some(TWO), places }.check(&mut random);
    }
    for places in [[(0, 0), (0, 1)], [(0, 1), (0, 0)]] {
        Case { types: [E2M1; 2], k: 64, half: false, scaling: Some(FOUR), places }.check(&mut random);
    }
}

/// Numbers around those of small formats.
fn around(random: &mut Random) -> f32 {
    let value = (random.index(4096) as f32 - 2048.0) * 2f32.powi(random.index(14) as i32 - 14);
    f32::from_bits(value.to_bits().wrapping_add(random.index(3) as u32).wrapping_sub(1))
}

#[test]
fn conversions_are_to_the_nearest_and_back() {
    let mut random = Random::new(122);
    for ty in [E2M1, E2M3, E3M2] {
        let (name, width) = (ty.name, if ty.bits() == 4 { 4 } else { 8 });
        let register = if width == 4 { "b8" } else { "b16" };
        let whole = if width == 4 { "cvt.u32.u8" } else { "cvt.u32.u16" };
        let text = format!(
            ".reg .{register} %n; cvt.rn.satfinite.{name}x2.f32 %n, %i0, %i1; {whole} %o0, %n;\n\
             cvt.rn.f16x2.{name}x2 %o1, %n; cvt.rn.satfinite.relu.{name}x2.f32 %n, %i0, %i1; {whole} %o2, %n;"
        );
        for _ in 0..8 {
            let values: Vec<[f32; 2]> =
                (0..WARP).map(|_| [around(&mut random), around(&mut random)]).collect();
            let inputs: Words = values.iter().map(|pair| pair.map(f32::to_bits).to_vec()).collect();
            for (pair, found) in values.iter().zip(run_warp(&text, &inputs, 3)) {
                let codes = pair.map(|value| ty.nearest(value.into()));
                assert_eq!(found[0], codes[0] << width | codes[1], "{name} of {pair:?}");
                let back = [found[1] >> 16, found[1] & 0xffff].map(f16_value);
                assert_eq!(back, codes.map(|code| ty.value(code).0), "{name} of {pair:?}");
                let positive = pair.map(|value| if value < 0.0 { 0 } else { ty.nearest(value.into()) });
                let sign = |code: u32, value: f32| if value == 0.0 { code & 1 } else { code };
                let positive = [sign(positive[0], pair[0]), sign(positive[1], pair[1])];
                assert_eq!(found[2], positive[0] << width | positive[1], "{name} of {pair:?}");
            }
        }
    }
}

#[test]
fn exponents_are_rounded_up_or_down() {
    let mut random = Random::new(123);
    let text = ".reg .b16 %n; cvt.rp.satfinite.ue8m0x2.f32 %n, %i0, %i1; cvt.u32.u16 %o0, %n;\n\
                cvt.rn.bf16x2.ue8m0x2 %o1, %n; cvt.rz.ue8m0x2.f32 %n, %i0, %i1; cvt.u32.u16 %o2, %n;\n\
                cvt.rz.ue8m0x2.bf16x2 %n, %o1; cvt.u32.u16 %o3, %n;";
    let inputs: Words =
        (0..WARP).map(|_| (0..2).map(|_| random.bits() as u32 & 0xbfff_ffff).collect()).collect();
    for (words, found) in inputs.iter().zip(run_warp(text, &inputs, 4)) {
        for (half, word) in words.iter().rev().enumerate() {
            let value = f64::from(f32::from_bits(*word)).abs().log2().clamp(-127.0, 127.0);
            let byte = |word: u32| f64::from(word >> (8 * half) & 0xff) - 127.0;
            assert_eq!((byte(found[0]), byte(found[2])), (value.ceil(), value.floor()), "{word:x}");
            let wide = f64::from(f32::from_bits(found[1] >> (16 * half) << 16)).log2();
            assert_eq!(wide, value.ceil(), "{word:x}");
        }
        assert_eq!(found[3], found[0]);
    }
}

/// What `stmatrix` puts into memory, and what `ldmatrix` finds there.
#[test]
fn tiles_of_bytes() {
    let mut random = Random::new(124);
    let inputs: Words = (0..WARP).map(|_| (0..4).map(|_| random.bits() as u32).collect()).collect();
    let byte =
        |words: &Words, lane: usize, register: usize, at: usize| words[lane][register] >> (8 * at) & 0xff;
    // All lanes have the address of a row; the memory comes back by rows.
    let begin = ".reg .b32 %s, %a; mov.u32 %s, buffer; mad.lo.u32 %a, lane, 16, %s;\n";
    let show = "bar.sync 0; ld.shared.v4.b32 {%o0, %o1, %o2, %o3}, [%a];\n";
    let list = "{%i0, %i1, %i2, %i3}";
    let text = format!("{begin} stmatrix.sync.aligned.m16n8.x4.trans.shared.b8 [%a], {list};\n{show}");
    let found = run_warp(&text, &inputs, 4);
    for tile in 0..4 {
        for (row, column) in (0..16).flat_map(|row| (0..8).map(move |column| (row, column))) {
            let lane = 4 * (row % 8) + column / 2;
            let expected = byte(&inputs, lane, tile, column % 2 + 2 * (row / 8));
            // The tile lies by columns, of 16 bytes each.
            assert_eq!(byte(&found, 8 * tile + column, row / 4, row % 4), expected, "{tile} {row} {column}");
        }
    }
    let fill = format!("{begin} st.shared.v4.b32 [%a], {list}; bar.sync 0;\n");
    let result = "{%o0, %o1, %o2, %o3}";
    let text = format!("{fill} ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {result}, [%a];\n");
    let found = run_warp(&text, &inputs, 4);
    for (lane, register, at) in (0..WARP).flat_map(|lane| (0..16).map(move |i| (lane, i / 4, i % 4))) {
        let row = 16 * (register / 2) + 4 * (lane % 4) + 2 * (register % 2) + at % 2;
        let column = lane / 4 + 8 * (at / 2);
        assert_eq!(byte(&found, lane, register, at), byte(&inputs, row, column / 4, column % 4));
    }
    for (packing, bits) in [("b4x16_p64", 4), ("b6x16_p32", 6)] {
        let text = format!("{fill} ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.{packing} {result}, [%a];\n");
        let found = run_warp(&text, &inputs, 4);
        for (lane, register, at) in (0..WARP).flat_map(|lane| (0..16).map(move |i| (lane, i / 4, i % 4))) {
            let row = &inputs[8 * register + lane / 4];
            let whole = row.iter().rev().fold(0u128, |whole, word| whole << 32 | u128::from(*word));
            let expected = (whole >> (bits * (4 * (lane % 4) + at)) & ((1 << bits) - 1)) as u32;
            assert_eq!(byte(&found, lane, register, at), expected, "{packing} {lane} {register} {at}");
        }
    }
}

/// `wgmma` on FP8: small whole numbers, whose sums are exact.
#[test]
fn products_of_warp_groups() {
    let mut random = Random::new(125);
    let code = |value: i32| E4M3.nearest(value.into());
    let a: Vec<Vec<i32>> = (0..16).map(|_| (0..32).map(|_| random.index(5) as i32 - 2).collect()).collect();
    let b: Vec<Vec<i32>> = (0..8).map(|_| (0..32).map(|_| random.index(5) as i32 - 2).collect()).collect();
    let word =
        |line: &[i32], first: usize| (0..4).fold(0, |word, at| word | code(line[first + at]) << (8 * at));
    // A in registers; of B each lane has a run of eight bytes, line by line.
    let inputs: Words = (0..WARP)
        .map(|lane| {
            let of_a = |register: usize| {
                word(&a[lane / 4 + 8 * (register % 2)], 4 * (lane % 4) + 16 * (register / 2))
            };
            let run = |half: usize| word(&b[lane / 4], 8 * (lane % 4) + 4 * half);
            (0..4).map(of_a).chain((0..2).map(run)).collect()
        })
        .collect();
    // Eight lines of 16 bytes make a part; the other half of each line is 128 bytes further.
    let text = ".reg .b32 %s, %a, %b; .reg .b64 %m; .reg .f32 %f<4>; .reg .pred %no; mov.u32 %s, buffer;\n\
                shr.u32 %a, lane, 2; mad.lo.u32 %a, %a, 16, %s; and.b32 %b, lane, 1; mad.lo.u32 %a, %b, 8, %a;\n\
                and.b32 %b, lane, 2; mad.lo.u32 %a, %b, 64, %a; st.shared.v2.b32 [%a], {%i4, %i5}; bar.sync 0;\n\
                setp.ne.u32 %no, lane, lane; shr.u32 %s, %s, 4; cvt.u64.u32 %m, %s; or.b64 %m, %m, 0x80000;\n\
                wgmma.fence.sync.aligned;\n\
                wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f0, %f1, %f2, %f3}, {%i0, %i1, %i2, %i3}, %m, %no, 1, 1;\n\
                wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n\
                mov.b32 %o0, %f0; mov.b32 %o1, %f1; mov.b32 %o2, %f2; mov.b32 %o3, %f3;";
    for (lane, words) in run_warp(text, &inputs, 4).iter().enumerate() {
        for (i, word) in words.iter().enumerate() {
            let (row, column) = (lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2);
            let sum: i32 = a[row].iter().zip(&b[column]).map(|(a, b)| a * b).sum();
            assert_eq!(f32::from_bits(*word), sum as f32, "{row}, {column}");
        }
    }
}
