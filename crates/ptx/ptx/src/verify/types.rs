//! The registers and constants that fit a type: the ISA's chapter "Operand Type Checking", as ptxas
//! applies it.

use crate::syntax::Constant;
use crate::syntax::ScalarType;

/// Whether a register of type `register` may stand where an instruction has `ty`; where `wider`, it
/// may have more bits. Components of vectors are looser: a float there may be in an integer
/// register of its size.
pub(super) fn fits(ty: ScalarType, register: ScalarType, wider: bool, component: bool) -> bool {
    use ScalarType::*;
    if register == Pred || ty == Pred {
        return register == ty;
    }
    let (wanted, have) = (ty.bytes(), register.bytes());
    if have < wanted || have > wanted && !wider {
        return false;
    }
    // A register of two halves is 32 bits to integer instructions.
    let untyped = register.is_bits();
    let integer = untyped || !register.is_float() || register == F16x2;
    match ty {
        _ if ty.is_bits() => true,
        F16 | F32 | F64 => untyped || register == ty || component && integer && have == wanted,
        F16x2 | U16x2 | S16x2 => untyped || register == F16x2,
        _ if ty.is_float() => untyped,
        _ => integer,
    }
}

/// Whether the constant may stand where an instruction has `ty`.
pub(super) fn constant_fits(ty: ScalarType, constant: Constant) -> bool {
    use ScalarType::*;
    match constant {
        Constant::Integer(_) => !ty.is_float(),
        Constant::Single(_) => matches!(ty, F32 | F64 | B32),
        Constant::Double(_) => matches!(ty, F32 | F64 | B64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ScalarType::*;

    /// `add`, `ld` and `ld.v2` take the registers that ptxas 13.0 accepts.
    #[test]
    fn registers_fit_as_in_ptxas() {
        let all = [Pred, B8, U8, S8, B16, U16, S16, F16, B32, U32, S32, F32, F16x2, B64, U64, S64, F64, B128];
        let taken = |ty, wider, component| -> Vec<ScalarType> {
            all.into_iter().filter(|register| fits(ty, *register, wider, component)).collect()
        };
        assert_eq!(taken(U16, false, false), [B16, U16, S16]);
        assert_eq!(taken(S32, false, false), [B32, U32, S32, F16x2]);
        assert_eq!(taken(F32, false, false), [B32, F32]);
        assert_eq!(taken(F16, false, false), [B16, F16]);
        assert_eq!(taken(Bf16, false, false), [B16]);
        assert_eq!(taken(Bf16x2, false, false), [B32]);
        assert_eq!(taken(F32x2, false, false), [B64]);
        assert_eq!(taken(B32, false, false), [B32, U32, S32, F32, F16x2]);
        assert_eq!(taken(Pred, false, false), [Pred]);
        assert_eq!(taken(U32, true, false), [B32, U32, S32, F16x2, B64, U64, S64, B128]);
        assert_eq!(taken(F32, true, false), [B32, F32, B64, B128]);
        assert_eq!(taken(B64, true, false), [B64, U64, S64, F64, B128]);
        assert_eq!(taken(F64, true, true), [B64, U64, S64, F64, B128]);
    }
}
