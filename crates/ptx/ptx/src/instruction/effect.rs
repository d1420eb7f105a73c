//! The effects of an instruction besides writing registers and accessing memory.

use super::modifier::{Flag, Order};
use super::opcode::Opcode;
use super::operation::Operation;

/// The flow of control after an instruction whose guard holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Control {
    /// On to the next instruction.
    Next,
    /// To the label that it names.
    Branch,
    /// To one of the labels of its table.
    BranchIndexed,
    /// Into a function, and on to the next instruction when that returns.
    Call,
    /// Back to the caller; of a kernel, the thread ends.
    Return,
    /// The thread ends.
    Exit,
}

impl Control {
    /// Whether control never goes on to the next instruction.
    pub fn leaves(self) -> bool {
        matches!(self, Control::Branch | Control::BranchIndexed | Control::Return | Control::Exit)
    }
}

/// The kind of synchronisation that an instruction performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Synchronization {
    /// The threads of the block meet, or say that they have come (`bar`, `barrier`).
    Block,
    /// Lanes of the warp meet (`bar.warp`).
    Warp,
    /// The threads of the cluster meet, or say that they have come.
    Cluster,
    /// An `mbarrier` is made, arrived at, or waited for.
    Mbarrier,
    /// Accesses before it happen before those after it (`membar`, `fence`).
    Fence,
    /// Asynchronous copies are waited for: all of them, or all but the last few groups.
    Copies {
        /// `wait_all`.
        all: bool,
    },
    /// The launch waits for another, or lets one begin (`griddepcontrol`).
    Grid,
}

/// The use of the condition code by an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Carry {
    /// `addc`, `subc`, `madc`.
    pub read: bool,
    /// `.cc`.
    pub written: bool,
}

impl Operation {
    /// Returns the flow of control.
    pub fn control(&self) -> Control {
        match self.opcode {
            Some(Opcode::Bra) => Control::Branch,
            Some(Opcode::Brx) => Control::BranchIndexed,
            Some(Opcode::Call) => Control::Call,
            Some(Opcode::Ret) => Control::Return,
            Some(Opcode::Exit | Opcode::Trap) => Control::Exit,
            _ => Control::Next,
        }
    }

    /// Returns the kind of synchronisation, if there is one.
    pub fn synchronization(&self) -> Option<Synchronization> {
        Some(match self.opcode? {
            Opcode::Bar | Opcode::Barrier if self.has(Flag::Warp) => Synchronization::Warp,
            Opcode::Bar | Opcode::Barrier if self.has(Flag::Cluster) => Synchronization::Cluster,
            Opcode::Bar | Opcode::Barrier => Synchronization::Block,
            Opcode::Mbarrier => Synchronization::Mbarrier,
            Opcode::Membar | Opcode::Fence => Synchronization::Fence,
            Opcode::Cp if self.has(Flag::WaitAll) => Synchronization::Copies { all: true },
            Opcode::Cp if self.has(Flag::WaitGroup) => Synchronization::Copies { all: false },
            Opcode::Griddepcontrol => Synchronization::Grid,
            _ => return None,
        })
    }

    /// Whether its accesses are ordered among those of other threads, or volatile.
    pub fn is_strong(&self) -> bool {
        self.has(Flag::MemoryMapped) || !matches!(self.order, None | Some(Order::Weak | Order::Sequential))
    }

    /// Returns the use of the condition code.
    pub fn carry(&self) -> Carry {
        let read = self.is(&[Opcode::Addc, Opcode::Subc, Opcode::Madc]);
        Carry { read, written: self.has(Flag::Carry) }
    }
}
