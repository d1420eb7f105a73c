//! `mma` with a kind: products of floats of eight bits and less, with or without scales of blocks.

use ptx::ScalarType;
use ptx::body::{Line, Operand};

use crate::arithmetic::soft;
use crate::compile::decode::Undecoded;
use crate::compile::decode::load_store::elements;
use crate::compile::decode::matrix::{finish, registers};
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::matrix::{Arithmetic, Element, Format, Layout, Narrow, Operation, Product, Scales, Shape};
use crate::operands::Reg;

/// Bits below the largest exponent to which `mma` cuts addends.
const KEPT: u32 = 25;

/// The kind in the mnemonic: `kind::` and the words after it.
struct Said<'m> {
    kind: &'m str,
    /// Types of D, A, B, C, and of the scales.
    types: Vec<&'m str>,
    /// Blocks of a line, if there are scales.
    blocks: Option<usize>,
    k: usize,
}

impl<'m> Said<'m> {
    fn of(mnemonic: &'m str) -> Option<Said<'m>> {
        const TYPES: [&str; 9] = ["f32", "f16", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "ue8m0", "ue4m3"];
        let words: Vec<&str> = mnemonic.split('.').skip(1).collect();
        let kind = words.iter().find_map(|word| word.strip_prefix("kind::"))?;
        let named = words.iter().find_map(|word| word.strip_prefix("scale_vec::"));
        let blocks = match (words.contains(&"block_scale"), named, kind) {
            (false, ..) => None,
            (true, Some("1X"), _) | (true, None, "mxf8f6f4") => Some(1),
            (true, Some("4X"), _) => Some(4),
            (true, ..) => Some(2),
        };
        let types = words.iter().copied().filter(|word| TYPES.contains(word)).collect();
        let k = if words.contains(&"m16n8k64") { 64 } else { 32 };
        Some(Said { kind, types, blocks, k })
    }

    /// Whether elements of four bits fill their registers.
    fn is_packed(&self) -> bool {
        self.kind.starts_with("mxf4")
    }

    fn narrow(&self) -> Option<Narrow> {
        let [d, a, b, c, ..] = self.types[..] else { return None };
        let sum = match (d, c) {
            ("f32", "f32") => Format::F32,
            ("f16", "f16") => Format::F16,
            _ => return None,
        };
        let (a, b) = (element(a, self.is_packed())?, element(b, self.is_packed())?);
        Some(Narrow { a, b, sum, kept: KEPT, grouped: self.is_packed(), coarse: false })
    }

    fn scales(&self) -> Option<Scales> {
        let has_fraction = self.types.last() == Some(&"ue4m3");
        Some(Scales { blocks: self.blocks?, has_fraction })
    }
}

/// An element in a byte of its own, or packed: four bits in the middle of a byte, six at its lower
/// end.
fn element(name: &str, packed: bool) -> Option<Element> {
    let format = match name {
        "e4m3" => soft::E4M3,
        "e5m2" => soft::E5M2,
        "e3m2" => soft::E3M2,
        "e2m3" => soft::E2M3,
        "e2m1" => soft::E2M1,
        _ => return None,
    };
    Some(Element { format, shift: if format == soft::E2M1 && !packed { 2 } else { 0 } })
}

/// `mma` with `.kind::…`.
pub(crate) fn multiply(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let mnemonic = line.instruction.mnemonic.text();
    form.take_all();
    let is_sparse = mnemonic.split('.').any(|word| word.starts_with("sp"));
    let said = Said::of(mnemonic).filter(|_| !is_sparse);
    let Some((narrow, said)) = said.and_then(|said| Some((said.narrow()?, said))) else {
        return unsupported(format!("`{mnemonic}` is not supported"));
    };
    let (shape, bits) = (Shape { m: 16, n: 8, k: said.k }, if said.is_packed() { 4 } else { 8 });
    let (a, b) = (Layout::a(shape, bits), Layout::b(shape, bits));
    let sum = || Layout::accumulator(shape, if narrow.sum == Format::F16 { 16 } else { 32 });
    let counts = [a.registers, b.registers];
    let product = Product { shape, a, b, c: sum(), d: sum(), counts };
    let [d, a, b, c, rest @ ..] = line.operands.as_slice() else {
        return invalid("a product of matrices takes D, A, B and C");
    };
    let mut sources = Vec::new();
    for (operand, count) in [(a, counts[0]), (b, counts[1]), (c, product.c.registers)] {
        sources.extend(registers(compiler, operand, count, ScalarType::B32)?);
    }
    let results = (elements(d, product.d.registers)?, ScalarType::B32);
    let operation = match (said.scales(), rest) {
        (None, []) => Operation::Multiply { product, arithmetic: Arithmetic::Narrow(narrow) },
        (Some(scales), [of_a, place_of_a, of_b, place_of_b]) => {
            sources.extend(scale(compiler, of_a, place_of_a)?);
            sources.extend(scale(compiler, of_b, place_of_b)?);
            Operation::MultiplyScaled { product, narrow, scales }
        }
        _ => return invalid("scales stand behind C, each with the numbers of its byte and lanes"),
    };
    finish(compiler, operation, None, sources, results)
}

/// The register of scales, and the registers of the numbers of the byte and of the lanes.
fn scale(compiler: &mut FunctionCompiler, scales: &Operand, place: &Operand) -> Decoded<Vec<Reg>> {
    let mut registers = vec![compiler.source(scales, ScalarType::B32)?];
    for number in elements(place, 2)? {
        registers.push(compiler.source(&number, ScalarType::U16)?);
    }
    Ok(registers)
}
