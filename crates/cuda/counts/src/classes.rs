//! Classes of instructions, and widths of operations.

/// The class of an instruction; each belongs to one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum InstructionClass {
    /// Integer arithmetic, logic, shifts, comparisons.
    Integer,
    /// Arithmetic of 16-bit floating point, one value or two.
    Half,
    /// Arithmetic of 32-bit floating point.
    Single,
    /// Arithmetic of 64-bit floating point.
    Double,
    /// Matrix products.
    Tensor,
    /// `ex2`, `lg2`, `sin`, `cos`, `tanh`, `rcp`, `sqrt`, `rsqrt`, `div` of floating point.
    Special,
    /// `cvt`.
    Conversion,
    /// Moves, selections, conversions of addresses.
    Move,
    /// Accesses to global memory, and through generic addresses that lead there.
    Global,
    /// Accesses to shared memory.
    Shared,
    /// Accesses to local memory, parameters of functions among them.
    Local,
    /// Accesses to constants, parameters of kernels, textures; hints to caches.
    OtherMemory,
    /// Branches, calls, returns.
    Control,
    /// Barriers and fences.
    Synchronization,
    /// Shuffles, votes, matches and reductions within a warp.
    Warp,
}

impl InstructionClass {
    /// All of them, in the order of their numbers.
    pub const ALL: [InstructionClass; 15] = [
        InstructionClass::Integer,
        InstructionClass::Half,
        InstructionClass::Single,
        InstructionClass::Double,
        InstructionClass::Tensor,
        InstructionClass::Special,
        InstructionClass::Conversion,
        InstructionClass::Move,
        InstructionClass::Global,
        InstructionClass::Shared,
        InstructionClass::Local,
        InstructionClass::OtherMemory,
        InstructionClass::Control,
        InstructionClass::Synchronization,
        InstructionClass::Warp,
    ];

    /// Its name, for tables and documents.
    pub fn name(self) -> &'static str {
        match self {
            InstructionClass::Integer => "integer",
            InstructionClass::Half => "f16",
            InstructionClass::Single => "f32",
            InstructionClass::Double => "f64",
            InstructionClass::Tensor => "tensor",
            InstructionClass::Special => "special",
            InstructionClass::Conversion => "conversion",
            InstructionClass::Move => "move",
            InstructionClass::Global => "global",
            InstructionClass::Shared => "shared",
            InstructionClass::Local => "local",
            InstructionClass::OtherMemory => "other_memory",
            InstructionClass::Control => "control",
            InstructionClass::Synchronization => "synchronization",
            InstructionClass::Warp => "warp",
        }
    }
}

/// Operands of a floating-point operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Width {
    /// 16 bits.
    Half,
    /// 32 bits.
    Single,
    /// 64 bits.
    Double,
    /// Matrices.
    Tensor,
}

impl Width {
    /// All of them, in the order of their numbers.
    pub const ALL: [Width; 4] = [Width::Half, Width::Single, Width::Double, Width::Tensor];

    /// Its name, for documents.
    pub fn name(self) -> &'static str {
        match self {
            Width::Half => "f16",
            Width::Single => "f32",
            Width::Double => "f64",
            Width::Tensor => "tensor",
        }
    }
}
