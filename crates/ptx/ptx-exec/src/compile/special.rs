//! The values of special registers on this device: an input that is filled before the function
//! runs, or a clock.

use ptx::body::SpecialRegister;

use crate::code::{Clock, ClusterInput, Input};

/// The source of a special register's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    /// The same throughout the function.
    Input(Input),
    /// Different at each reading.
    Clock(Clock),
}

/// Whether a register is read anew each time.
pub(super) fn is_clock(register: SpecialRegister) -> bool {
    matches!(special(register, None), Some(Special::Clock(_)))
}

/// The source of a special register, or of one of its components. A register with components is
/// nothing without one, and a register without them has none.
pub(super) fn special(register: SpecialRegister, component: Option<u8>) -> Option<Special> {
    if register.is_vector() != component.is_some() {
        return None;
    }
    let clock = |wall, high| Some(Special::Clock(Clock { wall, high }));
    match register {
        SpecialRegister::Clock | SpecialRegister::Clock64 => clock(false, false),
        SpecialRegister::ClockHi => clock(false, true),
        SpecialRegister::Globaltimer | SpecialRegister::GlobaltimerLo => clock(true, false),
        SpecialRegister::GlobaltimerHi => clock(true, true),
        _ => Some(Special::Input(input(register, component.unwrap_or(0)))),
    }
}

/// The input that a register other than a clock is.
fn input(register: SpecialRegister, axis: u8) -> Input {
    use SpecialRegister::*;
    match register {
        // The fourth component of %ntid and %nctaid reads as 0, as that of %tid and %ctaid does.
        _ if axis > 2 => Input::Constant(0),
        Tid => Input::Thread(axis),
        Ntid => Input::BlockSize(axis),
        Ctaid => Input::Block(axis),
        Clusterid => Input::Block(axis + 3),
        ClusterCtaid => Input::Block(axis + 6),
        ClusterCtarank => Input::Block(9),
        Nctaid => Input::GridSize(axis),
        Nclusterid => Input::Cluster(ClusterInput::Grid(axis)),
        ClusterNctaid => Input::Cluster(ClusterInput::Size(axis)),
        ClusterNctarank => Input::Cluster(ClusterInput::Blocks),
        IsExplicitCluster => Input::Cluster(ClusterInput::IsGiven),
        Laneid => Input::Lane,
        Warpid => Input::Warp,
        Nwarpid => Input::Warps,
        Smid => Input::Processor,
        Nsmid => Input::Processors,
        Gridid => Input::Grid,
        Environment(1) => Input::Workspace { high: true },
        Environment(2) => Input::Workspace { high: false },
        LanemaskEq | LanemaskLe | LanemaskLt | LanemaskGe | LanemaskGt => Input::LaneMask(register),
        TotalSmemSize | AggrSmemSize => Input::SharedBytes { fixed: true, dynamic: true },
        DynamicSmemSize => Input::SharedBytes { fixed: false, dynamic: true },
        // No graph, no environment, no counters, no shared memory that the system
        // keeps for itself.
        _ => Input::Constant(0),
    }
}
