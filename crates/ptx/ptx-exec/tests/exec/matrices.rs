//! Instructions on matrices against references on whole matrices.
//!
//! Where an element lies is written down here once more, element by element as the PTX ISA words
//! it. Integer products must agree exactly; floating-point ones within what the cut of each addend
//! can make of the sum of the magnitudes.

use cuda_launch::LaunchConfig;
use ptx_exec::LaunchParams;

use crate::device::{Device, pack};
use apex_random::Random;

pub(crate) const WARP: usize = 32;

/// Words of the lanes of a warp: `words[lane][register]`.
pub(crate) type Words = Vec<Vec<u32>>;

/// Runs `text` in one warp. It finds `inputs` in the registers `%i0`, `%i1`, …; returned are `%o0`
/// and so on.
pub(crate) fn run_warp(text: &str, inputs: &Words, outputs: usize) -> Words {
    let count = inputs[0].len();
    let mut source = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 from, .param .u64 to) {{\n\
         .reg .b64 in, out, at; .reg .b32 lane, %i<{}>, %o<{}>; .reg .b64 %d<40>; .shared .align 128 .b8 buffer[16384];\n\
         mov.u32 lane, %tid.x; ld.param.u64 in, [from]; ld.param.u64 out, [to];\n\
         mul.wide.u32 at, lane, {}; add.u64 in, in, at; mul.wide.u32 at, lane, {}; add.u64 out, out, at;\n",
        count + 1,
        outputs + 1,
        4 * count,
        4 * outputs,
    );
    (0..count).for_each(|index| source += &format!("ld.global.b32 %i{index}, [in+{}];\n", 4 * index));
    source += &format!("{text}\n");
    (0..outputs).for_each(|index| source += &format!("st.global.b32 [out+{}], %o{index};\n", 4 * index));
    source += "ret; }\n";
    let device = Device::default();
    let linked = device.load(&source);
    let unsupported: Vec<_> = linked.program().unsupported().collect();
    assert!(unsupported.is_empty(), "{text}: {unsupported:?}");
    let kernel = linked.program().kernel("k").unwrap();
    let bytes: Vec<u8> = inputs.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    let to = device.allocate((4 * WARP * outputs) as u64, true);
    let params = [device.upload(&bytes).to_le_bytes().to_vec(), to.to_le_bytes().to_vec()];
    let params = LaunchParams {
        config: LaunchConfig::new(1, WARP as u32),
        cooperative: false,
        stack: 0,
        workers: 1,
        params: &pack(&linked, kernel, &params),
    };
    device.run(&linked, kernel, &params).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    let results = device.download(to, 4 * WARP * outputs);
    let words: Vec<u32> =
        results.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    words.chunks_exact(outputs).map(<[u32]>::to_vec).collect()
}

/// `{%i2, %i3}`.
pub(crate) fn vector(letter: char, range: std::ops::Range<usize>) -> String {
    let names: Vec<String> = range.map(|index| format!("%{letter}{index}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// A type of elements: its bits in a register, a random one, its value.
#[derive(Clone, Copy, PartialEq)]
struct Type {
    name: &'static str,
    bits: usize,
}

const F16: Type = Type { name: "f16", bits: 16 };
const BF16: Type = Type { name: "bf16", bits: 16 };
const TF32: Type = Type { name: "tf32", bits: 32 };
const E4M3: Type = Type { name: "e4m3", bits: 8 };
const E5M2: Type = Type { name: "e5m2", bits: 8 };
const F32: Type = Type { name: "f32", bits: 32 };
const S32: Type = Type { name: "s32", bits: 32 };
const S8: Type = Type { name: "s8", bits: 8 };
const U8: Type = Type { name: "u8", bits: 8 };
const S4: Type = Type { name: "s4", bits: 4 };
const U4: Type = Type { name: "u4", bits: 4 };
const B1: Type = Type { name: "b1", bits: 1 };

fn half(bits: u32) -> f64 {
    let (field, fraction) = (bits >> 10 & 31, f64::from(bits & 0x3ff));
    let magnitude = match field {
        0 => fraction * 2f64.powi(-24),
        _ => (1024.0 + fraction) * 2f64.powi(field as i32 - 25),
    };
    if bits & 0x8000 != 0 { -magnitude } else { magnitude }
}

impl Type {
    fn random(self, random: &mut Random) -> u32 {
        let any = random.bits() as u32;
        match self.name {
            // Exponents from -4 to 3.
            "f16" => any & 0x83ff | (any >> 16 & 0x7) + 11 << 10 & 0x7c00,
            // Exponents from -4 to 3, and subnormal numbers among those of `.e4m3`.
            "e4m3" => any & 0x87 | (any >> 8 & 0x7) + if any & 0x800 == 0 { 0 } else { 3 } << 3,
            "e5m2" => any & 0x83 | (any >> 8 & 0x7) + 11 << 2,
            "bf16" => any & 0x807f | (any >> 16 & 0x7) + 123 << 7,
            "tf32" => any & 0x807f_e000 | (any >> 8 & 0x7) + 123 << 23,
            "f32" => any & 0x807f_ffff | (random.bits() as u32 & 0x7) + 123 << 23,
            _ => any & (u32::MAX >> (32 - self.bits)),
        }
    }

    fn value(self, bits: u32) -> f64 {
        match self.name {
            "f16" => half(bits),
            // The same as a half of which the last eight bits are zero.
            "e5m2" => half(bits << 8),
            "e4m3" => {
                let (field, fraction) = ((bits >> 3 & 15) as i32, f64::from(bits & 7));
                let magnitude = match field {
                    0 => fraction * 2f64.powi(-9),
                    _ => (8.0 + fraction) * 2f64.powi(field - 10),
                };
                if bits & 0x80 != 0 { -magnitude } else { magnitude }
            }
            "bf16" => f32::from_bits(bits << 16).into(),
            "tf32" | "f32" => f32::from_bits(bits).into(),
            "s32" | "s8" | "s4" => f64::from((bits << (32 - self.bits)) as i32 >> (32 - self.bits)),
            _ => bits.into(),
        }
    }
}

/// A matrix by rows.
#[derive(Clone)]
struct Matrix {
    columns: usize,
    cells: Vec<u32>,
}

impl Matrix {
    fn random(rows: usize, columns: usize, ty: Type, random: &mut Random) -> Matrix {
        Matrix { columns, cells: (0..rows * columns).map(|_| ty.random(random)).collect() }
    }

    fn at(&self, row: usize, column: usize) -> u32 {
        self.cells[row * self.columns + column]
    }
}

/// Registers of the lanes, from where the ISA says that element `i` of a lane lies.
fn registers(
    matrix: &Matrix,
    bits: usize,
    count: usize,
    place: impl Fn(usize, usize) -> (usize, usize),
) -> Words {
    (0..WARP)
        .map(|lane| {
            let per = 32 / bits;
            let word = |register: usize| {
                (0..per).fold(0u32, |word, element| {
                    let (row, column) = place(lane, register * per + element);
                    word | matrix.at(row, column) << (bits * element) as u32
                })
            };
            (0..count).map(word).collect()
        })
        .collect()
}

/// One `mma` with 8 or 16 rows and 8 columns.
struct Product {
    name: String,
    shape: (usize, usize, usize),
    a: Type,
    b: Type,
    c: Type,
    d: Type,
}

impl Product {
    fn place_a(&self, lane: usize, i: usize) -> (usize, usize) {
        let (group, thread, per) = (lane / 4, lane % 4, 32 / self.a.bits);
        let (register, element) = (i / per, i % per);
        match self.shape.0 {
            8 => (group, per * thread + element),
            _ => (group + 8 * (register % 2), per * thread + element + 4 * per * (register / 2)),
        }
    }

    fn place_b(&self, lane: usize, i: usize) -> (usize, usize) {
        let (group, thread, per) = (lane / 4, lane % 4, 32 / self.b.bits);
        (per * thread + i % per + 4 * per * (i / per), group)
    }

    fn place_c(lane: usize, i: usize) -> (usize, usize) {
        (lane / 4 + if i < 2 { 0 } else { 8 }, 2 * (lane % 4) + i % 2)
    }

    fn check(&self) {
        let (m, n, k) = self.shape;
        let mut random = Random::new(0x5eed + m as u64 * 1000 + k as u64);
        for _ in 0..4 {
            let a = Matrix::random(m, k, self.a, &mut random);
            let b = Matrix::random(k, n, self.b, &mut random);
            let c = Matrix::random(m, n, self.c, &mut random);
            let counts = [m * k * self.a.bits, k * n * self.b.bits, m * n * self.c.bits, m * n * self.d.bits]
                .map(|bits| bits / 32 / WARP);
            let parts = [
                registers(&a, self.a.bits, counts[0], |lane, i| self.place_a(lane, i)),
                registers(&b, self.b.bits, counts[1], |lane, i| self.place_b(lane, i)),
                registers(&c, self.c.bits, counts[2], Self::place_c),
            ];
            let inputs: Words =
                (0..WARP).map(|lane| parts.iter().flat_map(|part| part[lane].clone()).collect()).collect();
            let (ends, d) = ([counts[0], counts[0] + counts[1], inputs[0].len()], counts[3]);
            let text = format!(
                "{} {}, {}, {}, {};",
                self.name,
                vector('o', 0..d),
                vector('i', 0..ends[0]),
                vector('i', ends[0]..ends[1]),
                vector('i', ends[1]..ends[2]),
            );
            let found = run_warp(&text, &inputs, d);
            let expected = |row, column| self.reference(&a, &b, &c, (row, column));
            for (lane, found) in found.iter().enumerate() {
                for i in 0..d * 32 / self.d.bits {
                    let (row, column) = Self::place_c(lane, i);
                    let per = 32 / self.d.bits;
                    let bits = found[i / per] >> (self.d.bits * (i % per)) & (u32::MAX >> (32 - self.d.bits));
                    self.compare(self.d.value(bits), expected(row, column));
                }
            }
        }
    }

    /// The exact result, and the sum of the magnitudes of its addends.
    fn reference(&self, a: &Matrix, b: &Matrix, c: &Matrix, (row, column): (usize, usize)) -> (f64, f64) {
        let start = self.c.value(c.at(row, column));
        let bit = |x: u32, y: u32| f64::from(if self.name.contains("xor") { x ^ y } else { x & y });
        (0..self.shape.2).fold((start, start.abs()), |(sum, magnitude), l| {
            let (x, y) = (a.at(row, l), b.at(l, column));
            let product = if self.a == B1 { bit(x, y) } else { self.a.value(x) * self.b.value(y) };
            (sum + product, magnitude + product.abs())
        })
    }

    fn compare(&self, found: f64, (exact, magnitude): (f64, f64)) {
        if self.d == S32 {
            let wrapped = f64::from(exact as i64 as i32);
            let clamped = exact.clamp(i32::MIN.into(), i32::MAX.into());
            let expected = if self.name.contains("satfinite") { clamped } else { wrapped };
            assert_eq!(found, expected, "{}", self.name);
        } else {
            // Seventeen addends cut at 2^-25 of the largest; the result at its own last bit.
            let last = if self.d == F16 { 2f64.powi(-11) } else { 2f64.powi(-23) };
            let bound = magnitude * 17.0 * 2f64.powi(-24) + exact.abs() * last;
            assert!((found - exact).abs() <= bound, "{}: {found} instead of {exact}", self.name);
        }
    }
}

/// `mma.sync` of the shape, on D, A, B and C, with a suffix.
fn product(shape: (usize, usize, usize), types: [Type; 4], before: &str, after: &str) {
    let [d, a, b, c] = types;
    let (m, n, k) = shape;
    let name = format!(
        "mma.sync.aligned.m{m}n{n}k{k}.row.col{before}.{}.{}.{}.{}{after}",
        d.name, a.name, b.name, c.name
    );
    Product { name, shape, a, b, c, d }.check();
}

#[test]
fn floating_point_products() {
    for k in [8, 16] {
        product((16, 8, k), [F32, F16, F16, F32], "", "");
        product((16, 8, k), [F16, F16, F16, F16], "", "");
        product((16, 8, k), [F32, BF16, BF16, F32], "", "");
    }
    for (a, b) in [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2)] {
        for k in [16, 32] {
            product((16, 8, k), [F32, a, b, F32], "", "");
        }
    }
    product((16, 8, 4), [F32, TF32, TF32, F32], "", "");
    product((16, 8, 8), [F32, TF32, TF32, F32], "", "");
}

#[test]
fn integer_products() {
    for shape in [(8, 8, 16), (16, 8, 16), (16, 8, 32)] {
        for (a, b) in [(S8, S8), (S8, U8), (U8, S8), (U8, U8)] {
            product(shape, [S32, a, b, S32], "", "");
            product(shape, [S32, a, b, S32], ".satfinite", "");
        }
    }
    for shape in [(8, 8, 32), (16, 8, 32), (16, 8, 64)] {
        for (a, b) in [(S4, S4), (S4, U4), (U4, S4), (U4, U4)] {
            product(shape, [S32, a, b, S32], "", "");
            product(shape, [S32, a, b, S32], ".satfinite", "");
        }
    }
    for shape in [(8, 8, 128), (16, 8, 128), (16, 8, 256)] {
        product(shape, [S32, B1, B1, S32], "", ".xor.popc");
        product(shape, [S32, B1, B1, S32], "", ".and.popc");
    }
}

#[test]
fn double_products() {
    let mut random = Random::new(64);
    for (m, k) in [(8, 4), (16, 4), (16, 8), (16, 16)] {
        for rounding in ["", ".rn", ".rz", ".rm", ".rp"] {
            let mut matrix = |rows: usize, columns: usize| -> Vec<f64> {
                (0..rows * columns).map(|_| (random.bits() as i64 as f64) * 2f64.powi(-60)).collect()
            };
            let (a, b, c) = (matrix(m, k), matrix(k, 8), matrix(m, 8));
            let (rows, a_count, b_count) = (m / 8, m * k / WARP, k * 8 / WARP);
            let inputs: Words = (0..WARP)
                .map(|lane| {
                    let (group, thread) = (lane / 4, lane % 4);
                    let mut values: Vec<f64> = (0..a_count)
                        .map(|i| a[(group + 8 * (i % rows)) * k + thread + 4 * (i / rows)])
                        .collect();
                    values.extend((0..b_count).map(|i| b[(thread + 4 * i) * 8 + group]));
                    values.extend((0..2 * rows).map(|i| c[(group + 8 * (i / 2)) * 8 + 2 * thread + i % 2]));
                    let bits = values.iter().map(|value| value.to_bits());
                    bits.flat_map(|bits| [bits as u32, (bits >> 32) as u32]).collect()
                })
                .collect();
            let count = inputs[0].len() / 2;
            let mut text = String::new();
            for index in 0..count {
                text += &format!("mov.b64 %d{index}, {{%i{}, %i{}}};\n", 2 * index, 2 * index + 1);
            }
            let ends = [a_count, a_count + b_count, count, count + 2 * rows];
            text += &format!(
                "mma.sync.aligned.m{m}n8k{k}.row.col{rounding}.f64.f64.f64.f64 {}, {}, {}, {};\n",
                vector('d', ends[2]..ends[3]),
                vector('d', 0..ends[0]),
                vector('d', ends[0]..ends[1]),
                vector('d', ends[1]..ends[2]),
            );
            for index in 0..2 * rows {
                text += &format!("mov.b64 {{%o{}, %o{}}}, %d{};\n", 2 * index, 2 * index + 1, count + index);
            }
            let found = run_warp(&text, &inputs, 4 * rows);
            for (lane, words) in found.iter().enumerate() {
                for i in 0..2 * rows {
                    let (row, column) = (lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2);
                    let found = f64::from_bits(u64::from(words[2 * i]) | u64::from(words[2 * i + 1]) << 32);
                    let start = c[row * 8 + column];
                    let exact = (0..k).fold(start, |sum, l| a[row * k + l].mul_add(b[l * 8 + column], sum));
                    let close = (found - exact).abs() <= 2f64.powi(-40);
                    let direction = match rounding {
                        ".rm" => found <= exact,
                        ".rp" => found >= exact,
                        ".rz" => close,
                        _ => found == exact,
                    };
                    assert!(close && direction, "k {k}{rounding}: {found} instead of {exact}");
                }
            }
        }
    }
}

/// The four products of `mma.m8n8k4`, each of eight lanes.
#[test]
fn quad_pair_products() {
    let mut random = Random::new(884);
    for (layouts, d, c) in
        [("row.col", F32, F32), ("col.row", F32, F16), ("row.row", F16, F16), ("col.col", F32, F32)]
    {
        let quads: Vec<[Matrix; 3]> = (0..4)
            .map(|_| {
                let mut matrix = |rows, columns, ty| Matrix::random(rows, columns, ty, &mut random);
                [matrix(8, 4, F16), matrix(4, 8, F16), matrix(8, 8, c)]
            })
            .collect();
        let (a_rows, b_rows) = (layouts.starts_with("row"), layouts.ends_with("row"));
        let place_c = |ty: Type, lane: usize, i: usize| {
            let high = if lane < 16 { 0 } else { 4 };
            match ty.bits {
                16 => (lane % 4 + high, i),
                _ => ((lane & 1) + (i & 2) + high, (i & 4) + (lane & 2) + (i & 1)),
            }
        };
        let inputs: Words = (0..WARP)
            .map(|lane| {
                let [a, b, c_matrix] = &quads[lane % 16 / 4];
                let high = if lane < 16 { 0 } else { 4 };
                let pack = |values: Vec<u32>, bits: usize| -> Vec<u32> {
                    let words = values.chunks(32 / bits);
                    words
                        .map(|word| word.iter().rev().fold(0u64, |all, &x| all << bits | u64::from(x)) as u32)
                        .collect()
                };
                let a =
                    (0..4).map(|i| if a_rows { a.at(lane % 4 + high, i) } else { a.at(i + high, lane % 4) });
                let b =
                    (0..4).map(|i| if b_rows { b.at(lane % 4, i + high) } else { b.at(i, lane % 4 + high) });
                let c_values =
                    (0..8).map(|i| place_c(c, lane, i)).map(|(row, column)| c_matrix.at(row, column));
                let mut words = pack(a.collect(), 16);
                words.extend(pack(b.collect(), 16));
                words.extend(pack(c_values.collect(), c.bits));
                words
            })
            .collect();
        let (count, last) = (8 * d.bits / 32, inputs[0].len());
        let text = format!(
            "mma.sync.aligned.m8n8k4.{layouts}.{}.f16.f16.{} {}, {}, {}, {};",
            d.name,
            c.name,
            vector('o', 0..count),
            vector('i', 0..2),
            vector('i', 2..4),
            vector('i', 4..last),
        );
        let found = run_warp(&text, &inputs, count);
        let product = Product { name: text, shape: (8, 8, 4), a: F16, b: F16, c, d };
        for (lane, words) in found.iter().enumerate() {
            for i in 0..8 {
                let (place, per) = (place_c(d, lane, i), 32 / d.bits);
                let bits = words[i / per] >> (d.bits * (i % per)) & (u32::MAX >> (32 - d.bits));
                let [a, b, c] = &quads[lane % 16 / 4];
                product.compare(d.value(bits), product.reference(a, b, c, place));
            }
        }
    }
}

/// Runs a `wmma` product: matrices in memory as `layouts` says (of A, B, C and D), with a stride
/// beyond the line.
fn fragments(shape: (usize, usize, usize), types: [Type; 4], layouts: [&str; 4], operation: &str) {
    let (m, n, k) = shape;
    let [d, a, b, c] = types;
    let mut random = Random::new(7 + (m * 31 + n * 17 + k) as u64);
    let matrices = [
        Matrix::random(m, k, a, &mut random),
        Matrix::random(k, n, b, &mut random),
        Matrix::random(m, n, c, &mut random),
    ];
    let sizes = [(m, k), (k, n), (m, n), (m, n)];
    let strides: Vec<usize> = sizes
        .iter()
        .zip(layouts)
        .zip([a, b, c, d])
        .map(|(((rows, columns), layout), ty)| {
            // Whole lines of 16 bytes, and one more.
            let line = if layout == "row" { *columns } else { *rows };
            line.next_multiple_of(128 / ty.bits) + 128 / ty.bits
        })
        .collect();
    let bit_at = |index: usize, (row, column): (usize, usize), ty: Type| {
        let (far, near) = if layouts[index] == "row" { (row, column) } else { (column, row) };
        (far * strides[index] + near) * ty.bits
    };
    // Each matrix has 4 KiB.
    let mut memory = vec![0u32; 4096];
    for (index, (matrix, ty)) in matrices.iter().zip([a, b, c]).enumerate() {
        for (cell, &bits) in matrix.cells.iter().enumerate() {
            let at = bit_at(index, (cell / matrix.columns, cell % matrix.columns), ty);
            memory[1024 * index + at / 32] |= bits << (at % 32);
        }
    }
    let registers = |index: usize, ty: Type| match (ty.name, index) {
        ("f16", 0 | 1) => 8,
        _ => sizes[index].0 * sizes[index].1 * ty.bits / 32 / WARP,
    };
    let counts = [registers(0, a), registers(1, b), registers(2, c), registers(3, d)];
    let shape_name = format!("m{m}n{n}k{k}");
    let mut text = String::new();
    text += ".reg .b32 %s; mov.u32 %s, buffer; mad.lo.u32 %s, lane, 512, %s;\n";
    (0..128).for_each(|index| text += &format!("st.shared.b32 [%s+{}], %i{index};\n", 4 * index));
    text += "bar.sync 0;\nmov.u32 %s, buffer;\n";
    let starts = [0, counts[0], counts[0] + counts[1], counts[0] + counts[1] + counts[2]];
    text += &format!(".reg .b32 %f<{}>;\n", starts[3] + counts[3] + 1);
    let part = |index: usize| vector('f', starts[index]..starts[index] + counts[index]);
    for (index, (name, ty)) in [("a", a), ("b", b), ("c", c)].into_iter().enumerate() {
        text += &format!(
            "wmma.load.{name}.sync.aligned.{}.{shape_name}.shared.{} {}, [%s+{}], {};\n",
            layouts[index],
            ty.name,
            part(index),
            4096 * index,
            strides[index],
        );
    }
    let names = match a {
        F16 => format!("{}.{}", d.name, c.name),
        _ => format!("{}.{}.{}.{}", d.name, a.name, b.name, c.name),
    };
    text += &format!(
        "wmma.mma{operation}.sync.aligned.{}.{}.{shape_name}.{names} {}, {}, {}, {};\n",
        layouts[0],
        layouts[1],
        part(3),
        part(0),
        part(1),
        part(2),
    );
    text += &format!(
        "wmma.store.d.sync.aligned.{}.{shape_name}.shared.{} [%s+12288], {}, {};\n",
        layouts[3],
        d.name,
        part(3),
        strides[3],
    );
    text += "bar.sync 0; mad.lo.u32 %s, lane, 128, %s;\n";
    (0..32).for_each(|index| text += &format!("ld.shared.b32 %o{index}, [%s+{}];\n", 12288 + 4 * index));
    let inputs: Words = memory.chunks_exact(128).map(<[u32]>::to_vec).collect();
    let found: Vec<u32> = run_warp(&text, &inputs, 32).concat();
    let name = format!("wmma {shape_name} {names} {layouts:?} {operation}");
    let product = Product { name, shape, a, b, c, d };
    let [a, b, c] = &matrices;
    for row in 0..m {
        for column in 0..n {
            let at = bit_at(3, (row, column), d);
            let bits = found[at / 32] >> (at % 32) & (u32::MAX >> (32 - d.bits));
            product.compare(d.value(bits), product.reference(a, b, c, (row, column)));
        }
    }
}

#[test]
fn fragments_of_floats() {
    for shape in [(16, 16, 16), (32, 8, 16), (8, 32, 16)] {
        fragments(shape, [F32, F16, F16, F32], ["row", "col", "row", "row"], "");
        fragments(shape, [F16, F16, F16, F16], ["col", "row", "col", "row"], "");
        fragments(shape, [F32, F16, F16, F16], ["row", "row", "row", "col"], "");
        fragments(shape, [F16, F16, F16, F32], ["col", "col", "col", "col"], "");
        fragments(shape, [F32, BF16, BF16, F32], ["row", "row", "col", "row"], "");
    }
    fragments((16, 16, 8), [F32, TF32, TF32, F32], ["row", "col", "row", "row"], "");
    fragments((16, 16, 8), [F32, TF32, TF32, F32], ["col", "row", "col", "col"], "");
}

#[test]
fn fragments_of_integers() {
    for shape in [(16, 16, 16), (32, 8, 16), (8, 32, 16)] {
        fragments(shape, [S32, S8, S8, S32], ["row", "col", "row", "col"], "");
        fragments(shape, [S32, U8, U8, S32], ["col", "row", "col", "row"], "");
    }
    fragments((8, 8, 32), [S32, S4, S4, S32], ["row", "col", "row", "row"], "");
    fragments((8, 8, 32), [S32, U4, U4, S32], ["row", "col", "col", "row"], "");
    fragments((8, 8, 128), [S32, B1, B1, S32], ["row", "col", "row", "row"], ".xor.popc");
    fragments((8, 8, 128), [S32, B1, B1, S32], ["row", "col", "row", "row"], ".and.popc");
}

/// Tiles go through `ldmatrix`, `movmatrix` and `stmatrix`, and come back as told.
#[test]
fn tiles() {
    let mut random = Random::new(88);
    for count in [1, 2, 4] {
        for (load, move_, store) in [
            ("", false, ""),
            (".trans", false, ""),
            ("", false, ".trans"),
            ("", true, ""),
            (".trans", true, ".trans"),
        ] {
            // Rows lie 48 bytes apart, those of tile i from 400 i on; they come back without gaps.
            let inputs: Words = (0..WARP).map(|_| (0..4).map(|_| random.bits() as u32).collect()).collect();
            let mut text = ".reg .b32 %s, %a, %t<4>; mov.u32 %s, buffer; shr.u32 %a, lane, 3; mad.lo.u32 %a, %a, 400, %s;\n\
                            and.b32 %s, lane, 7; mad.lo.u32 %a, %s, 48, %a; st.shared.v4.b32 [%a], {%i0, %i1, %i2, %i3};\n\
                            bar.sync 0;\n"
                .to_owned();
            let names: Vec<String> = (0..count).map(|index| format!("%t{index}")).collect();
            let list = format!("{{{}}}", names.join(", "));
            text += &format!("ldmatrix.sync.aligned.m8n8.x{count}{load}.shared.b16 {list}, [%a];\n");
            if move_ {
                for name in &names {
                    text += &format!("movmatrix.sync.aligned.m8n8.trans.b16 {name}, {name};\n");
                }
            }
            text += "mov.u32 %s, buffer; mad.lo.u32 %a, lane, 16, %s; add.u32 %a, %a, 8192;\n";
            text += &format!("stmatrix.sync.aligned.m8n8.x{count}{store}.shared.b16 [%a], {list};\n");
            text += "bar.sync 0; ld.shared.v4.b32 {%o0, %o1, %o2, %o3}, [%a];\n";
            let found = run_warp(&text, &inputs, 4);
            let element = |words: &Words, row: usize, column: usize| {
                words[row][column / 2] >> (16 * (column % 2)) & 0xffff
            };
            let turned = [load, store].iter().filter(|way| !way.is_empty()).count() + usize::from(move_);
            for tile in 0..count {
                for row in 0..8 {
                    for column in 0..8 {
                        let (x, y) = if turned % 2 == 0 { (row, column) } else { (column, row) };
                        let expected = element(&inputs, 8 * tile + x, y);
                        let found = element(&found, 8 * tile + row, column);
                        assert_eq!(found, expected, "x{count} {load} {move_} {store}: {row}, {column}");
                    }
                }
            }
        }
    }
}
