//! Types of a module's kernels and variables, from PTX; the driver knows sizes only.
//!
//! PTX tells integers from floating-point numbers and both from structures, which are arrays of
//! bytes. It does not tell signed integers from unsigned ones, and pointers from 64-bit integers
//! only sometimes.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;

use ptx::ScalarType;

/// The class of a Rust type for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Integer,
    Float,
    Pointer,
    /// A structure, or a number that PTX has no type for.
    Other,
}

impl Class {
    pub(crate) fn of<T: 'static>() -> Class {
        let is_one_of = |types: &[TypeId]| types.contains(&TypeId::of::<T>());
        let floats = [TypeId::of::<f32>(), TypeId::of::<f64>()];
        let integers = [
            TypeId::of::<u8>(),
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
            TypeId::of::<i8>(),
            TypeId::of::<i16>(),
            TypeId::of::<i32>(),
            TypeId::of::<i64>(),
            TypeId::of::<isize>(),
        ];
        match () {
            () if is_one_of(&floats) => Class::Float,
            () if is_one_of(&integers) => Class::Integer,
            () => Class::Other,
        }
    }
}

/// The type that PTX declares for a parameter or a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    element: ScalarType,
    /// Whether it is an array, as structures are.
    array: bool,
    /// Whether it is declared to be a pointer.
    pointer: bool,
}

impl Declared {
    fn of(variable: &ptx::Variable) -> Declared {
        let array = !variable.dimensions.is_empty() || variable.vector > 1;
        Declared { element: variable.ty, array, pointer: variable.pointer.is_some() }
    }

    /// Whether a value of this class, which has the right size, can be meant.
    pub(crate) fn accepts(self, class: Class) -> bool {
        let any = self.array || self.element.is_bits();
        match class {
            Class::Other => true,
            Class::Pointer | Class::Integer => any || !self.element.is_float(),
            Class::Float => any || self.element.is_float(),
        }
    }

    /// Whether elements of this class can be meant, if it is a variable of `bytes` bytes.
    pub(crate) fn holds(self, class: Class) -> bool {
        Declared { array: false, ..self }.accepts(class) || self.element.bytes() == 1
    }
}

impl fmt::Display for Declared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match () {
            () if self.pointer => "a pointer",
            () if self.element.is_float() => "a floating-point number",
            () if self.element.is_bits() => "bits",
            () => "an integer",
        };
        write!(out, "{kind} (`.{}` in PTX)", self.element.name())
    }
}

/// Types by the names of kernels and variables.
#[derive(Debug, Default)]
pub(crate) struct Signatures {
    kernels: BTreeMap<String, Vec<Declared>>,
    variables: BTreeMap<String, Declared>,
}

impl Signatures {
    /// Reads the types of PTX. Text that does not parse has none: the driver will report it.
    pub(crate) fn of(ptx: &[u8]) -> Signatures {
        let parsed = std::str::from_utf8(ptx).ok().and_then(|text| ptx::parse(text).ok());
        let Some(module) = parsed else { return Signatures::default() };
        let entries = module.functions().filter(|function| function.kind == ptx::FunctionKind::Entry);
        let kernel =
            |entry: &ptx::Function| (entry.name.to_string(), entry.params.iter().map(Declared::of).collect());
        let reachable = |space| matches!(space, ptx::StateSpace::Global | ptx::StateSpace::Const);
        let variables = module.variables().filter(|variable| reachable(variable.space));
        Signatures {
            kernels: entries.map(kernel).collect(),
            variables: variables.map(|each| (each.name.to_string(), Declared::of(each))).collect(),
        }
    }

    /// Types of a kernel's parameters; none if they are not known.
    pub(crate) fn parameters(&self, kernel: &str) -> &[Declared] {
        self.kernels.get(kernel).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn variable(&self, name: &str) -> Option<Declared> {
        self.variables.get(name).copied()
    }

    /// Names of the variables that a program can read and write, as far as they are known.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &[u8] = b".version 8.0\n.target sm_80\n.address_size 64\n\
        .const .align 4 .f32 table[9];\n.global .align 8 .b8 state[24];\n\
        .visible .entry k(.param .u32 n, .param .f32 x, .param .u64 p, .param .b32 any, .param .align 4 .b8 s[4],\n\
        .param .f64 d, .param .u64 .ptr .global .align 4 q) { ret; }\n";

    #[test]
    fn integers_and_floats_are_told_apart_where_ptx_tells() {
        let signatures = Signatures::of(PTX);
        let accepted = |class: Class| {
            let types = signatures.parameters("k").iter();
            types.map(|declared| if declared.accepts(class) { 'y' } else { '-' }).collect::<String>()
        };
        assert_eq!(accepted(Class::of::<i32>()), "y-yyy-y");
        assert_eq!(accepted(Class::of::<f32>()), "-y-yyy-");
        assert_eq!(accepted(Class::Pointer), "y-yyy-y");
        assert_eq!(accepted(Class::of::<[f32; 2]>()), "yyyyyyy");
        let shown: Vec<String> = signatures.parameters("k").iter().map(Declared::to_string).collect();
        assert_eq!(shown[0], "an integer (`.u32` in PTX)");
        assert_eq!(shown[1], "a floating-point number (`.f32` in PTX)");
        assert_eq!(shown[6], "a pointer (`.u64` in PTX)");
    }

    #[test]
    fn elements_of_variables_have_a_type_unless_they_are_bytes() {
        let signatures = Signatures::of(PTX);
        assert_eq!(signatures.variables().collect::<Vec<_>>(), ["state", "table"]);
        let table = signatures.variable("table").unwrap();
        assert!(table.holds(Class::Float) && !table.holds(Class::Integer) && table.holds(Class::Other));
        assert!(signatures.variable("state").unwrap().holds(Class::Float));
    }

    #[test]
    fn of_what_is_no_ptx_nothing_is_known() {
        for text in [&b"\x7fELF"[..], b".version", b"", b"\xff\xfe"] {
            assert!(Signatures::of(text).parameters("k").is_empty());
        }
    }
}
