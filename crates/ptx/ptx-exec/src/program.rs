//! A compiled module, and the driver's queries about its kernels and variables.

use std::collections::HashMap;

use crate::code::{Code, Op};
use crate::device::KernelId;
use crate::native::Outside;
use cuda_launch::{Dim3, FunctionAttributes};

/// A module that can be executed, once its variables have addresses (see [`crate::Linked`]).
pub struct Program {
    pub(crate) functions: Vec<Function>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) globals: Vec<GlobalLayout>,
    pub(crate) shared: Vec<SharedVariable>,
    pub(crate) names: HashMap<ptx::Name, KernelId>,
    pub(crate) files: HashMap<u32, String>,
    /// Alignment of frames in local memory.
    pub(crate) local_align: u32,
}

/// An `.entry` or `.func`, compiled.
pub(crate) struct Function {
    pub(crate) name: ptx::Name,
    pub(crate) code: Code,
}

/// The part of a function that only kernels have.
pub(crate) struct Kernel {
    pub(crate) function: u32,
    pub(crate) attributes: KernelAttributes,
    /// Offset of each of the program's shared variables; those that the kernel does not use have
    /// none.
    pub(crate) shared_offsets: Vec<Option<u32>>,
    /// The start of memory that is sized at launch: after the declared variables, aligned for its
    /// arrays.
    pub(crate) dynamic_start: u32,
    /// Whether recursion or calls through pointers make the depth of its stack unknown.
    pub(crate) unbounded_stack: bool,
}

/// A `.shared` variable.
#[derive(Debug)]
pub(crate) struct SharedVariable {
    pub(crate) name: ptx::Name,
    /// 0 for arrays that are sized at launch.
    pub(crate) bytes: u64,
}

/// The attributes that `cuFuncGetAttribute` and `cuKernelGetParamInfo` return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelAttributes {
    /// The kernel's attributes, as far as the PTX determines them; the others are those of
    /// [`FunctionAttributes::default`].
    ///
    /// * `registers` is an estimate of what a thread would need on a GPU: 32-bit registers live at
    ///   once, at least 8.
    /// * `local_bytes` leaves out what recursion adds.
    /// * `max_threads_per_block` is 1024, or less if `.maxntid` or `.reqntid` say so.
    pub function: FunctionAttributes,
    /// The block that `.reqntid` demands, if it is given.
    pub required_block: Option<Dim3>,
    /// The cluster that `.reqnctapercluster` demands, if it is given.
    pub required_cluster: Option<Dim3>,
    /// `.minnctapersm`, or 0.
    pub min_blocks: u32,
    /// Parameters in order.
    pub params: Vec<ParamLayout>,
}

impl KernelAttributes {
    /// Bytes of all parameters.
    pub fn param_bytes(&self) -> usize {
        self.params.last().map_or(0, |last| last.offset + last.size)
    }
}

/// The position of a kernel parameter, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamLayout {
    /// The offset from the start of the parameters.
    pub offset: usize,
    /// Size.
    pub size: usize,
}

/// The state space of a module-scope variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalSpace {
    /// `.global`.
    Global,
    /// `.const`: kernels may not write it.
    Const,
}

/// A module-scope variable that the driver gives memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalLayout {
    /// Name.
    pub name: String,
    /// State space.
    pub space: GlobalSpace,
    /// Bytes.
    pub size: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// Whether other modules may see it (`.visible`, `.weak`, `.common`).
    pub visible: bool,
    /// Whether it is declared here and defined elsewhere (`.extern`).
    pub external: bool,
    /// Whether it is `__managed__`.
    pub managed: bool,
    /// Initial contents; what is missing at the end is zero.
    pub initial: Vec<u8>,
    /// Addresses to be put into the contents.
    pub relocations: Vec<Relocation>,
}

/// An address in the initial contents of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The offset in the contents.
    pub offset: u64,
    /// Bytes that the address takes: 8, 4, or 1 where the PTX picks out a byte.
    pub bytes: u8,
    /// The number of bits by which the address is shifted right before its low bytes are taken.
    pub shift: u8,
    /// The target of the address.
    pub target: RelocationTarget,
    /// Added to the address.
    pub addend: i64,
}

/// The target of a [`Relocation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelocationTarget {
    /// A variable, by index into [`Program::globals`].
    Global(usize),
    /// A function: this value is its address.
    Function(u64),
}

/// The start of addresses of functions, at which there is no memory.
const FUNCTIONS: u64 = 0xf0_0000_0000_0000;

/// The address of a function, as device code sees it.
pub(crate) fn function_address(index: u32) -> u64 {
    FUNCTIONS + u64::from(index) * 16
}

/// The function at an address.
pub(crate) fn function_at(address: u64) -> Option<u32> {
    let offset = address.checked_sub(FUNCTIONS)?;
    (offset % 16 == 0).then(|| u32::try_from(offset / 16).ok())?
}

impl Program {
    /// The kernel called `name`.
    pub fn kernel(&self, name: &str) -> Option<KernelId> {
        self.names.get(name).copied()
    }

    /// The kernels in source order, with their names.
    pub fn kernels(&self) -> impl Iterator<Item = (KernelId, &str)> {
        self.kernels
            .iter()
            .enumerate()
            .map(|(index, kernel)| (KernelId(index as u32), &*self.functions[kernel.function as usize].name))
    }

    /// Returns the attributes of a kernel.
    pub fn attributes(&self, kernel: KernelId) -> &KernelAttributes {
        &self.kernels[kernel.0 as usize].attributes
    }

    /// Returns the unsupported instructions: function, line of the PTX, and reason.
    pub fn unsupported(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        self.functions.iter().flat_map(|function| {
            let code = &function.code;
            code.steps.iter().zip(&code.origin_of).filter_map(move |(step, origin)| match step.op {
                Op::Unsupported(reason) => {
                    let line = code.origins[*origin as usize].line;
                    Some((&*function.name, line, code.unsupported[reason as usize].as_str()))
                }
                _ => None,
            })
        })
    }

    /// Returns how much of each kernel can become machine code: name, steps in regions that have
    /// become code, steps in regions, and all steps.
    pub fn machine_code(&self) -> impl Iterator<Item = (&str, [usize; 3])> {
        self.kernels.iter().map(|kernel| {
            let function = &self.functions[kernel.function as usize];
            let [generated, possible] = function.code.native.extent();
            (&*function.name, [generated, possible, function.code.steps.len()])
        })
    }

    /// Returns the steps of kernels that are in no part that can become machine code: the kernel's
    /// name, the instruction, why, and whether the step is in a loop.
    pub fn interpreted(&self) -> impl Iterator<Item = (&str, &ptx::Mnemonic, Outside, bool)> {
        self.kernels.iter().flat_map(|kernel| {
            let Function { name, code } = &self.functions[kernel.function as usize];
            let jumps = code.steps.iter().enumerate().filter_map(|(at, step)| match step.op {
                Op::Jump { target } if target as usize <= at => Some(target as usize..at + 1),
                _ => None,
            });
            let loops: Vec<std::ops::Range<usize>> = jumps.collect();
            (0..code.steps.len()).filter_map(move |at| {
                let origin = &code.origins[code.origin_of[at] as usize];
                let repeated = loops.iter().any(|steps| steps.contains(&at));
                Some((&**name, &origin.mnemonic, code.native.outside(at)?, repeated))
            })
        })
    }

    /// Whether parts of a kernel have become machine code.
    pub fn has_machine_code(&self, kernel: KernelId) -> bool {
        let function = self.kernels[kernel.0 as usize].function;
        self.functions[function as usize].code.native.extent()[0] > 0
    }

    /// The variables in `.global` and `.const`, in source order.
    pub fn globals(&self) -> &[GlobalLayout] {
        &self.globals
    }
}
