//! Versions and targets that parts of a module need beside its instructions: special registers,
//! directives, types of registers, pragmas. [`forms`](crate::forms) states those of instructions.
//!
//! The figures are what ptxas 13.5 accepts; `ptx-retarget` holds them to four versions of ptxas.

use crate::body::SpecialRegister;
use crate::forms::{Need, Suffix, Target, Version};
use crate::syntax::ScalarType;

/// The least version and target of a special register.
pub fn of_register(register: SpecialRegister) -> Need {
    use SpecialRegister::*;
    match register {
        Clusterid | Nclusterid | ClusterCtaid | ClusterNctaid | ClusterCtarank | ClusterNctarank
        | IsExplicitCluster => need((7, 8), 90),
        AggrSmemSize => need((8, 1), 90),
        ReservedSharedBegin | ReservedSharedEnd | ReservedSharedCap | ReservedShared(_) => need((7, 6), 80),
        CurrentGraphExec => need((8, 0), 50),
        _ => need((1, 0), 10),
    }
}

/// The least version and target of a directive of a function, without its dot; `None` for those
/// that every version has, and for unknown ones.
pub fn of_directive(name: &str) -> Option<Need> {
    Some(match name {
        "reqnctapercluster" | "explicitcluster" | "maxclusterrank" => need((7, 8), 90),
        "blocksareclusters" => need((9, 0), 90),
        "abi_preserve" | "abi_preserve_control" => need((9, 0), 80),
        "noreturn" => need((6, 4), 30),
        _ => return None,
    })
}

/// The least version and target of a variable or register of this type.
pub fn of_type(ty: ScalarType) -> Option<Need> {
    (ty == ScalarType::B128).then_some(need((8, 3), 70))
}

/// The least version of a pragma; ptxas refuses those that the module's version does not have.
pub fn of_pragma(text: &str) -> Option<Need> {
    Some(match text.split_whitespace().next()? {
        "used_bytes_mask" => need((8, 3), 10),
        "enable_smem_spilling" => need((8, 7), 75),
        "frequency" => need((9, 0), 10),
        _ => return None,
    })
}

const fn need(version: Version, number: u32) -> Need {
    Need { version, target: Target { number, suffix: Suffix::None } }
}
