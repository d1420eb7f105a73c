//! Data types: their names in C++ and in the coded names of libraries.

use crate::named::named;

named! {
    /// A data type of elements.
    pub enum DataType {
        /// 64-bit floating point.
        F64 = "f64",
        /// 32-bit floating point.
        F32 = "f32",
        /// 32-bit floating point rounded to 19 bits for tensor cores.
        Tf32 = "tf32",
        /// IEEE 16-bit floating point.
        F16 = "f16",
        /// Brain floating point.
        Bf16 = "bf16",
        /// A floating-point type of 16 bits; which one is not told.
        Float16Bits = "f16_or_bf16",
        /// 8-bit floating point with 3 bits of mantissa.
        E4m3 = "e4m3",
        /// 8-bit floating point with 2 bits of mantissa.
        E5m2 = "e5m2",
        /// 4-bit floating point.
        F4 = "f4",
        /// Complex number of two `f32`.
        C64 = "c64",
        /// Complex number of two `f64`.
        C128 = "c128",
        /// 64-bit signed integer.
        I64 = "i64",
        /// 32-bit signed integer.
        I32 = "i32",
        /// 16-bit signed integer.
        I16 = "i16",
        /// 8-bit signed integer.
        I8 = "i8",
        /// 64-bit unsigned integer.
        U64 = "u64",
        /// 32-bit unsigned integer.
        U32 = "u32",
        /// 16-bit unsigned integer.
        U16 = "u16",
        /// 8-bit unsigned integer.
        U8 = "u8",
        /// Truth value.
        Bool = "bool",
        /// 8 bits of whatever type: what copies move.
        B8 = "b8",
        /// 16 bits of whatever type.
        B16 = "b16",
        /// 32 bits of whatever type.
        B32 = "b32",
        /// 64 bits of whatever type.
        B64 = "b64",
    }
}

impl DataType {
    /// The type that C++ text names: `float const*`, `c10::Half`, `std::complex<float>`.
    pub fn in_cpp(text: &str) -> Option<Self> {
        if let Some((class, argument)) = text.split_once('<') {
            if class.ends_with("OpaqueType") {
                return Self::of_bytes(argument.trim_end_matches(['>', 'u', ' ']));
            }
            let of = Self::in_cpp(argument.split(['>', ',']).next()?)?;
            return match (class.trim().rsplit("::").next()?, of) {
                ("complex", Self::F32) => Some(Self::C64),
                ("complex", Self::F64) => Some(Self::C128),
                _ => None,
            };
        }
        let mut words =
            text.split([' ', '*', '&']).filter(|word| !matches!(*word, "" | "const" | "restrict"));
        let first = words.next()?.rsplit("::").next()?;
        let rest: Vec<&str> = words.collect();
        Some(match (first, &rest[..]) {
            ("double" | "double2" | "f64", []) => Self::F64,
            ("float" | "float2" | "float3" | "float4", []) => Self::F32,
            ("tfloat32_t", []) => Self::Tf32,
            ("Half" | "__half" | "half" | "half2" | "__half2" | "half_t", []) => Self::F16,
            (
                "BFloat16" | "__nv_bfloat16" | "nv_bfloat16" | "bfloat16_t" | "__nv_bfloat162" | "bfloat16",
                [],
            ) => Self::Bf16,
            ("Float8_e4m3fn" | "__nv_fp8_e4m3" | "float_e4m3_t", []) => Self::E4m3,
            ("Float8_e5m2" | "__nv_fp8_e5m2" | "float_e5m2_t", []) => Self::E5m2,
            ("float_e2m1_t" | "__nv_fp4_e2m1", []) => Self::F4,
            ("long" | "int64_t" | "longlong2", [] | ["long"] | ["int"]) => Self::I64,
            ("int" | "int32_t" | "int2" | "int4", []) => Self::I32,
            ("short" | "int16_t", []) => Self::I16,
            ("signed", ["char"]) | ("int8_t", []) => Self::I8,
            ("unsigned", ["long"] | ["long", "long"]) | ("uint64_t" | "size_t", []) => Self::U64,
            ("unsigned", [] | ["int"]) | ("uint32_t" | "uint4" | "uint2", []) => Self::U32,
            ("unsigned", ["short"]) | ("uint16_t", []) => Self::U16,
            ("unsigned", ["char"]) | ("uint8_t", []) => Self::U8,
            ("bool", []) => Self::Bool,
            _ => return None,
        })
    }

    /// Returns the type of any data of this number of bytes.
    fn of_bytes(count: &str) -> Option<Self> {
        match count {
            "1" => Some(Self::B8),
            "2" => Some(Self::B16),
            "4" => Some(Self::B32),
            "8" => Some(Self::B64),
            _ => None,
        }
    }

    /// The type that a part of a coded name stands for: `bf16`, `fp16`, `float32`.
    pub fn in_code(word: &str) -> Option<Self> {
        Some(match word {
            "f64" | "fp64" | "double" | "float64" => Self::F64,
            "f32" | "fp32" | "float" | "float32" => Self::F32,
            "tf32" => Self::Tf32,
            "f16" | "fp16" | "half" | "float16" => Self::F16,
            "bf16" | "bfloat16" => Self::Bf16,
            "e4m3" | "f8e4m3" | "fp8e4m3" => Self::E4m3,
            "e5m2" | "f8e5m2" | "fp8e5m2" => Self::E5m2,
            "e2m1" | "f4" | "nvfp4" => Self::F4,
            "complex64" => Self::C64,
            "complex128" => Self::C128,
            "i64" | "s64" | "int64" => Self::I64,
            "i32" | "s32" | "int32" => Self::I32,
            "i16" | "s16" | "int16" => Self::I16,
            "i8" | "s8" | "int8" => Self::I8,
            "u64" | "uint64" => Self::U64,
            "u32" | "uint32" => Self::U32,
            "u16" | "uint16" => Self::U16,
            "u8" | "uint8" => Self::U8,
            "bool" => Self::Bool,
            _ => return None,
        })
    }

    /// The type at the start of a coded name without separators (`bf16f32`), and what follows it.
    pub fn leading_code(code: &str) -> Option<(Self, &str)> {
        const CODES: [&str; 13] =
            ["tf32", "bf16", "e4m3", "e5m2", "f64", "f32", "f16", "i32", "s32", "u8", "i8", "s8", "f4"];
        CODES.iter().find_map(|prefix| Some((Self::in_code(prefix)?, code.strip_prefix(prefix)?)))
    }

    /// The first type among the innermost parts of C++ text: `float` of `policy<4,
    /// std::array<float, 2>>`.
    pub fn first_in(text: &str) -> Option<Self> {
        text.split(['<', '>', ',', '(', ')']).find_map(|leaf| Self::in_cpp(leaf.trim()))
    }

    /// As C++ writes it in short.
    pub fn cpp(self) -> &'static str {
        match self {
            Self::F64 => "double",
            Self::F32 => "float",
            Self::F16 => "half",
            Self::Float16Bits => "16 bits",
            Self::C64 => "complex<float>",
            Self::C128 => "complex<double>",
            Self::I64 => "long",
            Self::I32 => "int",
            Self::I16 => "short",
            other => other.name(),
        }
    }

    /// Whether it is a floating-point type of at most 16 bits.
    pub fn is_half_or_less(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::Float16Bits | Self::E4m3 | Self::E5m2 | Self::F4)
    }
}
