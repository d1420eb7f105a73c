//! Surfaces: loads, stores and reductions of every form.
//!
//! A block of 64 threads has an image of 64 texels, one for each. What lies outside is read by all
//! threads; it is stored to by the last one alone, behind a barrier, so that no two threads store
//! to one texel at a time.

use crate::case::{Case, Rule};
use crate::image::{Format, Image, Memory};
use crate::kernel::Kernel;
use crate::values::Values;
use ptx::forms::{self, Instance, Kind};
use std::collections::BTreeMap;

const BLOCK: u32 = 64;

pub(super) fn generate(cases: &mut Vec<Case>) {
    for opcode in ["suld", "sust", "sured"] {
        // Forms that differ in how they are cached share a program.
        let mut groups: BTreeMap<String, Vec<Instance>> = BTreeMap::new();
        for instance in forms::of_opcode(opcode).iter().flat_map(|form| form.instances()) {
            if !instance.mnemonic.starts_with("sured.p") {
                groups.entry(without_cache(&instance.mnemonic)).or_default().push(instance);
            }
        }
        for (name, instances) in groups {
            match opcode {
                "suld" => cases.push(load(&name, &instances)),
                "sust" if name.starts_with("sust.p") => {
                    cases.extend(FORMATS.map(|format| store_texel(&name, &instances[0], format)));
                }
                "sust" => cases.push(store(&name, &instances, &View::of(&instances[0]), "0")),
                _ => cases.push(reduce(&name, &instances[0])),
            }
        }
    }
    for query in ["width", "height", "depth", "array_size"] {
        cases.push(queries(&format!("suq.{query}.b32")));
    }
}

/// Formats to which `sust.p` converts.
const FORMATS: [(Format, Values); 8] = [
    (Format::U8, Values::B8),
    (Format::U16, Values::B16),
    (Format::U32, Values::B32),
    (Format::S8, Values::B8),
    (Format::S16, Values::B16),
    (Format::S32, Values::B32),
    (Format::F16, Values::F16),
    (Format::F32, Values::F32),
];

fn without_cache(mnemonic: &str) -> String {
    let is_cache = |word: &&str| matches!(*word, "ca" | "cg" | "cs" | "cv" | "wb" | "wt");
    mnemonic.split('.').filter(|word| !is_cache(word)).collect::<Vec<_>>().join(".")
}

/// An instruction's view of an image.
struct View {
    image: Image,
    /// Whether the first coordinate is a layer.
    layered: bool,
    /// Bytes by which the x coordinate counts.
    step: usize,
    /// Registers of the data, and bits of each.
    elements: usize,
    width: usize,
}

impl View {
    fn of(instance: &Instance) -> View {
        let words: Vec<&str> = instance.mnemonic.split('.').collect();
        let has = |word: &str| words.contains(&word);
        let (memory, extent) = match words
            .iter()
            .find(|word| word.ends_with("1d") || word.ends_with("2d") || word.ends_with("3d"))
        {
            Some(&"1d") => (Memory::Array, [64, 0, 0]),
            Some(&"2d") => (Memory::Array, [16, 4, 0]),
            Some(&"3d") => (Memory::Array, [8, 4, 2]),
            Some(&"a1d") => (Memory::Layers, [16, 0, 4]),
            _ => (Memory::Layers, [8, 4, 2]),
        };
        let bits = [8, 16, 64].into_iter().find(|bits| has(&format!("b{bits}")) || has(&format!("u{bits}")));
        let bits = bits.unwrap_or(32);
        let elements = if has("v2") {
            2
        } else if has("v4") {
            4
        } else {
            1
        };
        // A texel is as large as what is moved.
        let (format, channels) = match (bits, elements) {
            (8, _) => (Format::U8, elements),
            (16, _) => (Format::U16, elements),
            (64, _) => (Format::U32, 2 * elements),
            _ => (Format::U32, elements),
        };
        let values = match format {
            Format::U8 => Values::B8,
            Format::U16 => Values::B16,
            _ => Values::B32,
        };
        let image = Image { memory, extent, format, channels: channels as u32, values, sampler: None };
        let step = if has("p") { 1 } else { bits * elements / 8 };
        View { image, layered: memory == Memory::Layers, step, elements, width: bits.max(16) }
    }

    /// Coordinates of this thread's own texel, as text with braces.
    fn own(&self, kernel: &mut Kernel) -> String {
        let [width, height, _] = self.image.extent.map(|extent| extent.max(1));
        let [x, y, z] = [0, 1, 2].map(|_| kernel.register(32));
        kernel.line(format!(
            "rem.u32 {x}, thread, {width};\nmul.lo.u32 {x}, {x}, {};\ndiv.u32 {y}, thread, {width};\nrem.u32 {y}, {y}, \
             {height};\ndiv.u32 {z}, thread, {};",
            self.step,
            width * height
        ));
        self.braces(&x, &y, &z)
    }

    /// Coordinates around the image.
    fn around(&self, kernel: &mut Kernel) -> String {
        let [x, y, z] = [0, 1, 2].map(|_| kernel.load(Values::Texel));
        kernel.line(format!("mul.lo.u32 {x}, {x}, {};", self.step));
        // Layers that are not there are undefined.
        if self.layered {
            kernel.line(format!("and.b32 {z}, {z}, 1;"));
        }
        self.braces(&x, &y, &z)
    }

    fn braces(&self, x: &str, y: &str, z: &str) -> String {
        match (self.layered, self.image.extent) {
            (true, [_, 0, _]) => format!("{{{z}, {x}}}"),
            (true, _) => format!("{{{z}, {x}, {y}, {y}}}"),
            (false, [_, 0, 0]) => format!("{{{x}}}"),
            (false, [_, _, 0]) => format!("{{{x}, {y}}}"),
            (false, _) => format!("{{{x}, {y}, {z}, {z}}}"),
        }
    }

    /// Returns the instruction that moves a texel of this view.
    fn raw(&self) -> String {
        let geometry = match (self.layered, self.image.extent) {
            (true, [_, 0, _]) => "a1d",
            (true, _) => "a2d",
            (false, [_, 0, 0]) => "1d",
            (false, [_, _, 0]) => "2d",
            (false, _) => "3d",
        };
        let bytes = self.image.channels as usize * self.image.values.bytes();
        let (vector, bits) = match bytes {
            8 => (".v2", 32),
            16 => (".v4", 32),
            _ => ("", 8 * bytes),
        };
        format!("{geometry}{vector}.b{bits}.trap")
    }

    fn values(&self) -> Values {
        match self.width {
            16 => Values::B16,
            32 => Values::B32,
            _ => Values::B64,
        }
    }

    fn registers(&self, kernel: &mut Kernel) -> Vec<String> {
        (0..self.elements).map(|_| kernel.register(self.width)).collect()
    }

    fn inputs(&self, kernel: &mut Kernel) -> Vec<String> {
        (0..self.elements).map(|_| kernel.load(self.values())).collect()
    }
}

fn vector(registers: &[String]) -> String {
    match registers {
        [one] => one.clone(),
        several => format!("{{{}}}", several.join(", ")),
    }
}

fn load(name: &str, instances: &[Instance]) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    let view = View::of(&instances[0]);
    let handle = kernel.image(view.image);
    for instance in instances {
        let mut places = vec![("own", view.own(&mut kernel))];
        if !name.ends_with(".trap") {
            places.push(("around", view.around(&mut kernel)));
        }
        for (place, coordinates) in places {
            let registers = view.registers(&mut kernel);
            kernel.line(format!("{} {}, [{handle}, {coordinates}];", instance.mnemonic, vector(&registers)));
            for (index, register) in registers.iter().enumerate() {
                let name = format!("{}, {place}: {index}", instance.mnemonic);
                kernel.store(&name, view.values(), Rule::Exact, register);
            }
        }
    }
    kernel.finish(format!("{name}/0"))
}

/// A formatted store to an image of a format.
fn store_texel(name: &str, instance: &Instance, (format, values): (Format, Values)) -> Case {
    let mut view = View::of(instance);
    (view.image.format, view.image.values) = (format, values);
    store(name, std::slice::from_ref(instance), &view, &format!("{format:?}").to_lowercase())
}

fn store(name: &str, instances: &[Instance], view: &View, program: &str) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    for instance in instances {
        let handle = kernel.image(view.image);
        let data: Vec<String> = match view.image.format {
            Format::F16 | Format::F32 => (0..view.elements).map(|_| kernel.load(Values::F32)).collect(),
            _ => view.inputs(&mut kernel),
        };
        let own = view.own(&mut kernel);
        kernel.line(format!("{} [{handle}, {own}], {};", instance.mnemonic, vector(&data)));
        if !name.ends_with(".trap") {
            let around = view.around(&mut kernel);
            let is_last = kernel.register(1);
            kernel.line(format!(
                "bar.sync 0;\nsetp.eq.u32 {is_last}, thread, {};\n@{is_last} {} [{handle}, {around}], {};\nbar.sync 0;",
                BLOCK - 1,
                instance.mnemonic,
                vector(&data)
            ));
        }
        read_back(&mut kernel, view, &instance.mnemonic, &handle);
    }
    kernel.finish(format!("{name}/{program}"))
}

/// Stores this thread's texel to the results.
fn read_back(kernel: &mut Kernel, view: &View, name: &str, handle: &str) {
    let view = View { step: view.image.channels as usize * view.image.values.bytes(), ..*view };
    let own = view.own(kernel);
    let words = (view.step / 4).max(1);
    let width = if view.step < 4 { 16 } else { 32 };
    let texel: Vec<String> = (0..words).map(|_| kernel.register(width)).collect();
    kernel.line(format!("suld.b.{} {}, [{handle}, {own}];", view.raw(), vector(&texel)));
    for (index, register) in texel.iter().enumerate() {
        let values = if width == 16 { Values::B16 } else { Values::B32 };
        kernel.store(&format!("{name}: {index}"), values, Rule::Exact, register);
    }
}

/// All threads on a few texels, in any order.
fn reduce(name: &str, instance: &Instance) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    let mut view = View::of(instance);
    if matches!(instance.operands[1].kind, Kind::Value { ty, .. } if ty.bytes() == 8) {
        (view.image.format, view.image.channels, view.step, view.width) = (Format::U32, 2, 8, 64);
    }
    let handle = kernel.image(view.image);
    let data = view.inputs(&mut kernel);
    let coordinates = if name.ends_with(".trap") {
        let [x, y, z] = [0, 1, 2].map(|_| kernel.load(Values::Texel));
        kernel.line(format!(
            "and.b32 {x}, {x}, 3;\nmul.lo.u32 {x}, {x}, {};\nand.b32 {y}, {y}, 1;\nand.b32 {z}, {z}, 1;",
            view.step
        ));
        view.braces(&x, &y, &z)
    } else {
        view.around(&mut kernel)
    };
    kernel.line(format!("{} [{handle}, {coordinates}], {};\nbar.sync 0;", instance.mnemonic, data[0]));
    read_back(&mut kernel, &view, "texel", &handle);
    kernel.finish(format!("{name}/0"))
}

fn queries(form: &str) -> Case {
    let mut kernel = Kernel::new(1, 32);
    let memories: &[(&str, Memory, [usize; 3])] = match form {
        "suq.array_size.b32" => {
            &[("layers", Memory::Layers, [16, 8, 5]), ("rows", Memory::Layers, [7, 0, 3])]
        }
        "suq.depth.b32" => &[("space", Memory::Array, [13, 7, 3])],
        "suq.height.b32" => &[("plane", Memory::Array, [13, 7, 0]), ("space", Memory::Array, [13, 7, 3])],
        _ => &[
            ("line", Memory::Array, [13, 0, 0]),
            ("plane", Memory::Array, [13, 7, 0]),
            ("layers", Memory::Layers, [16, 8, 5]),
        ],
    };
    for &(name, memory, extent) in memories {
        let (format, values) = (Format::U32, Values::B32);
        let handle = kernel.image(Image { memory, extent, format, channels: 1, values, sampler: None });
        let answer = kernel.register(32);
        kernel.line(format!("{form} {answer}, [{handle}];"));
        kernel.store(name, Values::B32, Rule::Exact, &answer);
    }
    kernel.finish(format!("{form}/0"))
}
