//! The form in which kernels are executed: a list of steps over registers of 32 lanes.
//!
//! The compiler ([`super::compile`]) writes steps over virtual registers, allocates places, and renames. Rules:
//!
//! 1. Every operand is a register. Constants, parameters and special registers are [`Input`]s: registers that are
//!    filled before the function runs and never written, so no step ever asks what kind of operand it has.
//! 2. Registers come in three classes. A *word* is 32 lanes of 32 bits (of 8- and 16-bit registers the upper bits
//!    mean nothing), a *long* 32 lanes of 64 bits, a *predicate* one bit for each lane. Each class has a file of its
//!    own (see [`super::registers`]).
//! 3. A step acts on the lanes of its mask only. Lanes that have exited may be overwritten.
//! 4. Steps are laid out so that a loop is contiguous and a join comes after what it joins: the lanes that are
//!    furthest behind have the smallest program counter. [`super::warp`] relies on that for reconvergence only;
//!    results do not depend on it.

use super::access::{RunAccess, RunRegular};
use super::image::ImageStep;
use super::lanes::RunLanes;
use super::matrix::MatrixStep;
use super::prologue::Prologue;
use super::registers::Extent;
use super::runtime::RuntimeCall;
use super::whereabouts::Named;

/// A register: virtual while compiling; then an index into the frame's part of the file of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Reg(pub u32);

impl Reg {
    /// No register.
    pub(super) const NONE: Reg = Reg(u32::MAX);

    pub(super) fn is_some(self) -> bool {
        self != Reg::NONE
    }

    /// These registers, and no more.
    pub(super) fn list<const N: usize>(registers: &[Reg]) -> [Reg; N] {
        std::array::from_fn(|index| registers.get(index).copied().unwrap_or(Reg::NONE))
    }
}

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// Up to 32 bits for each lane.
    Word,
    /// 64 bits for each lane.
    Long,
    /// One bit for each lane.
    Predicate,
}

/// Which lanes execute a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Guard {
    /// All that are active.
    Always,
    /// Those with the predicate set.
    If(Reg),
    /// Those with the predicate clear.
    Unless(Reg),
}

impl Guard {
    /// The other lanes; [`Guard::Always`] has none and stays.
    pub(super) fn inverted(self) -> Guard {
        match self {
            Guard::Always => Guard::Always,
            Guard::If(reg) => Guard::Unless(reg),
            Guard::Unless(reg) => Guard::If(reg),
        }
    }
}

/// Operands of a step on registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Args {
    /// Results.
    pub(super) d: Reg,
    pub(super) e: Reg,
    /// Sources.
    pub(super) a: Reg,
    pub(super) b: Reg,
    pub(super) c: Reg,
    pub(super) f: Reg,
    /// A number that the handler knows how to read.
    pub(super) immediate: u32,
}

impl Args {
    pub(super) const EMPTY: Args = Args {
        d: Reg::NONE,
        e: Reg::NONE,
        a: Reg::NONE,
        b: Reg::NONE,
        c: Reg::NONE,
        f: Reg::NONE,
        immediate: 0,
    };
}

/// Where an address points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Global and constant memory: host addresses in the device's allocations.
    Global,
    /// Offsets in the block's shared memory.
    Shared,
    /// Offsets in the thread's local memory, which also holds parameters of functions.
    Local,
    /// Host addresses in any of these.
    Generic,
}

/// Patterns that are remembered at a time.
pub(super) const PATTERNS: usize = 8;

/// An address `base + index << shift`: what nvcc makes of the access to an element of an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Indexed {
    /// A long that is the same in all lanes.
    pub(super) base: Reg,
    /// A word.
    pub(super) index: Reg,
    /// Whether the index is a signed number.
    pub(super) signed: bool,
    pub(super) shift: u8,
}

/// What a step on registers means, where the compiler wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Not this.
    Other,
    /// `d = a + b`, longs.
    AddLong,
    /// `d = a * b`, words to a long.
    MultiplyWide { signed: bool },
    /// `d = a * b + c`, the lower words.
    MultiplyAddWords,
    /// Predicate `d = a R b` of words, and what [`compare`](super::lanes::compare) does besides.
    CompareWords { relation: Relation, signed: bool },
}

/// How two numbers may be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Relation {
    #[inline(always)]
    pub(super) fn holds(self, a: i64, b: i64) -> bool {
        match self {
            Relation::Less => a < b,
            Relation::LessEqual => a <= b,
            Relation::Greater => a > b,
            Relation::GreaterEqual => a >= b,
        }
    }

    /// The relation that holds of `(b, a)` where this one holds of `(a, b)`.
    pub(super) fn turned(self) -> Relation {
        match self {
            Relation::Less => Relation::Greater,
            Relation::LessEqual => Relation::GreaterEqual,
            Relation::Greater => Relation::Less,
            Relation::GreaterEqual => Relation::LessEqual,
        }
    }
}

/// Operands of a load, store or atomic.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessArgs {
    pub(super) space: Space,
    /// Loaded or stored registers, one for each element; for atomics the old value is `data[0]`.
    pub(super) data: [Reg; 8],
    /// Base address: a long, or a word for 32-bit addresses.
    pub(super) address: Reg,
    /// Whether `address` is a word.
    pub(super) narrow: bool,
    /// Added to the address.
    pub(super) offset: i64,
    /// What the address is made of, where that is known: then `address` need not have been computed.
    pub(super) indexed: Option<Indexed>,
    /// Where the pattern of the lanes is remembered, below [`PATTERNS`].
    pub(super) pattern: u8,
    /// Whether the pattern is to be found anew, whatever is remembered there.
    pub(super) fresh: bool,
    /// Where the pattern of the same index is remembered, if another access of the straight run has found it.
    pub(super) like: Option<u8>,
    /// Operands of atomics (of wide ones both halves); source address (and size) of asynchronous copies.
    pub(super) operands: [Reg; 4],
    /// Whether it is a load, a store or both.
    pub(super) kind: AccessKind,
    /// Whether `data` are longs.
    pub(super) wide: bool,
    /// For copies: bytes that a lane copies at most. For what a call moves between a register and a frame: its bytes.
    pub(super) copied: u32,
    /// Whether a thread may do it again and again until another thread has done something.
    pub(super) synchronises: bool,
}

/// What an access does with `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessKind {
    /// Writes the registers.
    Load,
    /// Reads the registers.
    Store,
    /// Reads `operands`, writes `data[0]` if there is one.
    Atomic,
    /// Reads `operands`.
    Copy,
    /// Reads `operands`, writes `data[0]` if there is one: an operation on an mbarrier.
    Mbarrier,
    /// Reads the registers: the generic addresses of the source and of an mbarrier; `operands` has the size.
    Bulk,
}

/// How a barrier is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BarrierKind {
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
pub(super) enum Reduction {
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

/// How `redux` chooses between floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FloatChoice {
    /// `.abs`: by magnitude.
    pub(super) magnitude: bool,
    /// `.NaN`: a NaN wins.
    pub(super) nan: bool,
}

/// How lanes talk to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WarpOp {
    /// `bar.warp.sync`.
    Sync,
    /// `shfl`: value `a`, lane or distance `b`, clamp and segment `c`; results `d` and predicate `e`.
    Shuffle(Shuffle),
    /// `vote.all`, `.any`, `.uni`: predicate `a`, result predicate `d`.
    All,
    Any,
    Uniform,
    /// `vote.ballot`: predicate `a`, result `d`.
    Ballot,
    /// `match.any`: value `a`, result `d`; the flag tells 64-bit values.
    MatchAny {
        long: bool,
    },
    /// `match.all`: the same, and a predicate `e`.
    MatchAll {
        long: bool,
    },
    /// `redux`: value `a`, result `d`.
    Redux(Reduction),
    /// `activemask`: result `d`.
    ActiveMask,
    /// `elect`: result lane `d`, predicate `e`.
    Elect,
}

/// The modes of `shfl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// The clock registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// Nanoseconds since 1970 rather than since the launch.
    pub(super) wall: bool,
    /// The upper half rather than the lower, in 32-bit registers.
    pub(super) high: bool,
}

/// Functions that are not in the program because the driver provides them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Builtin {
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

/// Whom a call calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callee {
    /// A function of the program, by index.
    Function(u32),
    /// A function that the device provides.
    Builtin(Builtin),
    /// The function whose address is in the register.
    Indirect(Reg),
}

/// Bytes that move between a caller's local memory and the parameter area of the function it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    /// Offset in the caller's frame.
    pub(super) caller: u32,
    /// Offset in the callee's frame.
    pub(super) callee: u32,
    pub(super) bytes: u32,
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) callee: Callee,
    pub(super) arguments: Vec<Transfer>,
}

/// What a step does.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Computes on registers.
    Lanes { run: RunLanes, meaning: Meaning, args: Args },
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
    /// `bar`, `barrier`: identifier and thread count (or none), predicate `source`, result `result`.
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
    /// What this device does not execute; index into [`Code::complaints`].
    Unsupported(u32),
}

/// A step.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) guard: Guard,
    pub(super) op: Op,
    /// How many straight steps begin with this one, on their way to one that is not: see [`Step::is_straight`].
    pub(super) straight: u32,
    /// How many straight steps from this one on need not be executed, because accesses know their addresses without
    /// them. (They count all the same.)
    pub(super) idle: u8,
    /// The same of the step after this one.
    pub(super) idle_after: u8,
}

/// Whether a step reads or writes a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Use,
    Def,
}

impl Step {
    pub(super) fn new(guard: Guard, op: Op) -> Step {
        Step { guard, op, straight: 0, idle: 0, idle_after: 0 }
    }

    /// Whether all lanes of a fragment execute it and go on to the next, without a chance that they have to wait.
    pub(super) fn is_straight(&self) -> bool {
        self.guard == Guard::Always
            && match &self.op {
                Op::Lanes { .. } => true,
                Op::Access { args, .. } => !args.synchronises,
                _ => false,
            }
    }

    /// Shows every register of the step, so that it can be renamed. A guarded definition keeps the old value in
    /// some lanes: whoever cares looks at the guard too.
    pub(super) fn registers(&mut self, visit: &mut dyn FnMut(&mut Reg, Role)) {
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
                let reads = matches!(args.kind, AccessKind::Store | AccessKind::Bulk);
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

impl Args {
    fn registers(&mut self, show: &mut dyn FnMut(&mut Reg, Role)) {
        for reg in [&mut self.a, &mut self.b, &mut self.c, &mut self.f] {
            show(reg, Role::Use);
        }
        show(&mut self.d, Role::Def);
        show(&mut self.e, Role::Def);
    }
}

/// A value that is in a register before a function starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Input {
    /// The same bits in each lane.
    Constant(u64),
    /// `%tid`.
    Thread(u8),
    /// `%ntid`.
    BlockSize(u8),
    /// `%ctaid`.
    Block(u8),
    /// `%nctaid`.
    GridSize(u8),
    /// `%laneid`.
    Lane,
    /// `%warpid`.
    Warp,
    /// `%nwarpid`.
    Warps,
    /// `%smid`.
    Processor,
    /// `%nsmid`.
    Processors,
    /// `%gridid`.
    Grid,
    /// `%envreg1` and `%envreg2`: the two halves of the address of the grid's workspace.
    Workspace { high: bool },
    /// `%lanemask_eq`, `_le`, `_lt`, `_ge`, `_gt`.
    LaneMask(LaneMask),
    /// Static, dynamic and all shared memory of the block, in bytes.
    SharedBytes { fixed: bool, dynamic: bool },
    /// Bytes of a kernel parameter, zero- or sign-extended.
    Param { offset: u32, bytes: u8, signed: bool },
    /// Address of a byte of the kernel's parameters.
    ParamAddress(u32),
    /// First address after the kernel's parameters.
    ParamEnd,
    /// Offset of a shared variable, by index.
    SharedVariable(u32),
    /// Generic address of the block's shared memory.
    SharedWindow,
    /// First generic address after it.
    SharedWindowEnd,
    /// Generic address of the thread's local memory.
    LocalWindow,
    /// First generic address after it.
    LocalWindowEnd,
    /// Offset in local memory where `alloca` may begin: after the frames of the deepest chain of calls.
    StackStart,
    /// Offset in local memory where `alloca` must end: the size of local memory.
    StackEnd,
    /// Offset in local memory of a byte of the function's frame.
    Frame(u32),
    /// Address of a global or constant variable, by index.
    Global(u32),
}

/// The lane-mask registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LaneMask {
    Equal,
    LessEqual,
    Less,
    GreaterEqual,
    Greater,
}

/// Where an instruction came from.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// Line in the PTX.
    pub(super) line: u32,
    pub(super) mnemonic: ptx::Mnemonic,
    pub(super) source: Option<Source>,
}

/// What the last `.loc` before an instruction says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// File index and line.
    pub(super) at: (u32, u32),
    /// File index and line of the call that was replaced by the function's body.
    pub(super) inlined_at: Option<(u32, u32)>,
}

/// The classes of the registers of steps: of each those that [`Step::registers`] shows, in that order.
#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    all: Vec<Class>,
    /// Where those of each step begin.
    starts: Vec<u32>,
}

impl Classes {
    /// Adds a step.
    pub(super) fn push(&mut self, step: &mut Step, class: impl Fn(Reg) -> Class) {
        self.starts.push(self.all.len() as u32);
        step.registers(&mut |reg, _| self.all.push(class(*reg)));
    }

    pub(super) fn of(&self, step: u32) -> &[Class] {
        let step = step as usize;
        let end = self.starts.get(step + 1).map_or(self.all.len(), |&end| end as usize);
        &self.all[self.starts[step] as usize..end]
    }
}

/// A compiled function.
#[derive(Clone, Debug)]
pub(super) struct Code {
    pub(super) steps: Vec<Step>,
    pub(super) classes: Classes,
    /// For each step the index of its origin.
    pub(super) origin_of: Vec<u32>,
    pub(super) origins: Vec<Origin>,
    /// How it begins, if convoys may pass that.
    pub(super) prologue: Option<Prologue>,
    /// Registers to fill at the start.
    pub(super) inputs: Vec<(Reg, Class, Input)>,
    /// Registers that a frame takes.
    pub(super) registers: Extent,
    /// Bytes of local memory that a frame takes: parameters, then variables.
    pub(super) frame_bytes: u32,
    /// Why steps are [`Op::Unsupported`].
    pub(super) complaints: Vec<String>,
    /// Functions that it calls by name.
    pub(super) calls: Vec<u32>,
    /// Whether it calls through pointers.
    pub(super) calls_indirectly: bool,
    /// Shared variables that it names.
    pub(super) shared: Vec<u32>,
    /// Variables in its frame, by offset.
    pub(super) variables: Vec<Named>,
}
