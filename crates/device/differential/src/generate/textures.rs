//! Textures: every form that reads one, over memory of every kind, with the ways in which samplers
//! read.
//!
//! Extents are powers of two and coordinates are multiples of 1/256 of a texel, so that positions
//! and weights are exact and only what the ISA says of them counts; what lies between is tried in
//! programs of its own (`between`).

use crate::case::{Case, Rule};
use crate::image::{Address, Format, Image, Memory, Sampler};
use crate::kernel::Kernel;
use crate::random::Random;
use crate::values::Values;
use ptx::ScalarType;
use ptx::forms::{self, Instance, Kind};

const BLOCK: u32 = 64;

pub(super) fn generate(cases: &mut Vec<Case>) {
    for opcode in ["tex", "tld4"] {
        let instances = forms::of_opcode(opcode).iter().flat_map(|form| form.instances());
        for fetch in instances.filter_map(Fetch::of) {
            for setup in fetch.setups() {
                cases.push(fetch.case(&setup));
            }
        }
    }
    for query in
        ["width", "height", "depth", "array_size", "num_mipmap_levels", "normalized_coords", "filter_mode"]
    {
        cases.push(queries(&format!("txq.{query}.b32"), false));
    }
    for query in ["width", "height", "depth"] {
        cases.push(queries(&format!("txq.level.{query}.b32"), true));
    }
}

/// An instruction that reads texels, taken apart.
struct Fetch {
    instance: Instance,
    /// `1d`, `a2d`, `cube`, ….
    geometry: String,
    result: ScalarType,
    /// Whether coordinates are integers.
    integers: bool,
}

/// An image, how it is read, and from where.
struct Setup {
    name: String,
    image: Image,
    /// The values of coordinates.
    coordinate: Values,
}

/// A way of reading.
#[derive(Clone, Copy)]
struct Reading {
    name: &'static str,
    memory: Memory,
    address: Address,
    linear: bool,
    normalized: bool,
    coordinate: Values,
}

impl Fetch {
    /// Nothing for forms with a second result and multisampled images.
    fn of(instance: Instance) -> Option<Fetch> {
        let mut words = instance.mnemonic.split('.').skip(1);
        let geometry = words.find(|word| ["1d", "2d", "3d", "cube"].iter().any(|end| word.ends_with(end)));
        let geometry = geometry?.to_owned();
        let Kind::Vector(result, 4) = &instance.operands[0].kind else { return None };
        let Kind::Value { ty: result, .. } = **result else { return None };
        let integers = instance.mnemonic.ends_with(".s32");
        Some(Fetch { geometry, result, integers, instance })
    }

    fn is_layered(&self) -> bool {
        self.geometry.starts_with('a')
    }

    fn is_cube(&self) -> bool {
        self.geometry.ends_with("cube")
    }

    /// The array that the geometry reads: memory and extent.
    fn array(&self) -> (Memory, [usize; 3]) {
        match self.geometry.as_str() {
            "1d" => (Memory::Array, [16, 0, 0]),
            "2d" => (Memory::Array, [16, 8, 0]),
            "3d" => (Memory::Array, [16, 8, 4]),
            "a1d" => (Memory::Layers, [16, 0, 4]),
            "a2d" => (Memory::Layers, [16, 8, 4]),
            "cube" => (Memory::Cube, [8, 8, 6]),
            _ => (Memory::Cubes, [8, 8, 12]),
        }
    }

    /// Formats that give such a result: what a channel is, how many, and whether integers are read
    /// as fractions.
    fn formats(&self) -> &'static [(Format, u32, bool)] {
        match self.result {
            ScalarType::U32 => &[(Format::U8, 4, false), (Format::U16, 2, false), (Format::U32, 1, false)],
            ScalarType::S32 => &[(Format::S8, 1, false), (Format::S16, 4, false), (Format::S32, 2, false)],
            _ => &[
                (Format::F32, 1, true),
                (Format::F32, 4, true),
                (Format::F16, 2, true),
                (Format::U8, 4, true),
                (Format::S8, 2, true),
                (Format::U16, 1, true),
                (Format::S16, 4, true),
            ],
        }
    }

    /// Whether a mipmap level is chosen.
    fn has_level(&self) -> bool {
        self.instance.mnemonic.starts_with("tex.level") || self.instance.mnemonic.starts_with("tex.grad")
    }

    /// Each way of reading, with an image of a format that gives such a result.
    fn setups(&self) -> Vec<Setup> {
        let mut random = Random::named(&self.instance.mnemonic);
        let (_, extent) = self.array();
        let setup = |reading: Reading| {
            let Reading { name, memory, address, linear, normalized, coordinate } = reading;
            let &(format, channels, fractions) = random.pick(self.formats());
            let sampler = Some(Sampler { address, linear, normalized, fractions });
            let values = contents(format, linear || self.has_level());
            let image = Image { memory, extent, format, channels, values, sampler };
            let [linear, normalized] = [(linear, " linear"), (normalized, " normalized")]
                .map(|(is, word)| if is { word } else { "" });
            let name = format!("{name}{address:?}{linear}{normalized}").to_lowercase();
            Setup { name, image, coordinate }
        };
        self.readings().into_iter().map(setup).collect()
    }

    fn readings(&self) -> Vec<Reading> {
        use Address::*;
        let (memory, _) = self.array();
        let filters: &[bool] = if self.result == ScalarType::F32 { &[false, true] } else { &[false] };
        let texel = if self.integers { Values::Texel } else { Values::TexelPosition };
        let by_texel =
            Reading { name: "", memory, address: Clamp, linear: false, normalized: false, coordinate: texel };
        let by_ratio = Reading { normalized: true, coordinate: Values::Ratio, ..by_texel };
        let mut readings = Vec::new();
        if self.integers {
            readings.extend([Clamp, Border].map(|address| Reading { address, ..by_texel }));
            if self.geometry == "1d" {
                let names = ["memory 0 ", "memory 1 ", "memory 2 "];
                readings.extend(names.map(|name| Reading { name, memory: Memory::Linear, ..by_texel }));
            }
        } else if self.is_cube() {
            let cube = Reading { coordinate: Values::Direction, ..by_ratio };
            readings.extend(filters.iter().map(|&linear| Reading { linear, ..cube }));
        } else {
            for &linear in filters {
                let modes = [Wrap, Mirror, Clamp, Border];
                readings.extend(modes.map(|address| Reading { address, linear, ..by_ratio }));
                readings.extend([Clamp, Border].map(|address| Reading { address, linear, ..by_texel }));
                let (name, coordinate) = ("between ", Values::AnyRatio);
                readings.push(Reading { name, address: Wrap, linear, coordinate, ..by_ratio });
            }
        }
        let pitched = Reading { name: "pitched ", memory: Memory::Pitched, ..by_texel };
        let mipmaps = Reading { name: "mipmaps ", memory: Memory::Levels(3), address: Wrap, ..by_ratio };
        let filters = if self.integers { &[false] } else { filters };
        if self.geometry == "2d" {
            readings.extend(filters.iter().map(|&linear| Reading { linear, ..pitched }));
        }
        if self.has_level() && memory == Memory::Array && !self.integers {
            readings.extend(filters.iter().map(|&linear| Reading { linear, ..mipmaps }));
        }
        readings
    }

    fn case(&self, setup: &Setup) -> Case {
        let mut kernel = Kernel::new(1, BLOCK);
        let handle = kernel.image(setup.image);
        let result: Vec<String> = (0..4).map(|_| kernel.register(32)).collect();
        let mut texts = vec![braces(&result)];
        for operand in &self.instance.operands[1..] {
            texts.push(match &operand.kind {
                Kind::Address { rest, .. } => {
                    let Some(Kind::Vector(_, count)) = rest.first() else { unreachable!("coordinates") };
                    let coordinates: Vec<String> =
                        (0..*count).map(|at| self.coordinate(&mut kernel, setup, at)).collect();
                    format!("[{handle}, {}]", braces(&coordinates))
                }
                Kind::Vector(_, count) => {
                    let gradient: Vec<String> = (0..*count).map(|_| kernel.load(Values::Gradient)).collect();
                    braces(&gradient)
                }
                _ => kernel.load(if self.integers { Values::Layer } else { Values::Level }),
            });
        }
        kernel.line(format!("{} {};", self.instance.mnemonic, texts.join(", ")));
        for (channel, register) in result.iter().enumerate() {
            let values = if self.result == ScalarType::F32 { Values::F32 } else { Values::B32 };
            // What is gathered is not weighed.
            let rule = if self.instance.form.opcode == "tld4" { Rule::Exact } else { rule(&setup.image) };
            kernel.store(&format!("channel {channel}"), values, rule, register);
        }
        let Image { format, channels, .. } = setup.image;
        let format = format!("{format:?} {channels}").to_lowercase();
        kernel.finish(format!("{}/{}, {format}", self.instance.mnemonic, setup.name))
    }

    /// A coordinate; the layer comes first.
    fn coordinate(&self, kernel: &mut Kernel, setup: &Setup, at: usize) -> String {
        kernel.load(if at == 0 && self.is_layered() { Values::Layer } else { setup.coordinate })
    }
}

fn braces(registers: &[String]) -> String {
    format!("{{{}}}", registers.join(", "))
}

/// Returns the values of channels: any bits, or numbers that may be weighed.
fn contents(format: Format, weighed: bool) -> Values {
    match format {
        Format::U8 | Format::S8 => Values::B8,
        Format::U16 | Format::S16 => Values::B16,
        Format::U32 | Format::S32 => Values::B32,
        Format::F16 if weighed => Values::UnitF16,
        Format::F16 => Values::F16,
        Format::F32 if weighed => Values::UnitF32,
        Format::F32 => Values::F32,
    }
}

/// Weights have 8 bits of fraction. Nothing says how positions are rounded to them: the bound is a
/// step of the weight in each dimension, between texels that are at most 2 apart. Mipmap levels are
/// a dimension too.
fn rule(image: &Image) -> Rule {
    let Some(Sampler { linear: true, .. }) = image.sampler else { return Rule::Exact };
    let extents = image.extent.iter().filter(|&&extent| extent > 0).count();
    let dimensions = match image.memory {
        Memory::Layers | Memory::Cube | Memory::Cubes => extents - 1,
        Memory::Levels(_) => extents + 1,
        _ => extents,
    };
    Rule::Near { relative: 0.0, absolute: dimensions as f64 * 2f64.powi(-7) }
}

/// A question about images of several kinds.
fn queries(form: &str, level: bool) -> Case {
    let mut kernel = Kernel::new(1, 32);
    let memories: &[(&str, Memory, [usize; 3])] = match (form, level) {
        (_, true) => &[("array", Memory::Array, [16, 8, 4]), ("mipmaps", Memory::Levels(3), [16, 8, 4])],
        _ if form.contains("array_size") => {
            &[("layers", Memory::Layers, [16, 8, 5]), ("rows", Memory::Layers, [7, 0, 3])]
        }
        _ => &[
            ("line", Memory::Array, [13, 0, 0]),
            ("plane", Memory::Array, [13, 7, 0]),
            ("space", Memory::Array, [13, 7, 3]),
            ("pitched", Memory::Pitched, [13, 7, 0]),
            ("mipmaps", Memory::Levels(3), [16, 8, 4]),
        ],
    };
    for (index, &(name, memory, extent)) in memories.iter().enumerate() {
        let asked = match form.split('.').find(|word| matches!(*word, "height" | "depth")) {
            Some("height") => extent[1],
            Some("depth") => extent[2],
            _ => 1,
        };
        // The size of a dimension that is not there is nowhere defined.
        if asked == 0 {
            continue;
        }
        let normalized = index % 2 == 1 || matches!(memory, Memory::Levels(_));
        let linear = form.contains("filter") && index % 2 == 0;
        let sampler = Sampler { address: Address::Clamp, linear, normalized, fractions: true };
        let (format, values) = (Format::F32, Values::F32);
        let handle =
            kernel.image(Image { memory, extent, format, channels: 1, values, sampler: Some(sampler) });
        for level in 0..if level { 3 } else { 1 } {
            let answer = kernel.register(32);
            let operand = if form.contains(".level") { format!(", {level}") } else { String::new() };
            kernel.line(format!("{form} {answer}, [{handle}]{operand};"));
            kernel.store(&format!("{name} {level}"), Values::B32, Rule::Exact, &answer);
        }
    }
    kernel.finish(format!("{form}/0"))
}
