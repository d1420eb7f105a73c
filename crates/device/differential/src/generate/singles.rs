//! Single instructions: every instance of every form of [`ptx::forms`] that computes registers from
//! registers.
//!
//! An instance is executed four times, each time with operands of its own: from registers; under a
//! predicate, where the other threads keep what was there; with a constant for one operand; and
//! with the destination among the sources.

use crate::case::{Case, Rule};
use crate::kernel::Kernel;
use crate::random::Random;
use crate::values::Values;
use ptx::ScalarType;
use ptx::forms::{self, Instance, Kind, Selector, Suffix};
use std::collections::HashMap;

/// The chapters of [`ptx::forms`] whose instructions only compute.
const CHAPTERS: [&str; 7] = [
    "integer arithmetic",
    "floating point",
    "half precision",
    "comparison and selection",
    "logic and shift",
    "conversion",
    "video",
];

/// PTX version and target that programs have at least.
const LEAST: ((u32, u32), u32) = ((8, 0), 80);

/// The GPU's target: what needs more is not generated.
const MOST: u32 = 90;

pub(super) fn generate(cases: &mut Vec<Case>) {
    for form in forms::all().iter().filter(|form| CHAPTERS.contains(&form.chapter) || form.opcode == "mov") {
        for instance in form.instances().into_iter().filter(|instance| !has_odd_registers(instance)) {
            if let Some((version, target)) = needs(&instance) {
                cases.push(case(&instance, version, target));
            }
        }
    }
    // An opcode may have several forms with one mnemonic: they are told apart by number.
    let mut counts: HashMap<String, usize> = HashMap::new();
    for case in cases {
        let count = counts.entry(case.name.clone()).or_default();
        case.name = format!("{}/{count}", case.form());
        *count += 1;
    }
}

/// Whether an operand is a register of 8 or 128 bits, which only `mov` has.
fn has_odd_registers(instance: &Instance) -> bool {
    instance.form.opcode == "mov"
        && instance.operands.iter().any(|operand| match &operand.kind {
            Kind::Value { ty, .. } => ty.bytes() == 16,
            Kind::Vector(kind, _) => matches!(**kind, Kind::Value { ty, .. } if ty.bytes() == 1),
            _ => false,
        })
}

/// Version and target of a module for an instance, if the GPU has it.
fn needs(instance: &Instance) -> Option<((u32, u32), u32)> {
    let possible =
        instance.needs.iter().filter(|need| need.target.suffix == Suffix::None && need.target.number <= MOST);
    let least = possible.min_by_key(|need| need.target.number)?;
    Some((least.version.max(LEAST.0), least.target.number.max(LEAST.1)))
}

/// The way in which an instance is executed.
#[derive(Clone, Copy, PartialEq)]
enum Variant {
    Registers,
    Guarded,
    Constant,
    InPlace,
}

fn case(instance: &Instance, version: (u32, u32), target: u32) -> Case {
    // These are many.
    let blocks = if matches!(instance.form.opcode, "set" | "setp") || instance.form.chapter == "video" {
        1
    } else {
        2
    };
    let mut kernel = Kernel::new(blocks, 32);
    kernel.set_target(format!("{}.{}", version.0, version.1), format!("sm_{target}"));
    let name = format!("{}/0", instance.mnemonic);
    let mut random = Random::named(&name);
    for variant in [Variant::Registers, Variant::Guarded, Variant::Constant, Variant::InPlace] {
        Execution { instance, variant, kernel: &mut kernel, random: &mut random }.write();
    }
    kernel.finish(name)
}

/// One execution of an instance.
struct Execution<'e> {
    instance: &'e Instance,
    variant: Variant,
    kernel: &'e mut Kernel,
    random: &'e mut Random,
}

/// A destination: its register and what it holds.
struct Destination {
    register: String,
    values: Values,
}

impl Execution<'_> {
    fn write(mut self) {
        let sources: Vec<_> = self.instance.operands.iter().filter(|operand| !operand.is_written()).collect();
        let constants: Vec<usize> =
            (0..sources.len()).filter(|&index| may_be_constant(&sources[index].kind)).collect();
        if self.variant == Variant::Constant && constants.is_empty() {
            return;
        }
        let constant = (self.variant == Variant::Constant).then(|| *self.random.pick(&constants));
        let texts: Vec<String> = sources
            .iter()
            .enumerate()
            .map(|(index, source)| match (constant == Some(index), &source.kind) {
                (true, Kind::Value { ty, .. }) => self.constant(source.name, *ty),
                (_, kind) => self.source(source.name, kind),
            })
            .collect();
        let Some(written) = self.instance.operands.iter().find(|operand| operand.is_written()) else {
            return;
        };
        let destinations = self.destinations(&written.kind);
        let shared = match self.variant {
            Variant::InPlace => sources.iter().position(|source| same_register(&source.kind, &written.kind)),
            _ => None,
        };
        if self.variant == Variant::InPlace && shared.is_none() {
            return;
        }
        if let Some(index) = shared {
            let width = width(&destinations[0]);
            let class = if width == 1 { "pred".to_owned() } else { format!("b{width}") };
            self.kernel.line(format!("mov.{class} {}, {};", destinations[0].register, texts[index]));
        }
        let sources: Vec<String> = texts
            .into_iter()
            .enumerate()
            .map(|(index, text)| if shared == Some(index) { destinations[0].register.clone() } else { text })
            .collect();
        self.instruction(&destinations, &sources);
    }

    /// Writes the instruction, with what sets the carry flag before and reads it afterwards, and
    /// the stores.
    fn instruction(&mut self, destinations: &[Destination], sources: &[String]) {
        let mnemonic = &self.instance.mnemonic;
        let guard = match self.variant {
            Variant::Guarded => {
                destinations.iter().for_each(|destination| self.keep(destination));
                format!(
                    "@{}{} ",
                    if self.random.once_in(2) { "!" } else { "" },
                    self.kernel.load(Values::Pred)
                )
            }
            _ => String::new(),
        };
        let opcode = self.instance.form.opcode;
        let (set, read) = if opcode.starts_with("sub") { ("sub.cc", "subc") } else { ("add.cc", "addc") };
        let carry = self.kernel.register(32);
        if matches!(opcode, "addc" | "subc" | "madc") {
            let (a, b) = (self.kernel.load(Values::B32), self.kernel.load(Values::B32));
            self.kernel.line(format!("{set}.u32 {carry}, {a}, {b};"));
        } else if mnemonic.contains(".cc") {
            // Where the guard is false, the flag is what this leaves.
            self.kernel.line(format!("{set}.u32 {carry}, 0, 0;"));
        }
        let registers: Vec<&str> =
            destinations.iter().map(|destination| destination.register.as_str()).collect();
        let written = self.instance.operands.iter().find(|operand| operand.is_written());
        let written = match written.map(|written| &written.kind) {
            Some(Kind::Vector(..)) => format!("{{{}}}", registers.join(", ")),
            Some(Kind::Selected(_, selector)) => registers[0].to_owned() + &self.selector(*selector, true),
            _ => registers.join("|"),
        };
        self.kernel.line(format!("{guard}{mnemonic} {written}, {};", sources.join(", ")));
        let name = match self.variant {
            Variant::Registers => "registers",
            Variant::Guarded => "guarded",
            Variant::Constant => "constant",
            Variant::InPlace => "in place",
        };
        let carries = mnemonic.contains(".cc");
        if carries {
            self.kernel.line(format!("{read}.u32 {carry}, 0, 0;"));
        }
        for (index, destination) in destinations.iter().enumerate() {
            let name = if index == 0 { name.to_owned() } else { format!("{name}: second") };
            self.kernel.store(
                &name,
                destination.values,
                rule(mnemonic, destination.values),
                &destination.register,
            );
        }
        if carries {
            self.kernel.store(&format!("{name}: carry"), Values::B32, Rule::Exact, &carry);
        }
    }

    /// Gives a destination the value that threads keep which do not execute the instruction. No
    /// constant: ptxas takes one as a number of the type that another instruction gives the
    /// register.
    fn keep(&mut self, destination: &Destination) {
        let register = &destination.register;
        self.kernel.line(match width(destination) {
            1 => format!("setp.ne.u32 {register}, lane, 0;"),
            16 => format!("cvt.u16.u32 {register}, thread;"),
            32 => format!("mov.b32 {register}, thread;"),
            _ => format!("cvt.u64.u32 {register}, thread;"),
        });
    }

    fn destinations(&mut self, kind: &Kind) -> Vec<Destination> {
        match kind {
            Kind::Value { ty, .. } => {
                let values = if ty.bytes() == 1 { self.byte() } else { values_of(*ty) };
                let width = if *ty == ScalarType::Pred { 1 } else { 8 * values.bytes() };
                vec![Destination { register: self.kernel.register(width), values }]
            }
            Kind::Vector(kind, count) => (0..*count).flat_map(|_| self.destinations(kind)).collect(),
            Kind::Selected(..) => {
                vec![Destination { register: self.kernel.register(32), values: Values::B32 }]
            }
            Kind::Pair(first, second, optional) => {
                let mut both = self.destinations(first);
                if !optional || self.variant != Variant::Guarded {
                    both.extend(self.destinations(second));
                }
                both
            }
            _ => vec![Destination { register: self.kernel.register(1), values: Values::Pred }],
        }
    }

    /// The register of an 8-bit operand: as wide as it may be beside the others.
    fn byte(&self) -> Values {
        if self.instance.mnemonic.contains("bf16") { Values::B16 } else { Values::B32 }
    }

    fn source(&mut self, name: &str, kind: &Kind) -> String {
        match kind {
            // Of registers that are wider than the type, the upper bits do not count.
            Kind::Value { ty, .. } if ty.bytes() == 1 => {
                let values = self.byte();
                self.kernel.load(values)
            }
            Kind::Value { ty, .. } => {
                let values = operand(self.instance, name, *ty);
                self.kernel.load(values)
            }
            Kind::Selected(_, selector) => {
                let register = self.kernel.load(Values::B32);
                register + &self.selector(*selector, false)
            }
            Kind::Immediate(low, high) => {
                (low + self.random.below((high - low + 1) as usize) as i64).to_string()
            }
            Kind::Vector(kind, count) => {
                let registers: Vec<String> = (0..*count).map(|_| self.source(name, kind)).collect();
                format!("{{{}}}", registers.join(", "))
            }
            _ => {
                let predicate = self.kernel.load(Values::Pred);
                // A predicate that is read may be negated.
                if self.random.once_in(3) { format!("!{predicate}") } else { predicate }
            }
        }
    }

    /// A selector of a video operand, or none.
    fn selector(&mut self, selector: Selector, written: bool) -> String {
        let random = &mut *self.random;
        let mut digits = |count: usize, end: usize| -> String {
            (0..count).map(|_| random.below(end).to_string()).collect()
        };
        match (selector, written) {
            (Selector::Halves, false) => format!(".h{}", digits(2, 4)),
            (Selector::Bytes, false) => format!(".b{}", digits(4, 8)),
            (Selector::Part, false) => {
                (*random.pick(&["", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1"])).to_owned()
            }
            // What is written is merged into the third operand, so there is always a part.
            (Selector::Part, true) => (*random.pick(&[".b0", ".b1", ".b2", ".b3", ".h0", ".h1"])).to_owned(),
            (Selector::Halves, true) => (*random.pick(&["", ".h0", ".h1", ".h10"])).to_owned(),
            (Selector::Bytes, true) => (*random.pick(&["", ".b0", ".b31", ".b210", ".b3210"])).to_owned(),
        }
    }

    fn constant(&mut self, name: &str, ty: ScalarType) -> String {
        let values = operand(self.instance, name, ty);
        let bits = values.random(self.random);
        match ty {
            ScalarType::F32 => format!("0f{bits:08X}"),
            ScalarType::F64 => format!("0d{bits:016X}"),
            ScalarType::S16 => (bits as i16).to_string(),
            ScalarType::S32 => (bits as i32).to_string(),
            ScalarType::S64 => (bits as i64).to_string(),
            ScalarType::U64 | ScalarType::B64 => format!("{bits}U"),
            _ => bits.to_string(),
        }
    }
}

fn width(destination: &Destination) -> usize {
    if destination.values == Values::Pred { 1 } else { 8 * destination.values.bytes() }
}

fn may_be_constant(kind: &Kind) -> bool {
    use ScalarType::*;
    let plain = [U16, U32, U64, S16, S32, S64, B16, B32, B64, F32, F64];
    matches!(kind, Kind::Value { ty, constant: true, .. } if plain.contains(ty))
}

fn same_register(source: &Kind, destination: &Kind) -> bool {
    let size = |kind: &Kind| match kind {
        Kind::Value { ty: ScalarType::Pred, .. } => 1,
        Kind::Value { ty, .. } => 8 * ty.bytes().max(4 * u64::from(ty.bytes() == 1)),
        _ => 0,
    };
    size(source) == size(destination) && size(source) != 0
}

/// Returns the values of a register of a type.
fn values_of(ty: ScalarType) -> Values {
    use ScalarType::*;
    match ty {
        Pred => Values::Pred,
        F16 => Values::F16,
        Bf16 => Values::Bf16,
        F16x2 => Values::F16x2,
        Bf16x2 => Values::Bf16x2,
        F32 => Values::F32,
        F64 => Values::F64,
        Tf32 => Values::Tf32,
        E4m3x2 | E5m2x2 => Values::F8x2,
        _ => match ty.bytes() {
            1 => Values::B8,
            2 => Values::B16,
            8 => Values::B64,
            _ => Values::B32,
        },
    }
}

/// Returns the random values of an operand: operands that count bits are small, angles are where
/// sines are bounded.
fn operand(instance: &Instance, name: &str, ty: ScalarType) -> Values {
    match (instance.form.opcode, name) {
        ("shl" | "shr" | "szext", "b") | ("shf", "c") | ("bmsk", _) => Values::Position,
        ("bfe", "b" | "c") | ("bfi", "c" | "e") => Values::BytePosition,
        // The base must be a position of a bit.
        ("fns", "b") => Values::Lane,
        ("fns", "c") => Values::Position,
        ("sin" | "cos", _) => Values::Angle,
        _ => values_of(ty),
    }
}

/// Returns the allowed difference of results: twice the error that the ISA states for one.
fn rule(mnemonic: &str, values: Values) -> Rule {
    let relative = |bits: f64| Rule::Near { relative: 2.0 * 2f64.powf(-bits), absolute: 2f64.powi(-148) };
    let absolute = |bits: f64| Rule::Near { relative: 0.0, absolute: 2.0 * 2f64.powf(-bits) };
    let opcode = mnemonic.split('.').next().unwrap_or("");
    if !mnemonic.contains(".approx") && !mnemonic.contains(".full") {
        let float = !matches!(values, Values::B16 | Values::B32 | Values::B64 | Values::Pred | Values::F8x2);
        // The ISA fixes the NaN of results in single and half precision. It leaves open which NaN
        // comes out of double precision, of conversions, and of what changes a sign.
        let open = values == Values::F64 || matches!(opcode, "cvt" | "abs" | "neg");
        return if float && open { Rule::AnyNan } else { Rule::Exact };
    }
    match (opcode, values) {
        // Two units of the last place.
        ("div", _) => relative(22.0),
        // The double-precision ones are starting points for iterations: the upper 20 bits of the
        // fraction.
        ("rcp" | "rsqrt", Values::F64) => relative(20.0),
        ("rcp" | "sqrt", _) => relative(23.0),
        ("rsqrt", _) => relative(22.9),
        ("sin" | "cos", _) => absolute(20.5),
        ("lg2", _) => Rule::Near { relative: 2f64.powi(-21), absolute: 2f64.powi(-21) },
        // And a step of subnormal numbers.
        ("ex2", Values::F16 | Values::F16x2) => {
            Rule::Near { relative: 2.0 * 2f64.powf(-9.9), absolute: 2f64.powi(-24) }
        }
        ("ex2", Values::Bf16 | Values::Bf16x2) => relative(7.0),
        ("ex2", _) => relative(22.0),
        ("tanh", Values::F16 | Values::F16x2) => absolute(10.987),
        ("tanh", Values::Bf16 | Values::Bf16x2) => absolute(8.0),
        ("tanh", _) => relative(11.0),
        _ => Rule::Exact,
    }
}
