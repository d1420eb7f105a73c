//! A step: its operation, its guard, and the registers that it names.

use ptx::instruction::{Shuffle, Vote};

use crate::image::ImageStep;
use crate::matrix::MatrixStep;
use crate::memory::access::{RunAccess, RunRegular};
use crate::operands::{AccessArgs, AccessKind, Args, Class, Guard, Indexed, Reg, Role, WordComparison};
use crate::registers::handler::RunLanes;

/// The way in which a barrier is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    /// Wait until all have come.
    Sync,
    /// Count, and go on.
    Arrive,
    /// Wait, and get how many predicates were true.
    Popc,
    /// Wait, and get whether all were.
    And,
    /// Wait, and get whether any was.
    Or,
    /// `barrier.cluster.arrive`: count, and go on.
    ClusterArrive,
    /// `barrier.cluster.wait`: wait until all have arrived.
    ClusterWait,
}

/// Operations of `redux.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    Add,
    MinSigned,
    MaxSigned,
    Min,
    Max,
    And,
    Or,
    Xor,
    MinFloat(FloatChoice),
    MaxFloat(FloatChoice),
}

/// The choice of `redux` between floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatChoice {
    /// `.abs`: by magnitude.
    pub(crate) magnitude: bool,
    /// `.NaN`: a NaN wins.
    pub(crate) nan: bool,
}

/// An instruction by which lanes communicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WarpOp {
    /// `bar.warp.sync`.
    Sync,
    /// `shfl`: value `a`, lane or distance `b`, clamp and segment `c`; results `d` and predicate
    /// `e`.
    Shuffle(Shuffle),
    /// `vote`: predicate `a`; result `d`, of `.ballot` a word and else a predicate.
    Vote(Vote),
    /// `match.any`: value `a`, result `d`; the flag tells 64-bit values.
    MatchAny { long: bool },
    /// `match.all`: the same, and a predicate `e`.
    MatchAll { long: bool },
    /// `redux`: value `a`, result `d`.
    Redux(Reduction),
    /// `activemask`: result `d`.
    ActiveMask,
    /// `elect`: result lane `d`, predicate `e`.
    Elect,
}

/// The clock registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Nanoseconds since 1970 rather than since the launch.
    pub(crate) wall: bool,
    /// The upper half rather than the lower, in 32-bit registers.
    pub(crate) high: bool,
}

/// A function of the device runtime. The names are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeCall {
    GetParameterBuffer,
    LaunchDevice,
    GetLastError,
    PeekAtLastError,
    GetErrorString,
    GetErrorName,
    GetDeviceCount,
    GetDevice,
    DeviceGetAttribute,
    /// Creates a stream or an event.
    Create,
    /// Destroys a stream or an event; records an event or waits for one. Everything that a grid
    /// asks for is done in the order of the requests, which respects every order that streams and
    /// events could ask for.
    Order,
    MemcpyAsync,
    MemsetAsync,
    Malloc,
    Free,
    GraphSetConditional,
}

/// Functions that are not in the program because the driver provides them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builtin {
    /// `int vprintf(const char*, void*)`.
    Print,
    /// `void* malloc(size_t)`.
    Malloc,
    /// `void free(void*)`.
    Free,
    /// `void __assertfail(const char*, const char*, unsigned, const char*, size_t)`.
    AssertFail,
    /// A function of the device runtime.
    Runtime(RuntimeCall),
}

/// The target of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callee {
    /// A function of the program, by index.
    Function(u32),
    /// A function that the device provides.
    Builtin(Builtin),
    /// The function whose address is in the register.
    Indirect(Reg),
}

/// Bytes that move between a caller's local memory and the parameter area of the function it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// Offset in the caller's frame.
    pub(crate) caller: u32,
    /// Offset in the callee's frame.
    pub(crate) callee: u32,
    pub(crate) bytes: u32,
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) callee: Callee,
    pub(crate) arguments: Vec<Transfer>,
}

/// The operation of a step.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Computes on registers.
    Lanes { run: RunLanes, compares: Option<WordComparison>, args: Args },
    /// Accesses memory.
    Access { run: RunAccess, regular: Option<RunRegular>, args: Box<AccessArgs> },
    /// Reads or writes a texture or a surface.
    Image(Box<ImageStep>),
    /// Goes to a step; what the guard leaves out falls through.
    Jump { target: u32 },
    /// Goes to one of several steps, by an index that may differ between lanes.
    JumpTable { index: Reg, targets: Box<[u32]> },
    /// Calls; the step after it is a [`Op::Results`].
    Call(Box<Call>),
    /// Fetches the results of the call before it.
    Results(Box<[Transfer]>),
    /// Ends a function; in a kernel the thread.
    Return,
    /// Ends the thread.
    Exit,
    /// `bar`, `barrier`: identifier and thread count (or none), predicate `source`, result
    /// `result`.
    Barrier { kind: BarrierKind, barrier: Reg, threads: Reg, source: Reg, negated: bool, result: Reg },
    /// Lanes exchange; they wait for the lanes of the mask `members`.
    Warp { op: WarpOp, members: Reg, args: Args },
    /// The lanes of the warp wait for each other, and compute on matrices.
    Matrix(Box<MatrixStep>),
    /// `membar`, `fence`.
    Fence,
    /// `nanosleep`: lets others run.
    Yield,
    /// `%clock`, `%globaltimer`: a count of nanoseconds in `d`.
    Clock { d: Reg, class: Class, clock: Clock },
    /// `trap`, `brkpt`.
    Trap,
    /// An instruction that this device does not execute; index into [`Code::unsupported`].
    Unsupported(u32),
}

/// A step.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) guard: Guard,
    pub(crate) op: Op,
    /// The number of consecutive straight steps from this one on: see [`Step::is_straight`].
    pub(crate) straight: u32,
    /// The number of straight steps from this one on that need not be executed, because accesses
    /// know their addresses without them. They count all the same.
    pub(crate) idle: u8,
    /// The same of the step after this one.
    pub(crate) idle_after: u8,
}

impl Step {
    pub(crate) fn new(guard: Guard, op: Op) -> Step {
        Step { guard, op, straight: 0, idle: 0, idle_after: 0 }
    }

    /// Whether all lanes of a path execute it and go on to the next, without a chance that they
    /// have to wait.
    pub(crate) fn is_straight(&self) -> bool {
        self.guard == Guard::Always
            && match &self.op {
                Op::Lanes { .. } => true,
                Op::Access { args, .. } => !args.synchronises,
                _ => false,
            }
    }

    /// Shows every register of the step, so that it can be renamed. A guarded definition keeps the
    /// old value in some lanes: whoever cares looks at the guard too.
    pub(crate) fn registers(&mut self, visit: &mut dyn FnMut(&mut Reg, Role)) {
        let mut show = |reg: &mut Reg, role| {
            if reg.is_some() {
                visit(reg, role);
            }
        };
        match &mut self.guard {
            Guard::Always => {}
            Guard::If(reg) | Guard::Unless(reg) => show(reg, Role::Use),
        }
        match &mut self.op {
            Op::Lanes { args, .. } => args.registers(&mut show),
            Op::Warp { members, args, .. } => {
                show(members, Role::Use);
                args.registers(&mut show);
            }
            Op::Access { args, .. } => {
                show(&mut args.address, Role::Use);
                if let Some(Indexed { base, index, .. }) = &mut args.indexed {
                    show(base, Role::Use);
                    show(index, Role::Use);
                }
                args.operands.iter_mut().for_each(|reg| show(reg, Role::Use));
                let reads = matches!(args.kind, AccessKind::Store | AccessKind::Bulk | AccessKind::Tensor);
                let role = if reads { Role::Use } else { Role::Def };
                args.data.iter_mut().for_each(|reg| show(reg, role));
            }
            Op::Image(step) => step.registers(&mut show),
            Op::Matrix(step) => step.registers(&mut show),
            Op::JumpTable { index, .. } => show(index, Role::Use),
            Op::Call(call) => {
                if let Callee::Indirect(reg) = &mut call.callee {
                    show(reg, Role::Use);
                }
            }
            Op::Barrier { barrier, threads, source, result, .. } => {
                show(barrier, Role::Use);
                show(threads, Role::Use);
                show(source, Role::Use);
                show(result, Role::Def);
            }
            Op::Clock { d, .. } => show(d, Role::Def),
            Op::Jump { .. } | Op::Results(_) | Op::Return | Op::Exit => {}
            Op::Fence | Op::Yield | Op::Trap | Op::Unsupported(_) => {}
        }
    }
}
