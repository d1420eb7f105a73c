//! The fixed vocabularies of PTX: types and state spaces.

use std::fmt;

macro_rules! vocabulary {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant),* }

        impl $name {
            /// The member whose name, without a dot, is `text`.
            pub fn from_name(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }

            /// Its name without a dot.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, ".{}", self.name())
            }
        }
    };
}

vocabulary! {
    /// A state space.
    StateSpace {
        /// Registers.
        Reg = "reg",
        /// Special registers.
        Sreg = "sreg",
        /// Constant memory.
        Const = "const",
        /// Global memory.
        Global = "global",
        /// Memory private to a thread.
        Local = "local",
        /// Parameters of kernels and functions.
        Param = "param",
        /// Memory of a block.
        Shared = "shared",
        /// Textures, in old PTX.
        Tex = "tex",
    }
}

vocabulary! {
    /// The type of a register, variable or operation.
    ScalarType {
        /// Untyped bits.
        B8 = "b8",
        /// Untyped bits.
        B16 = "b16",
        /// Untyped bits.
        B32 = "b32",
        /// Untyped bits.
        B64 = "b64",
        /// Untyped bits.
        B128 = "b128",
        /// Unsigned integer.
        U8 = "u8",
        /// Unsigned integer.
        U16 = "u16",
        /// Unsigned integer.
        U32 = "u32",
        /// Unsigned integer.
        U64 = "u64",
        /// Signed integer.
        S8 = "s8",
        /// Signed integer.
        S16 = "s16",
        /// Signed integer.
        S32 = "s32",
        /// Signed integer.
        S64 = "s64",
        /// Half precision.
        F16 = "f16",
        /// Two half-precision numbers.
        F16x2 = "f16x2",
        /// bfloat16.
        Bf16 = "bf16",
        /// Two bfloat16 numbers.
        Bf16x2 = "bf16x2",
        /// TensorFloat-32 in a 32-bit register.
        Tf32 = "tf32",
        /// Single precision.
        F32 = "f32",
        /// Two single-precision numbers.
        F32x2 = "f32x2",
        /// Double precision.
        F64 = "f64",
        /// Two unsigned 16-bit integers.
        U16x2 = "u16x2",
        /// Two signed 16-bit integers.
        S16x2 = "s16x2",
        /// Predicate.
        Pred = "pred",
        /// Texture reference.
        Texref = "texref",
        /// Sampler reference.
        Samplerref = "samplerref",
        /// Surface reference.
        Surfref = "surfref",
        /// Four-bit signed integer (matrix instructions).
        S4 = "s4",
        /// Four-bit unsigned integer (matrix instructions).
        U4 = "u4",
        /// One bit (matrix instructions).
        B1 = "b1",
        /// Eight-bit float.
        E4m3 = "e4m3",
        /// Eight-bit float.
        E5m2 = "e5m2",
        /// Two eight-bit floats.
        E4m3x2 = "e4m3x2",
        /// Two eight-bit floats.
        E5m2x2 = "e5m2x2",
    }
}

impl ScalarType {
    /// Bytes of a value in memory; 0 for predicates and for types of less than a byte.
    pub fn bytes(self) -> u64 {
        use ScalarType::*;
        match self {
            Pred | S4 | U4 | B1 => 0,
            B8 | U8 | S8 | E4m3 | E5m2 => 1,
            B16 | U16 | S16 | F16 | Bf16 | E4m3x2 | E5m2x2 => 2,
            B32 | U32 | S32 | F16x2 | Bf16x2 | Tf32 | F32 | U16x2 | S16x2 => 4,
            B64 | U64 | S64 | F64 | F32x2 | Texref | Samplerref | Surfref => 8,
            B128 => 16,
        }
    }

    /// Whether the type is a signed integer.
    pub fn is_signed(self) -> bool {
        matches!(self, ScalarType::S8 | ScalarType::S16 | ScalarType::S32 | ScalarType::S64 | ScalarType::S4)
    }

    /// Whether the type is a floating-point number or a pair of them.
    pub fn is_float(self) -> bool {
        use ScalarType::*;
        matches!(self, F16 | F16x2 | Bf16 | Bf16x2 | Tf32 | F32 | F32x2 | F64 | E4m3 | E5m2 | E4m3x2 | E5m2x2)
    }

    /// Whether the type is untyped bits.
    pub fn is_bits(self) -> bool {
        use ScalarType::*;
        matches!(self, B1 | B8 | B16 | B32 | B64 | B128)
    }
}
