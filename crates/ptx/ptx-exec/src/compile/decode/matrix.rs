//! Instructions on matrices: `mma`, `wmma`, `wgmma`, `ldmatrix`, `stmatrix`, `movmatrix`.

use ptx::ScalarType;
use ptx::body::{Line, Operand};
use ptx::instruction::Layout::Row;
use ptx::instruction::{Flag, Letter, Logic, Opcode};

use crate::arithmetic::soft::{self, Rounding};
use crate::code::{Input, Op};
use ptx_lower::take_direction;

use crate::compile::decode::load_store;
use crate::compile::decode::scaled;
use crate::compile::decode::{Undecoded, direction};
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::matrix::{
    Adds, Arithmetic, ByteTiles, Element, Factor, Float, Format, Fragment, Group, Integer, Kept, Layout,
    MatrixStep, Narrow, Operation, Order, Product, Shape, Sparse,
};
use crate::operands::{AccessArgs, Class, Reg, Space};

/// Decodes instructions on matrices. `None` if the opcode is none.
pub(crate) fn decode(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
) -> Option<Decoded<()>> {
    let outcome = match form.opcode? {
        Opcode::Mma if line.instruction.mnemonic.text().contains(".kind::") => {
            scaled::multiply(compiler, line, form)
        }
        Opcode::Mma => multiply(compiler, line, form),
        Opcode::Wmma => match form.take_one(&[Flag::Load, Flag::Store, Flag::MultiplyAdd]) {
            Some(Flag::Load) => load_fragment(compiler, line, form),
            Some(Flag::Store) => store_fragment(compiler, line, form),
            Some(_) => multiply_fragments(compiler, line, form),
            None => invalid("`wmma` needs `.load`, `.store` or `.mma`"),
        },
        Opcode::Wgmma => group(compiler, line, form),
        Opcode::Ldmatrix | Opcode::Stmatrix => move_tiles(compiler, line, form),
        Opcode::Movmatrix => transpose(compiler, line, form),
        _ => return None,
    };
    form.take(Flag::Synchronous);
    form.take(Flag::Aligned);
    Some(outcome)
}

/// Adds the step, with the results that its instruction names.
pub(super) fn finish(
    compiler: &mut FunctionCompiler,
    operation: Operation,
    address: Option<AccessArgs>,
    sources: Vec<Reg>,
    (results, ty): (Vec<Operand>, ScalarType),
) -> Decoded<()> {
    let destinations: Vec<_> =
        results.iter().map(|result| compiler.destination(result, ty)).collect::<Decoded<_>>()?;
    let results = destinations.iter().map(|destination| destination.reg).collect();
    let step = MatrixStep { operation, results, sources: sources.into(), address };
    if !step.takes(|reg| compiler.class(reg)) {
        return invalid("the registers are not those that this instruction takes");
    }
    compiler.push(Op::Matrix(Box::new(step)));
    destinations.into_iter().for_each(|destination| compiler.widen(destination));
    Ok(())
}

/// The registers of a fragment.
pub(super) fn registers(
    compiler: &mut FunctionCompiler,
    operand: &Operand,
    count: usize,
    ty: ScalarType,
) -> Decoded<Vec<Reg>> {
    load_store::elements(operand, count)?.iter().map(|element| compiler.source(element, ty)).collect()
}

/// The type of the registers that hold elements of `bits` bits.
fn register_type(bits: u32) -> ScalarType {
    if bits == 64 { ScalarType::B64 } else { ScalarType::B32 }
}

fn shape(form: &mut Undecoded) -> Decoded<Shape> {
    match form.tile.take() {
        Some([m, n, k]) if k > 0 => Ok(Shape { m: m.into(), n: n.into(), k: k.into() }),
        _ => invalid("this instruction needs a shape such as `.m16n8k16`"),
    }
}

/// Whether the layout modifier is `.row`.
fn is_row(form: &mut Undecoded) -> Decoded<bool> {
    match form.take_layout() {
        Some(layout) => Ok(layout == Row),
        None => invalid("this instruction needs `.row` or `.col`"),
    }
}

/// The types of D, A, B and C.
#[derive(Clone, Copy)]
struct Types {
    d: ScalarType,
    a: ScalarType,
    b: ScalarType,
    c: ScalarType,
}

/// A multiplication, but for its layouts.
enum Kind {
    Words(Arithmetic),
    Doubles(Rounding),
}

impl Types {
    fn take(form: &mut Undecoded) -> Decoded<Types> {
        match (form.take_type(), form.take_type(), form.take_type(), form.take_type()) {
            (Some(d), Some(a), Some(b), Some(c)) => Ok(Types { d, a, b, c }),
            // `wmma` names only these two where the factors are `.f16`.
            (Some(d), Some(c), None, None) => Ok(Types { d, a: ScalarType::F16, b: ScalarType::F16, c }),
            _ => unsupported("a product of matrices of these types is not supported"),
        }
    }

    /// Returns the kind of product for these types; `terms` products are added at once.
    fn kind(self, form: &mut Undecoded, terms: usize) -> Decoded<Kind> {
        use ScalarType::{B1, Bf16, E4m3, E5m2, F16, F32, F64, S4, S8, S32, Tf32, U4, U8};
        let Types { d, a, b, c } = self;
        let float = |factor, c, d| Ok(Kind::Words(Arithmetic::Float(Float { factor, c, d, terms })));
        let format = |ty| if ty == F16 { Format::F16 } else { Format::F32 };
        match (d, a, b, c) {
            (F16 | F32, F16, F16, F16 | F32) => float(Format::F16, format(c), format(d)),
            (F32, Bf16, Bf16, F32) => float(Format::Bf16, Format::F32, Format::F32),
            (F32, Tf32, Tf32, F32) => float(Format::Tf32, Format::F32, Format::F32),
            (F16, E4m3 | E5m2, E4m3 | E5m2, F16) | (F32, E4m3 | E5m2, E4m3 | E5m2, F32) => {
                let eighth = |ty| if ty == E4m3 { soft::E4M3 } else { soft::E5M2 };
                Ok(Kind::Words(Arithmetic::Eighths { a: eighth(a), b: eighth(b), sum: format(d) }))
            }
            (F64, F64, F64, F64) => Ok(Kind::Doubles(direction(take_direction(form)))),
            (S32, S8 | U8, S8 | U8, S32) | (S32, S4 | U4, S4 | U4, S32) => {
                let integer = |ty: ScalarType| Integer { bits: bits(ty), signed: ty.is_signed() };
                let saturate = form.take(Flag::SaturateFinite);
                Ok(Kind::Words(Arithmetic::Integer { a: integer(a), b: integer(b), saturate }))
            }
            (S32, B1, B1, S32) => {
                let and = match form.logic.take() {
                    Some(operation) => operation == Logic::And,
                    None => return invalid("a product of bits needs `.xor` or `.and`"),
                };
                form.take(Flag::PopulationCount);
                Ok(Kind::Words(Arithmetic::Bits { and }))
            }
            _ => unsupported(format!("products of {a} and {b} in {d} are not supported")),
        }
    }

    /// The steps of `product`.
    fn operation(kind: Kind, product: Product) -> Operation {
        match kind {
            Kind::Words(arithmetic) => Operation::Multiply { product, arithmetic },
            Kind::Doubles(rounding) => Operation::MultiplyDouble { product, rounding },
        }
    }
}

/// Bits of an element in a register. Of `.b1` the elements are taken 32 at a time.
fn bits(ty: ScalarType) -> u32 {
    match ty {
        ScalarType::S4 | ScalarType::U4 => 4,
        ScalarType::B1 => 32,
        _ => 8 * ty.bytes() as u32,
    }
}

/// The shape in elements as [`bits`] counts them.
fn in_elements(shape: Shape, ty: ScalarType) -> Shape {
    Shape { k: if ty == ScalarType::B1 { shape.k / 32 } else { shape.k }, ..shape }
}

/// The shapes that `mma` and `wmma` have for a type of A.
fn shapes(opcode: Opcode, a: ScalarType) -> &'static [(usize, usize, usize)] {
    use ScalarType::{B1, Bf16, E4m3, E5m2, F16, F64, S4, S8, Tf32, U4, U8};
    match (opcode, a) {
        (Opcode::Mma, F16) => &[(8, 8, 4), (16, 8, 8), (16, 8, 16)],
        (Opcode::Mma, Bf16) => &[(16, 8, 8), (16, 8, 16)],
        (Opcode::Mma, Tf32) => &[(16, 8, 4), (16, 8, 8)],
        (Opcode::Mma, F64) => &[(8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)],
        (Opcode::Mma, E4m3 | E5m2) => &[(16, 8, 16), (16, 8, 32)],
        (Opcode::Mma, S8 | U8) => &[(8, 8, 16), (16, 8, 16), (16, 8, 32)],
        (Opcode::Mma, S4 | U4) => &[(8, 8, 32), (16, 8, 32), (16, 8, 64)],
        (Opcode::Mma, B1) => &[(8, 8, 128), (16, 8, 128), (16, 8, 256)],
        (Opcode::Wmma, F16 | Bf16 | S8 | U8) => &[(16, 16, 16), (32, 8, 16), (8, 32, 16)],
        (Opcode::Wmma, Tf32) => &[(16, 16, 8)],
        (Opcode::Wmma, F64) => &[(8, 8, 4)],
        (Opcode::Wmma, S4 | U4) => &[(8, 8, 32)],
        (Opcode::Wmma, B1) => &[(8, 8, 128)],
        _ => &[],
    }
}

/// Refuses shapes that `opcode` does not have for `ty`.
fn check_shape(opcode: Opcode, Shape { m, n, k }: Shape, ty: ScalarType) -> Decoded<()> {
    match shapes(opcode, ty).contains(&(m, n, k)) {
        true => Ok(()),
        false => unsupported(format!("`{}` of shape m{m}n{n}k{k} on {ty} is not supported", opcode.name())),
    }
}

/// `mma`.
fn multiply(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    if line.instruction.mnemonic.text().contains(".sp") {
        return multiply_sparse(compiler, line, form);
    }
    let shape = shape(form)?;
    let (a_rows, b_rows) = (is_row(form)?, is_row(form)?);
    let types = Types::take(form)?;
    check_shape(Opcode::Mma, shape, types.a)?;
    let kind = types.kind(form, shape.k)?;
    let quads = shape.k == 4 && types.a == ScalarType::F16;
    let elements = in_elements(shape, types.a);
    let product = if quads {
        Product {
            shape,
            a: Layout::quad_factor(a_rows),
            b: Layout::quad_factor(!b_rows),
            c: Layout::quad_accumulator(bits(types.c)),
            d: Layout::quad_accumulator(bits(types.d)),
            counts: [2, 2],
        }
    } else {
        if !a_rows || b_rows {
            return invalid("this shape takes A by rows and B by columns");
        }
        let (a, b) = (Layout::a(elements, bits(types.a)), Layout::b(elements, bits(types.b)));
        let counts = [a.registers, b.registers];
        Product {
            shape: elements,
            a,
            b,
            c: accumulator(shape, types.c),
            d: accumulator(shape, types.d),
            counts,
        }
    };
    emit_product(compiler, line, types, kind, product)
}

/// `mma.sp`.
fn multiply_sparse(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let shape = shape(form)?;
    let (a_rows, b_rows) = (is_row(form)?, is_row(form)?);
    let types = Types::take(form)?;
    let half = Shape { k: shape.k / 2, ..shape };
    check_shape(Opcode::Mma, half, types.a)?;
    if !a_rows || b_rows {
        return invalid("a sparse product takes A by rows and B by columns");
    }
    let Kind::Words(arithmetic) = types.kind(form, half.k)? else {
        return unsupported(format!("sparse products of {} are not supported", types.a));
    };
    let [d, a, b, c, metadata, selector] = line.operands.as_slice() else {
        return invalid("a sparse product takes D, A, B, C, metadata and which lanes hold them");
    };
    let sparse = sparse(types.a, selector)?;
    let (a_layout, b_layout) = (Layout::a(half, bits(types.a)), Layout::b(shape, bits(types.b)));
    let counts = [a_layout.registers, b_layout.registers];
    let (c_layout, d_layout) = (accumulator(shape, types.c), accumulator(shape, types.d));
    let mut sources = registers(compiler, a, counts[0], ScalarType::B32)?;
    sources.extend(registers(compiler, b, counts[1], ScalarType::B32)?);
    sources.extend(registers(compiler, c, c_layout.registers, ScalarType::B32)?);
    sources.push(compiler.source(metadata, ScalarType::B32)?);
    let results = (load_store::elements(d, d_layout.registers)?, ScalarType::B32);
    let product = Product { shape, a: a_layout, b: b_layout, c: c_layout, d: d_layout, counts };
    // `.sp` or `.sp::ordered_metadata`: what is ordered is a promise.
    form.take_all();
    finish(compiler, Operation::MultiplySparse { product, arithmetic, sparse }, None, sources, results)
}

/// How A of this type is sparse.
fn sparse(ty: ScalarType, selector: &Operand) -> Decoded<Sparse> {
    let kept = match ty {
        ScalarType::Tf32 => Kept::OneOfTwo,
        ScalarType::S4 | ScalarType::U4 => Kept::PairsOfFour,
        _ => Kept::TwoOfFour,
    };
    match selector {
        Operand::Constant(ptx::Constant::Integer(selector @ 0..=1)) => {
            Ok(Sparse { kept, selector: *selector as usize, wide: bits(ty) >= 16 })
        }
        _ => invalid("the lanes that hold metadata have the number 0 or 1"),
    }
}

fn accumulator(shape: Shape, ty: ScalarType) -> Layout {
    Layout::accumulator(shape, bits(ty))
}

/// `wmma.mma`.
fn multiply_fragments(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    // How matrices lay in memory has been seen to when they were loaded.
    let _ = (is_row(form)?, is_row(form)?);
    let shape = shape(form)?;
    let types = Types::take(form)?;
    check_shape(Opcode::Wmma, shape, types.a)?;
    // ptxas makes two products with k = 4 of one in `.tf32`, and one of every other.
    let terms = if types.a == ScalarType::Tf32 { 4 } else { shape.k };
    let kind = types.kind(form, terms)?;
    let elements = in_elements(shape, types.a);
    let (a, b) = (Layout::a(elements, bits(types.a)), Layout::b(elements, bits(types.b)));
    let counts = [&a, &b].map(|layout| named_registers(layout, types.a));
    let (c, d) = (accumulator(shape, types.c), accumulator(shape, types.d));
    emit_product(compiler, line, types, kind, Product { shape: elements, a, b, c, d, counts })
}

/// Registers that `wmma` names for a factor: of `.f16` always eight, which may hold the matrix more
/// than once.
fn named_registers(layout: &Layout, ty: ScalarType) -> usize {
    if ty == ScalarType::F16 { 8 } else { layout.registers }
}

fn emit_product(
    compiler: &mut FunctionCompiler,
    line: &Line,
    types: Types,
    kind: Kind,
    product: Product,
) -> Decoded<()> {
    if line.operands.len() > 4 {
        return unsupported("products of matrices with scales or metadata are not supported");
    }
    let [d, a, b, c] = line.operands.as_slice() else {
        return invalid("a product of matrices takes D, A, B and C");
    };
    let ty = register_type(bits(types.a));
    let mut sources = registers(compiler, a, product.counts[0], ty)?;
    sources.extend(registers(compiler, b, product.counts[1], ty)?);
    sources.extend(registers(compiler, c, product.c.registers, register_type(bits(types.c)))?);
    let results = load_store::elements(d, product.d.registers)?;
    let result_type = register_type(bits(types.d));
    finish(compiler, Types::operation(kind, product), None, sources, (results, result_type))
}

/// The matrix that `wmma.load` or `wmma.store` moves, and its place: fragment, registers, default
/// stride.
fn fragment(form: &mut Undecoded) -> Decoded<(Fragment, usize, usize)> {
    let Some(matrix) = form.letter.take() else {
        return invalid("`wmma` moves the matrices a, b, c and d");
    };
    let rows = is_row(form)?;
    let shape = shape(form)?;
    let Some(ty) = form.take_type() else { return invalid("`wmma` needs a type") };
    let factor = matches!(matrix, Letter::A | Letter::B);
    let Shape { m, n, k } = shape;
    let known = match factor {
        true => shapes(Opcode::Wmma, ty).contains(&(m, n, k)),
        false => {
            matches!(ty, ScalarType::F16 | ScalarType::F32 | ScalarType::F64 | ScalarType::S32)
                && [(16, 16), (32, 8), (8, 32), (8, 8)].contains(&(m, n))
        }
    };
    if !known {
        return unsupported(format!("`wmma` on matrices of shape m{m}n{n}k{k} in {ty} is not supported"));
    }
    let small = matches!(ty, ScalarType::S4 | ScalarType::U4 | ScalarType::B1);
    if small && rows != (matrix == Letter::A) {
        return invalid("elements of less than a byte lie by rows in A, and by columns in B");
    }
    let elements = in_elements(shape, ty);
    // Rows and columns of the matrix.
    let (layout, by_lines, (height, width)) = match matrix {
        Letter::A => (Layout::a(elements, bits(ty)), rows, (m, k)),
        Letter::B => (Layout::b(elements, bits(ty)), !rows, (k, n)),
        _ => (Layout::accumulator(shape, bits(ty)), rows, (m, n)),
    };
    let count = if factor { named_registers(&layout, ty) } else { layout.registers };
    let order = if by_lines { Order::Lines } else { Order::Across };
    let stride_bits = if ty == ScalarType::B1 { 1 } else { bits(ty).into() };
    Ok((Fragment { layout, order, stride_bits }, count, if rows { width } else { height }))
}

/// `wgmma`: products are done when they are issued, so that nothing waits for them.
fn group(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let mnemonic = line.instruction.mnemonic.text();
    if [".fence", ".commit_group", ".wait_group"].iter().any(|word| mnemonic.contains(word)) {
        form.take_all();
        return Ok(());
    }
    let shape = shape(form)?;
    let (Some(d), Some(a), Some(b)) = (form.take_type(), form.take_type(), form.take_type()) else {
        return invalid("`wgmma.mma_async` needs the types of D, A and B");
    };
    let saturate = form.take(Flag::SaturateFinite);
    form.take_all();
    let is_sparse = mnemonic.contains(".sp.");
    let terms = if is_sparse { shape.k / 2 } else { shape.k };
    let arithmetic = group_arithmetic(d, a, b, terms, saturate)?;
    let mut operands = line.operands.clone();
    let sparse = match operands.get(3..5) {
        Some([metadata, selector]) if is_sparse => {
            let found = (sparse(a, selector)?, compiler.source(metadata, ScalarType::B32)?);
            operands.drain(3..5);
            Some(found)
        }
        _ => None,
    };
    let [results, first, second, adds, rest @ ..] = operands.as_slice() else {
        return invalid("`wgmma.mma_async` takes D, A, B and whether D is added");
    };
    let immediate = |at: usize| match rest.get(at) {
        Some(Operand::Constant(ptx::Constant::Integer(value))) => *value,
        _ => 0,
    };
    let in_registers = matches!(first, Operand::Vector(_));
    let descriptor = |compiler: &mut FunctionCompiler, operand: &Operand, transposed: i128| {
        let descriptor = compiler.source(operand, ScalarType::B64)?;
        Ok(Factor { descriptor, across: transposed == 1 })
    };
    let (first_factor, of_b) = match in_registers {
        true => (None, immediate(2)),
        false => (Some(descriptor(compiler, first, immediate(2))?), immediate(3)),
    };
    let group = Group {
        arithmetic,
        n: shape.n,
        // Of bits, 32 at a time.
        k: in_elements(shape, a).k,
        bits: bits(a),
        sparse,
        sum_bits: bits(d),
        a: first_factor,
        b: descriptor(compiler, second, of_b)?,
        negated: [immediate(0) == -1, immediate(1) == -1],
        adds: match adds {
            Operand::Name(name) => Adds::If(compiler.predicate(*name)?),
            Operand::Constant(ptx::Constant::Integer(value)) => Adds::Known(*value != 0),
            _ => return invalid("whether D is added is a predicate"),
        },
        warp: compiler.input(Class::Word, Input::Warp),
    };
    let (a_registers, d_registers) = group.counts();
    let mut sources = match in_registers {
        true => registers(compiler, first, a_registers, ScalarType::B32)?,
        false => Vec::new(),
    };
    sources.extend(registers(compiler, results, d_registers, ScalarType::B32)?);
    let results = (load_store::elements(results, d_registers)?, ScalarType::B32);
    finish(compiler, Operation::MultiplyGroup(Box::new(group)), None, sources, results)
}

/// The arithmetic of a warp group's product.
fn group_arithmetic(
    d: ScalarType,
    a: ScalarType,
    b: ScalarType,
    terms: usize,
    saturate: bool,
) -> Decoded<Arithmetic> {
    use ScalarType::{B1, Bf16, E4m3, E5m2, F16, F32, S8, S32, Tf32, U8};
    let float = |factor, sum| Ok(Arithmetic::Float(Float { factor, c: sum, d: sum, terms }));
    match (d, a, b) {
        (F16, F16, F16) => float(Format::F16, Format::F16),
        (F32, F16, F16) => float(Format::F16, Format::F32),
        (F32, Bf16, Bf16) => float(Format::Bf16, Format::F32),
        (F32, Tf32, Tf32) => float(Format::Tf32, Format::F32),
        (S32, S8 | U8, S8 | U8) => {
            let integer = |ty: ScalarType| Integer { bits: 8, signed: ty.is_signed() };
            Ok(Arithmetic::Integer { a: integer(a), b: integer(b), saturate })
        }
        (S32, B1, B1) => Ok(Arithmetic::Bits { and: true }),
        (F16 | F32, E4m3 | E5m2, E4m3 | E5m2) => {
            let element = |ty| Element { format: if ty == E4m3 { soft::E4M3 } else { soft::E5M2 }, shift: 0 };
            let sum = if d == F16 { Format::F16 } else { Format::F32 };
            let (a, b) = (element(a), element(b));
            Ok(Arithmetic::Narrow(Narrow { a, b, sum, kept: 13, grouped: false, coarse: true }))
        }
        _ => unsupported(format!("`wgmma` on {a} and {b} in {d} is not supported")),
    }
}

/// Returns the address of a fragment in memory and the register with the stride.
fn fragment_place(
    compiler: &mut FunctionCompiler,
    form: &mut Undecoded,
    address: &Operand,
    stride: Option<&Operand>,
    default: usize,
) -> Decoded<(AccessArgs, Reg)> {
    let space = form.take_space();
    let address = load_store::address(compiler, address, space)?;
    if address.space == Space::Local {
        return invalid("matrices lie in global or shared memory");
    }
    let stride = match stride {
        Some(stride) => compiler.source(stride, ScalarType::U32)?,
        None => compiler.constant(Class::Word, default as u64),
    };
    Ok((address, stride))
}

fn load_fragment(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let [results, address, rest @ ..] = line.operands.as_slice() else {
        return invalid("`wmma.load` takes a fragment and an address");
    };
    let (fragment, count, default) = fragment(form)?;
    let (address, stride) = fragment_place(compiler, form, address, rest.first(), default)?;
    let results = (load_store::elements(results, count)?, register_type(fragment.layout.bits));
    finish(compiler, Operation::LoadFragment(fragment), Some(address), vec![stride], results)
}

fn store_fragment(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let [address, values, rest @ ..] = line.operands.as_slice() else {
        return invalid("`wmma.store` takes an address and a fragment");
    };
    let (fragment, count, default) = fragment(form)?;
    let (address, stride) = fragment_place(compiler, form, address, rest.first(), default)?;
    let ty = register_type(fragment.layout.bits);
    let mut sources = vec![stride];
    sources.extend(registers(compiler, values, count, ty)?);
    finish(compiler, Operation::StoreFragment(fragment), Some(address), sources, (Vec::new(), ty))
}

/// The operation of `ldmatrix` or `stmatrix`, and the registers of each tile.
fn tiles(form: &mut Undecoded, mnemonic: &str) -> Decoded<(Operation, usize)> {
    let transposed = form.take(Flag::Transposed);
    let loads = form.opcode == Some(Opcode::Ldmatrix);
    let tile = form.tile.take();
    // Elements of less than eight bits, of which the mnemonic names the padding too.
    let packed = [(".b6x16_p32", 6), (".b4x16_p64", 4)];
    let packed = packed.iter().find(|(word, _)| mnemonic.contains(word)).map(|(_, bits)| *bits);
    let ty = form.take_type();
    let bits = match (tile, ty) {
        (Some([8, 8, 0]), Some(ScalarType::B16)) => {
            let operation = match loads {
                true => Operation::LoadTiles { transposed },
                false => Operation::StoreTiles { transposed },
            };
            return Ok((operation, 1));
        }
        (Some(_), Some(ScalarType::B8)) => 8,
        (Some(_), None) if packed.is_some() => packed.unwrap_or(8),
        _ => return unsupported(format!("`{mnemonic}` is not supported")),
    };
    // The words of the packing, which has been read.
    form.unknown = 0;
    match (tile, loads, transposed) {
        (Some([8, 16, 0]), true, false) => Ok((Operation::LoadBytes(ByteTiles { bits, across: false }), 1)),
        (Some([16, 16, 0]), true, true) => Ok((Operation::LoadBytes(ByteTiles { bits, across: true }), 2)),
        (Some([16, 8, 0]), false, true) => Ok((Operation::StoreBytes, 1)),
        _ => unsupported(format!("`{mnemonic}` is not supported")),
    }
}

/// `ldmatrix` and `stmatrix`.
fn move_tiles(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let count = match form.count.take() {
        Some(count @ (1 | 2 | 4)) => usize::from(count),
        _ => return invalid("this instruction needs `.x1`, `.x2` or `.x4`"),
    };
    let (operation, each) = tiles(form, line.instruction.mnemonic.text())?;
    let (count, space) = (count * each, form.take_space());
    let [first, second] = line.operands.as_slice() else {
        return invalid("this instruction takes registers and an address");
    };
    let ty = ScalarType::B32;
    if form.opcode == Some(Opcode::Ldmatrix) {
        let address = load_store::address(compiler, second, space)?;
        let results = (load_store::elements(first, count)?, ty);
        return finish(compiler, operation, Some(address), Vec::new(), results);
    }
    let address = load_store::address(compiler, first, space)?;
    let sources = registers(compiler, second, count, ty)?;
    finish(compiler, operation, Some(address), sources, (Vec::new(), ty))
}

fn transpose(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let known = (form.tile.take() == Some([8, 8, 0]))
        & form.take(Flag::Transposed)
        & (form.take_type() == Some(ScalarType::B16));
    let [result, source] = line.operands.as_slice() else {
        return invalid("`movmatrix` takes two registers");
    };
    if !known {
        return unsupported("`movmatrix` transposes tiles of 8 by 8 elements of 16 bits only");
    }
    let sources = vec![compiler.source(source, ScalarType::B32)?];
    finish(compiler, Operation::Transpose, None, sources, (vec![result.clone()], ScalarType::B32))
}
