//! Instructions on textures and surfaces.
//!
//! Objects are 64-bit handles in registers, as CUDA's texture and surface objects are. References
//! (`.texref`, `.surfref`), which no compiler since CUDA 12 emits, are not supported.

use ptx::ScalarType;
use ptx::body::{Line, Operand};
use ptx::instruction::{Atomic, Flag, Geometry as Dimensions, Letter, Limit, Opcode, Query as Asked};

use crate::code::Op;
use crate::compile::decode::Undecoded;
use crate::compile::decode::load_store::elements;
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::compile::operand::Destination;
use crate::image::sampling::{Level, TextureOp};
use crate::image::surface::{Bounds, Combine, SurfaceOp};
use crate::image::{Geometry, ImageOp, ImageStep, Query};
use crate::operands::Reg;

/// Decodes what reads or writes images. `None` if the opcode does neither.
pub(crate) fn decode(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
) -> Option<Decoded<()>> {
    Some(match form.opcode? {
        Opcode::Tex => fetch(compiler, line, form),
        Opcode::Tld4 => gather(compiler, line, form),
        Opcode::Txq | Opcode::Suq => query(compiler, line, form),
        Opcode::Suld => load(compiler, line, form),
        Opcode::Sust => store(compiler, line, form),
        Opcode::Sured => reduce(compiler, line, form),
        _ => return None,
    })
}

fn geometry(form: &mut Undecoded) -> Decoded<Geometry> {
    let flat = |dimensions, layered| Ok(Geometry { dimensions, layered, cube: false });
    match form.geometry.take() {
        Some(Dimensions::Line) => flat(1, false),
        Some(Dimensions::Plane) => flat(2, false),
        Some(Dimensions::Volume) => flat(3, false),
        Some(Dimensions::LineArray) => flat(1, true),
        Some(Dimensions::PlaneArray) => flat(2, true),
        Some(Dimensions::Cube) => Ok(Geometry { dimensions: 3, layered: false, cube: true }),
        Some(Dimensions::CubeArray) => Ok(Geometry { dimensions: 3, layered: true, cube: true }),
        Some(_) => unsupported("multisampled textures are not supported"),
        None => invalid("an access to an image needs its geometry, such as `.2d`"),
    }
}

/// The object's handle, and the coordinates as words.
fn target(
    compiler: &mut FunctionCompiler,
    operand: &Operand,
    coordinates: Option<(Geometry, ScalarType)>,
) -> Decoded<(Reg, Vec<Reg>)> {
    let Operand::Address(address) = operand else {
        return invalid(format!("`{}` is not an image with coordinates", compiler.show(operand)));
    };
    let Some(base) = address.base.operand() else { return invalid("an image is named by a register") };
    if compiler.named(&base)?.is_none() {
        let name = compiler.show(&base);
        return unsupported(format!(
            "`{name}`: texture and surface references are not supported, objects are"
        ));
    }
    let object = compiler.source(&base, ScalarType::U64)?;
    let (Some((geometry, ty)), rest) = (coordinates, address.rest.as_slice()) else {
        return Ok((object, Vec::new()));
    };
    let listed = match rest {
        [Operand::Vector(listed)] => listed.as_slice(),
        [_] => rest,
        [_, ..] => return unsupported("textures with separate samplers are not supported"),
        [] => return invalid("an access to an image needs coordinates"),
    };
    if listed.len() < geometry.coordinates() {
        return invalid(format!("this geometry takes {} coordinates", geometry.coordinates()));
    }
    let mut words = Vec::new();
    for (index, operand) in listed.iter().enumerate().take(geometry.coordinates()) {
        let ty = if geometry.layered && index == 0 { ScalarType::U32 } else { ty };
        words.push(compiler.source(operand, ty)?);
    }
    Ok((object, words))
}

/// Returns the registers of the results, and the conversions after the step.
fn results(
    compiler: &mut FunctionCompiler,
    operand: &Operand,
    count: usize,
    ty: ScalarType,
) -> Decoded<([Reg; 4], Vec<Destination>)> {
    if let Operand::Pair(..) = operand {
        return unsupported("residency of sparse textures is not supported");
    }
    let mut data = [Reg::NONE; 4];
    let mut destinations = Vec::new();
    for (slot, element) in data.iter_mut().zip(elements(operand, count)?) {
        let destination = compiler.destination(&element, ty)?;
        *slot = destination.reg;
        destinations.push(destination);
    }
    Ok((data, destinations))
}

fn push(compiler: &mut FunctionCompiler, step: ImageStep, destinations: Vec<Destination>) {
    compiler.push(Op::Image(Box::new(step)));
    destinations.into_iter().for_each(|destination| compiler.widen(destination));
}

/// The types of the result and of the coordinates.
fn texture_types(form: &mut Undecoded) -> Decoded<(ScalarType, ScalarType)> {
    match (form.take_type(), form.take_type()) {
        (Some(ScalarType::F32 | ScalarType::U32 | ScalarType::S32), None) | (None, _) => {
            invalid("a texture instruction needs the types of its result and of its coordinates")
        }
        (Some(result @ (ScalarType::F32 | ScalarType::U32 | ScalarType::S32)), Some(coordinates)) => {
            Ok((result, coordinates))
        }
        (Some(result), _) => unsupported(format!("textures of {result} are not supported")),
    }
}

fn fetch(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let level = match form.take_one(&[Flag::Level, Flag::Gradient, Flag::Base]) {
        Some(Flag::Level) => Level::Given,
        Some(Flag::Gradient) => Level::Gradient,
        _ => Level::Base,
    };
    let geometry = geometry(form)?;
    if form.vector.take() != Some(4) {
        return unsupported("`tex` without `.v4` is not supported");
    }
    let (ty, coordinates) = texture_types(form)?;
    let integer = match coordinates {
        ScalarType::F32 => false,
        ScalarType::S32 if !geometry.cube && level != Level::Gradient => true,
        other => return invalid(format!("coordinates of type {other} do not go with this instruction")),
    };
    let [destination, image, more @ ..] = line.operands.as_slice() else {
        return invalid("`tex` takes a destination and an image with coordinates");
    };
    let (object, mut sources) = target(compiler, image, Some((geometry, coordinates)))?;
    let dimensions = usize::from(geometry.dimensions);
    let more = match (level, more) {
        (Level::Base, more) => more,
        (Level::Given, [level, more @ ..]) => {
            sources.push(compiler.source(level, coordinates)?);
            more
        }
        (Level::Gradient, [dx, dy, more @ ..]) => {
            for gradient in [dx, dy] {
                let listed = match gradient {
                    Operand::Vector(listed) => listed.as_slice(),
                    single => std::slice::from_ref(single),
                };
                if listed.len() < dimensions {
                    return invalid("a gradient has as many components as there are dimensions");
                }
                for component in &listed[..dimensions] {
                    sources.push(compiler.source(component, ScalarType::F32)?);
                }
            }
            more
        }
        _ => return invalid("`tex` lacks its level or its gradients"),
    };
    if !more.is_empty() {
        return unsupported("texel offsets and depth comparison are not supported");
    }
    let (data, destinations) = results(compiler, destination, 4, ty)?;
    let op = ImageOp::Texture(TextureOp::Fetch { geometry, integer, level });
    push(compiler, ImageStep { op, object, sources: sources.into(), data }, destinations);
    Ok(())
}

fn gather(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let channel = match form.letter.take() {
        Some(Letter::R) => 0,
        Some(Letter::G) => 1,
        Some(Letter::B) => 2,
        Some(Letter::A) => 3,
        _ => return invalid("`tld4` needs a component, such as `.r`"),
    };
    let geometry = geometry(form)?;
    if geometry.dimensions != 2 && !geometry.cube {
        return invalid("`tld4` takes textures of two dimensions and cubes");
    }
    if form.vector.take() != Some(4) {
        return invalid("`tld4` needs `.v4`");
    }
    let (ty, coordinates) = texture_types(form)?;
    let [destination, image] = line.operands.as_slice() else {
        return unsupported("texel offsets and depth comparison are not supported");
    };
    let (object, sources) = target(compiler, image, Some((geometry, coordinates)))?;
    let (data, destinations) = results(compiler, destination, 4, ty)?;
    let op = ImageOp::Texture(TextureOp::Gather { geometry, channel });
    push(compiler, ImageStep { op, object, sources: sources.into(), data }, destinations);
    Ok(())
}

fn query(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let level = form.take(Flag::Level);
    let found = form.query.take().map(|query| match query {
        Asked::Width => Query::Width,
        Asked::Height => Query::Height,
        Asked::Depth => Query::Depth,
        Asked::ArraySize => Query::Layers,
        Asked::MipmapLevels => Query::Levels,
        Asked::NormalizedCoordinates => Query::Normalized,
        Asked::FilterMode => Query::Linear,
    });
    let Some(query) = found else { return unsupported("this query of images is not supported") };
    form.take_type();
    let ([destination, image] | [destination, image, _]) = line.operands.as_slice() else {
        return invalid("a query takes a destination and an image");
    };
    let (object, mut sources) = target(compiler, image, None)?;
    if let (true, [.., level]) = (level, line.operands.as_slice()) {
        sources.push(compiler.source(level, ScalarType::U32)?);
    }
    let (data, destinations) = results(compiler, destination, 1, ScalarType::B32)?;
    let op = match form.opcode {
        Some(Opcode::Txq) => ImageOp::Texture(TextureOp::Query(query)),
        _ => ImageOp::Surface(SurfaceOp::Query(query)),
    };
    push(compiler, ImageStep { op, object, sources: sources.into(), data }, destinations);
    Ok(())
}

/// The modifiers of a surface instruction; `b` is true for bytes, false for texels.
struct SurfaceForm {
    bytewise: bool,
    geometry: Geometry,
    count: usize,
    ty: ScalarType,
    bounds: Bounds,
}

fn surface_form(form: &mut Undecoded) -> Decoded<SurfaceForm> {
    let bytewise = match form.letter.take() {
        Some(Letter::B) => true,
        Some(Letter::P) => false,
        _ => return invalid("a surface instruction needs `.b` or `.p`"),
    };
    let geometry = geometry(form)?;
    if geometry.cube {
        return invalid("surfaces have no cubes: their faces are layers");
    }
    form.cache.take();
    let count = form.vector.take().unwrap_or(1).into();
    let bounds = match form.limit.take() {
        Some(Limit::Clamp) => Bounds::Clamp,
        Some(Limit::Zero) => Bounds::Zero,
        _ => Bounds::Trap,
    };
    let Some(ty) = form.take_type() else { return invalid("a surface instruction needs a type") };
    Ok(SurfaceForm { bytewise, geometry, count, ty, bounds })
}

fn load(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let SurfaceForm { bytewise, geometry, count, ty, bounds } = surface_form(form)?;
    if !bytewise {
        return unsupported("formatted loads from surfaces are not supported");
    }
    let [destination, image] = line.operands.as_slice() else {
        return invalid("`suld` takes a destination and an image with coordinates");
    };
    let (object, sources) = target(compiler, image, Some((geometry, ScalarType::S32)))?;
    let (data, destinations) = results(compiler, destination, count, ty)?;
    let (bytes, count) = (ty.bytes() as u8, count as u8);
    let op = ImageOp::Surface(SurfaceOp::Load { geometry, bytes, count, bounds });
    push(compiler, ImageStep { op, object, sources: sources.into(), data }, destinations);
    Ok(())
}

/// The values that are stored.
fn stored(
    compiler: &mut FunctionCompiler,
    operand: &Operand,
    count: usize,
    ty: ScalarType,
) -> Decoded<[Reg; 4]> {
    let mut data = [Reg::NONE; 4];
    for (slot, element) in data.iter_mut().zip(elements(operand, count)?) {
        *slot = compiler.source(&element, ty)?;
    }
    Ok(data)
}

fn store(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let SurfaceForm { bytewise, geometry, count, ty, bounds } = surface_form(form)?;
    let [image, value] = line.operands.as_slice() else {
        return invalid("`sust` takes an image with coordinates and a value");
    };
    let (object, sources) = target(compiler, image, Some((geometry, ScalarType::S32)))?;
    let data = stored(compiler, value, count, ty)?;
    let (bytes, count) = (ty.bytes() as u8, count as u8);
    let op = match bytewise {
        true => SurfaceOp::Store { geometry, bytes, count, bounds },
        false if bytes == 4 => SurfaceOp::StoreTexel { geometry, count, bounds },
        false => return invalid("formatted stores take 32-bit values"),
    };
    push(compiler, ImageStep { op: ImageOp::Surface(op), object, sources: sources.into(), data }, Vec::new());
    Ok(())
}

fn reduce(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let operation = form.atomic.take();
    let SurfaceForm { bytewise, geometry, count, ty, bounds } = surface_form(form)?;
    let combine = match operation {
        Some(Atomic::Add) => Combine::Add,
        Some(Atomic::Minimum) => Combine::Min { signed: ty.is_signed() },
        Some(Atomic::Maximum) => Combine::Max { signed: ty.is_signed() },
        Some(Atomic::And) => Combine::And,
        Some(Atomic::Or) => Combine::Or,
        _ => return invalid("`sured` needs an operation, such as `.add`"),
    };
    if !bytewise || count != 1 || ty.is_float() || !matches!(ty.bytes(), 4 | 8) {
        return unsupported("this form of `sured` is not supported");
    }
    let [image, value] = line.operands.as_slice() else {
        return invalid("`sured` takes an image with coordinates and a value");
    };
    let (object, sources) = target(compiler, image, Some((geometry, ScalarType::S32)))?;
    let data = stored(compiler, value, 1, ty)?;
    let op = SurfaceOp::Reduce { geometry, bytes: ty.bytes() as u8, combine, bounds };
    push(compiler, ImageStep { op: ImageOp::Surface(op), object, sources: sources.into(), data }, Vec::new());
    Ok(())
}
