//! Instructions on textures and surfaces.
//!
//! Objects are 64-bit handles in registers, as CUDA's texture and surface objects are. References (`.texref`,
//! `.surfref`), which no compiler since CUDA 12 emits, are not supported.

use ptx::ScalarType;
use ptx::body::{Line, Operand};

use crate::code::Op;
use crate::compile::decode::form::Form;
use crate::compile::decode::load_store::elements;
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::compile::operand::Destination;
use crate::image::sampling::{Level, TextureOp};
use crate::image::surface::{Bounds, Combine, SurfaceOp};
use crate::image::{Geometry, ImageOp, ImageStep, Query};
use crate::operands::Reg;

/// Decodes what reads or writes images. `None` if the opcode does neither.
pub(crate) fn decode(compiler: &mut FunctionCompiler, line: &Line, form: &mut Form) -> Option<Decoded<()>> {
    Some(match form.opcode {
        "tex" => fetch(compiler, line, form),
        "tld4" => gather(compiler, line, form),
        "txq" | "suq" => query(compiler, line, form),
        "suld" => load(compiler, line, form),
        "sust" => store(compiler, line, form),
        "sured" => reduce(compiler, line, form),
        _ => return None,
    })
}

fn geometry(form: &mut Form) -> Decoded<Geometry> {
    let flat = |dimensions, layered| Ok(Geometry { dimensions, layered, cube: false });
    match form.one_of(&["1d", "2d", "3d", "a1d", "a2d", "cube", "acube", "2dms", "a2dms"]) {
        Some("1d") => flat(1, false),
        Some("2d") => flat(2, false),
        Some("3d") => flat(3, false),
        Some("a1d") => flat(1, true),
        Some("a2d") => flat(2, true),
        Some("cube") => Ok(Geometry { dimensions: 3, layered: false, cube: true }),
        Some("acube") => Ok(Geometry { dimensions: 3, layered: true, cube: true }),
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

/// Where results go: their registers, and what has to be done after the step.
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
fn texture_types(form: &mut Form) -> Decoded<(ScalarType, ScalarType)> {
    match (form.ty(), form.ty()) {
        (Some(ScalarType::F32 | ScalarType::U32 | ScalarType::S32), None) | (None, _) => {
            invalid("a texture instruction needs the types of its result and of its coordinates")
        }
        (Some(result @ (ScalarType::F32 | ScalarType::U32 | ScalarType::S32)), Some(coordinates)) => {
            Ok((result, coordinates))
        }
        (Some(result), _) => unsupported(format!("textures of {result} are not supported")),
    }
}

fn fetch(compiler: &mut FunctionCompiler, line: &Line, form: &mut Form) -> Decoded<()> {
    let level = match form.one_of(&["level", "grad", "base"]) {
        Some("level") => Level::Given,
        Some("grad") => Level::Gradient,
        _ => Level::Base,
    };
    let geometry = geometry(form)?;
    if !form.flag("v4") {
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

fn gather(compiler: &mut FunctionCompiler, line: &Line, form: &mut Form) -> Decoded<()> {
    let channel = match form.one_of(&["r", "g", "b", "a"]) {
        Some("r") => 0,
        Some("g") => 1,
        Some("b") => 2,
        Some(_) => 3,
        None => return invalid("`tld4` needs a component, such as `.r`"),
    };
    let geometry = geometry(form)?;
    if geometry.dimensions != 2 && !geometry.cube {
        return invalid("`tld4` takes textures of two dimensions and cubes");
    }
    if !form.flag("v4") {
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

fn query(compiler: &mut FunctionCompiler, line: &Line, form: &mut Form) -> Decoded<()> {
    let level = form.flag("level");
    let found = form.take(|modifier| {
        Some(match modifier {
            "width" => Query::Width,
            "height" => Query::Height,
            "depth" => Query::Depth,
            "array_size" => Query::Layers,
            "num_mipmap_levels" => Query::Levels,
            "normalized_coords" => Query::Normalized,
            "filter_mode" => Query::Linear,
            _ => return None,
        })
    });
    let Some(query) = found else { return unsupported("this query of images is not supported") };
    form.ty();
    let ([destination, image] | [destination, image, _]) = line.operands.as_slice() else {
        return invalid("a query takes a destination and an image");
    };
    let (object, mut sources) = target(compiler, image, None)?;
    if let (true, [.., level]) = (level, line.operands.as_slice()) {
        sources.push(compiler.source(level, ScalarType::U32)?);
    }
    let (data, destinations) = results(compiler, destination, 1, ScalarType::B32)?;
    let op = match form.opcode {
        "txq" => ImageOp::Texture(TextureOp::Query(query)),
        _ => ImageOp::Surface(SurfaceOp::Query(query)),
    };
    push(compiler, ImageStep { op, object, sources: sources.into(), data }, destinations);
    Ok(())
}

/// What a surface instruction's modifiers say; `b` is true for bytes, false for texels.
struct SurfaceForm {
    bytewise: bool,
    geometry: Geometry,
    count: usize,
    ty: ScalarType,
    bounds: Bounds,
}

fn surface_form(form: &mut Form) -> Decoded<SurfaceForm> {
    let bytewise = match form.one_of(&["b", "p"]) {
        Some("b") => true,
        Some(_) => false,
        None => return invalid("a surface instruction needs `.b` or `.p`"),
    };
    let geometry = geometry(form)?;
    if geometry.cube {
        return invalid("surfaces have no cubes: their faces are layers");
    }
    form.one_of(&["ca", "cg", "cs", "cv", "wb", "wt"]);
    let count = match form.one_of(&["v2", "v4"]) {
        Some("v2") => 2,
        Some(_) => 4,
        None => 1,
    };
    let bounds = match form.one_of(&["trap", "clamp", "zero"]) {
        Some("clamp") => Bounds::Clamp,
        Some("zero") => Bounds::Zero,
        _ => Bounds::Trap,
    };
    let Some(ty) = form.ty() else { return invalid("a surface instruction needs a type") };
    Ok(SurfaceForm { bytewise, geometry, count, ty, bounds })
}

fn load(compiler: &mut FunctionCompiler, line: &Line, form: &mut Form) -> Decoded<()> {
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

fn store(compiler: &mut FunctionCompiler, line: &Line, form: &mut Form) -> Decoded<()> {
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

fn reduce(compiler: &mut FunctionCompiler, line: &Line, form: &mut Form) -> Decoded<()> {
    let operation = form.one_of(&["add", "min", "max", "and", "or"]);
    let SurfaceForm { bytewise, geometry, count, ty, bounds } = surface_form(form)?;
    let combine = match operation {
        Some("add") => Combine::Add,
        Some("min") => Combine::Min { signed: ty.is_signed() },
        Some("max") => Combine::Max { signed: ty.is_signed() },
        Some("and") => Combine::And,
        Some(_) => Combine::Or,
        None => return invalid("`sured` needs an operation, such as `.add`"),
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
