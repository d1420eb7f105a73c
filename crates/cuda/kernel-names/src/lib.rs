//! Facts that a kernel's name tells: the function, the operation, the data types, tensor cores, and
//! the kernel's owner.
//!
//! The driver names a kernel as its compiler did. The names of libraries are long (templates,
//! lambdas inside functions) or coded (`nvjet_sm90_tst_…`), and some of them lie: one kernel of
//! NCCL serves every algorithm, so that the algorithm in its name means nothing. [`identify`]
//! demangles a symbol ([`demangled`]), reads its parts (`outline`), and asks one module after the
//! other in `families` until one of them knows the name. A name that none knows belongs to the
//! user.
//!
//! Invariants:
//!
//! 1. Any text gives an [`Identity`]: nothing panics, and work and output are bounded
//!    ([`MOST_DEMANGLED`], [`MOST_SHORT`]).
//! 2. What a name does not tell is not guessed: a type is `None`, tensor cores are `None`, an
//!    operation is [`Operation::Unknown`].
//! 3. Nothing here reads files or knows a device.

mod data_type;
mod demangle;
mod families;
mod named;
mod operation;
mod outline;
mod owner;
mod unique;
mod wildcard;
mod words;

use serde::{Deserialize, Serialize};

pub use data_type::DataType;
pub use demangle::{MOST_DEMANGLED, demangled, host_function_name};
pub use operation::Operation;
pub use owner::{Owner, OwnerKind};
pub use unique::{Row, unique_short_names, with_mark};
pub use wildcard::is_like;

/// Maximum number of characters of a short name.
pub const MOST_SHORT: usize = 48;

/// Data types that a name tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Types {
    /// Type of the operands; [`DataType::Tf32`] where operands of 32 bits are rounded to it.
    pub input: Option<DataType>,
    /// Type of the result, if the name contains it.
    pub output: Option<DataType>,
    /// Type of the accumulator, if the name contains it.
    pub accumulator: Option<DataType>,
}

impl Types {
    /// Operands and result of one type.
    pub fn of(input: Option<DataType>) -> Self {
        Self { input, output: input, accumulator: None }
    }
}

/// The access of a kernel to its tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// The name does not tell.
    #[default]
    Unknown,
    /// Elements side by side.
    Contiguous,
    /// By strides: a tensor is not contiguous, or broadcast.
    Strided,
}

/// The traits of a kernel that its name tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traits {
    /// The operation.
    pub operation: Operation,
    /// The types.
    pub types: Types,
    /// Whether it uses tensor cores; `None` where the name does not tell.
    pub tensor_cores: Option<bool>,
    /// The owner.
    pub owner: Owner,
    /// The access to its tensors.
    pub access: Access,
    /// Elements to which operands of a matrix product are aligned, where the name tells.
    pub alignment: Option<u32>,
    /// It is one of PyTorch's `foreach` kernels, which take a list of tensors.
    pub many_tensors: bool,
}

/// A kernel's names, and what they tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name, demangled in full.
    pub name: String,
    /// The function and what makes it different, in at most [`MOST_SHORT`] characters. Not unique
    /// in itself: see [`unique_short_names`].
    pub short_name: String,
    /// The traits.
    pub traits: Traits,
}

impl Identity {
    /// With other traits.
    fn with(self, change: impl FnOnce(Traits) -> Traits) -> Self {
        Self { traits: change(self.traits), ..self }
    }
}

/// Identifies a kernel by its name, mangled or plain.
///
/// ```
/// use apex_kernel_names::{DataType, Operation, Owner, identify};
///
/// let known = identify("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_");
/// assert_eq!((known.short_name.as_str(), known.traits.operation), ("add<float>", Operation::Elementwise));
/// assert_eq!((known.traits.types.input, known.traits.owner), (Some(DataType::F32), Owner::PyTorch));
/// ```
pub fn identify(symbol: &str) -> Identity {
    let name = demangled(symbol);
    let plain = demangle::plain(&name);
    let known = families::identify(&plain);
    Identity { short_name: words::bounded(&known.short_name, MOST_SHORT), name, ..known }
}

/// The name of a kernel's function alone: without namespaces, template arguments and parameters.
///
/// ```
/// assert_eq!(apex_kernel_names::function_name("_Z10vector_addPKfS0_Pfi"), "vector_add");
/// ```
pub fn function_name(symbol: &str) -> String {
    let plain = demangle::plain(&demangled(symbol));
    let function = outline::path(&plain).last().map_or(plain.as_str(), |last| last.name);
    words::bounded(if function.is_empty() { &plain } else { function }, MOST_SHORT)
}
