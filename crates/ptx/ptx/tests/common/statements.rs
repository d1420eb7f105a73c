//! Instances of the table of forms as statements that ptxas reads, and the kernel around them.

use std::fmt::Write;

use ptx::forms::{Instance, Kind, Need, OperandForm, Selector};
use ptx::{ScalarType, StateSpace};

/// The register types, as far as registers may be declared with them.
fn declared(ty: ScalarType) -> ScalarType {
    match ty {
        ScalarType::Bf16 | ScalarType::E4m3x2 | ScalarType::E5m2x2 => ScalarType::B16,
        ScalarType::Bf16x2 | ScalarType::Tf32 | ScalarType::U16x2 | ScalarType::S16x2 => ScalarType::B32,
        ScalarType::F32x2 => ScalarType::B64,
        other => other,
    }
}

/// A constant that fits wherever one of the type does: thread counts come in warps, sizes of bulk
/// copies in sixteens.
fn constant(instance: &Instance, form: &OperandForm, ty: ScalarType) -> &'static str {
    let counts = matches!(instance.form.opcode, "bar" | "barrier" | "st" | "cp" | "tcgen05")
        && !matches!(form.name, "a" | "e");
    match ty {
        ScalarType::F32 => "0f3F800000",
        ScalarType::F64 => "0d3FF0000000000000",
        _ if counts => "64",
        _ if instance.form.opcode == "mma" => "0",
        _ => "1",
    }
}

/// A way of writing an operand: with registers, or the other way where its kind allows one.
struct Writer<'a> {
    form: &'a OperandForm,
    instance: &'a Instance,
    other: bool,
}

impl Writer<'_> {
    fn write(&self, kind: &Kind, index: usize) -> String {
        match kind {
            Kind::Value { ty, constant: true, .. } if self.other => {
                constant(self.instance, self.form, *ty).to_owned()
            }
            Kind::Value { sink: true, .. } if self.other => "_".to_owned(),
            Kind::Value { ty, .. } => register(*ty, index),
            Kind::Selected(ty, selector) => format!("{}{}", register(*ty, index), self.selector(*selector)),
            Kind::Vector(element, length) => {
                // ptxas wants one element to tell the type from.
                let other = |item: usize| self.other && (!self.form.is_written() || item > 0);
                let item = |item| Writer { other: other(item), ..*self }.write(element, index + item);
                let items: Vec<_> = (0..*length).map(item).collect();
                format!("{{{}}}", items.join(", "))
            }
            Kind::Sink => "_".to_owned(),
            Kind::Predicate => register(ScalarType::Pred, index),
            Kind::Pair(first, _, true) if self.other => self.write(first, index),
            Kind::Pair(first, second, _) => {
                format!("{}|{}", self.write(first, index), self.write(second, index + 1))
            }
            Kind::Immediate(least, most) => if self.other { most } else { least }.to_string(),
            Kind::Address { space, sampler, rest } => {
                let mut text = self.address(*space).to_owned();
                if *sampler && self.other {
                    text.push_str(", %b64_1");
                }
                for kind in rest {
                    write!(text, ", {}", self.write(kind, 1)).unwrap();
                }
                format!("[{text}]")
            }
            Kind::TensorAddress => format!("[{}]", register(ScalarType::B32, index)),
            Kind::Label => "DONE".to_owned(),
            Kind::Function => "callee".to_owned(),
            Kind::List => "()".to_owned(),
            Kind::Targets => "TARGETS".to_owned(),
            Kind::Table => "PROTOTYPE".to_owned(),
        }
    }

    /// Parameters have no addresses: those of the kernel are read, the local one is passed.
    fn address(&self, space: Option<StateSpace>) -> &'static str {
        let passes =
            self.instance.mnemonic.starts_with("st.") || self.instance.mnemonic.contains("param::func");
        match space {
            Some(StateSpace::Param) if passes => "PASSED",
            Some(StateSpace::Param) => "PARAMETER",
            _ => "%b64_0",
        }
    }

    fn selector(&self, selector: Selector) -> &'static str {
        match (selector, self.form.is_written(), self.other) {
            (Selector::Part, true, _) | (Selector::Part, _, true) => ".h1",
            (_, _, false) => "",
            (Selector::Halves, ..) => ".h10",
            (Selector::Bytes, ..) => ".b3210",
        }
    }
}

fn register(ty: ScalarType, index: usize) -> String {
    format!("%{}_{index}", declared(ty).name())
}

/// The instance as statements: with every operand, with the least, with constants and the like.
pub fn statements(instance: &Instance) -> Vec<String> {
    let write = |optional: bool, other: bool| {
        let operands = instance.operands.iter().enumerate().filter(|(_, form)| optional || !form.optional);
        let operands: Vec<_> =
            operands.map(|(index, form)| Writer { form, instance, other }.write(&form.kind, index)).collect();
        format!("{} {};", instance.mnemonic, operands.join(", "))
    };
    let mut all = vec![write(true, false), write(false, false), write(true, true)];
    all.dedup();
    all
}

/// A module for this version and target whose kernel has these statements.
pub fn module(need: Need, statements: &[&str]) -> String {
    let mut text = format!(
        ".version {}.{}\n.target {}\n.address_size 64\n.func callee() {{ ret; }}\n.entry kernel(.param .align 64 .b8 \
         PARAMETER[128]) {{ .param .align 64 .b8 PASSED[64];",
        need.version.0, need.version.1, need.target
    );
    for ty in [
        "pred", "b8", "u8", "s8", "b16", "u16", "s16", "f16", "b32", "u32", "s32", "f32", "f16x2", "b64",
        "u64", "s64", "f64",
    ] {
        write!(text, ".reg .{ty} %{ty}_<272>; ").unwrap();
    }
    if need.version >= (8, 3) && need.target.number >= 70 {
        text.push_str(".reg .b128 %b128_<272>; ");
    }
    if statements.iter().any(|statement| statement.contains("TARGETS")) {
        text.push_str("TARGETS: .branchtargets DONE; ");
    }
    if statements.iter().any(|statement| statement.contains("PROTOTYPE")) {
        text.push_str("PROTOTYPE: .callprototype _ (); ");
    }
    text.push('\n');
    for statement in statements {
        text.push_str(statement);
        text.push('\n');
    }
    text + "DONE: ret;\n}\n"
}
